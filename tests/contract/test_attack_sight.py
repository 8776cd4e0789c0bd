"""What can be seen and reached from inside: nothing of the host, of its daemons, or of other sandboxes."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from sandbox.base import SandboxBackend
from tests.contract.inside import SPEC, answers, mark, python, sh


@pytest.mark.claim("no process of the host in sight")
async def test_the_kernel_tells_nothing_of_the_host(jail: SandboxBackend) -> None:
    program = """
    for path in ("/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/sysrq-trigger", "/proc/kpagecount",
                 "/proc/vmallocinfo", "/proc/slabinfo", "/sys/kernel/security/lsm", "/sys/kernel/debug/sched",
                 "/sys/firmware/dmi/tables/DMI", "/dev/kmsg", "/proc/1/mountinfo"):
        try:
            with open(path, "rb") as file:
                print(path, len(file.read(64)))
        except OSError:
            print(path, 0)
    try:
        lines = Path("/proc/kallsyms").read_text().splitlines()
    except OSError:
        lines = []
    print("addresses", any(int(line.split()[0], 16) for line in lines))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert said.pop("addresses") == "False"
        said.pop("/proc/1/mountinfo")
        assert set(said.values()) == {"0"}, {name for name, value in said.items() if value != "0"}
        host = {socket.gethostname(), socket.getfqdn()} - {"localhost"}
        seen = (await sh(box, "hostname; cat /proc/sys/kernel/hostname /etc/hostname /etc/hosts /etc/resolv.conf")).text
        assert seen.split()[0] == "sandbox"
        assert not [name for name in host if name in seen]
        servers = [line for line in seen.splitlines() if line.startswith("nameserver") and " 127." not in line]
        assert servers == []


@pytest.mark.claim("no resolver")
async def test_no_name_is_resolved_and_no_datagram_leaves(jail: SandboxBackend) -> None:
    """Direct DNS was a tunnel out of gh-aw-firewall (#1246) and of claude-code (#36907)."""
    program = """
    def resolve(name):
        try:
            socket.getaddrinfo(name, 80)
        except OSError as error:
            return "refused"
        return "OK"
    for name in ("example.com", "secret-in-a-name.example.com", "host.docker.internal", "gateway.docker.internal"):
        print(name, resolve(name))
    for address in ("192.0.2.1", "169.254.169.254", "10.0.0.1", "172.17.0.1", "100.100.100.200", "255.255.255.255",
                    "224.0.0.251"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            print("udp", address, act(lambda: s.sendto(b"x", (address, 53))))
        with socket.socket() as s:
            s.settimeout(2)
            print("tcp", address, act(lambda: s.connect((address, 80))))
    for address in ("2001:db8::1", "fe80::1%lo", "ff02::1", "fd00:ec2::254", "::ffff:192.0.2.1"):
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
            print("udp", address, act(lambda: s.sendto(b"x", (address.split("%")[0], 53))))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert "OK" not in said.values(), {name for name, value in said.items() if value == "OK"}


@pytest.mark.claim("no route out")
async def test_no_socket_file_or_abstract_socket_of_the_host_is_there(jail: SandboxBackend, tmp_path: Path) -> None:
    """A docker socket inside was gh-aw-firewall #10; every socket file found is knocked at."""
    program = """
    import stat
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    found = {line.split()[-1] for line in lines if "/" in line or "@" in line}
    for folder, _, names in os.walk("/"):
        if folder.startswith(("/proc", "/sys")):
            continue
        for name in names:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    found.add(path)
            except OSError:
                pass
    found |= {"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
              "/run/dbus/system_bus_socket", "/run/systemd/private", "/tmp/.X11-unix/X0",
              sys.argv[1], "@" + sys.argv[2]}
    for path in sorted(found):
        for kind in (1, 2, 5):
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.settimeout(2)
                print(path, kind, act(lambda: s.connect(path.replace("@", "\\0"))))
    """
    name, path = f"swarm-test-{mark()}", f"/tmp/swarm-test-{mark()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind("\0" + name)
        abstract.listen()
        named.bind(path)
        os.chmod(path, 0o777)  # noqa: S103, PTH101 - on purpose: it must be out of sight, not only forbidden
        named.listen()
        try:
            async with jail.open(SPEC) as box:
                said = await answers(box, program, path, name)
                assert len(said) >= 27
                assert "OK" not in said.values(), {name for name, value in said.items() if value == "OK"}
        finally:
            os.unlink(path)  # noqa: PTH108


@pytest.mark.claim("read-only system")
async def test_control_groups_cannot_be_changed_nor_turned_into_a_way_out(jail: SandboxBackend) -> None:
    """CVE-2022-0492: a release_agent runs on the host, as root."""
    program = """
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup" in line:
            place = Path(line.split()[4])
            for name in ("release_agent", "notify_on_release", "cgroup.procs", "tasks", "cgroup.subtree_control",
                         "memory.limit_in_bytes", "memory.max", "pids.max", "cpu.max", "cpu.cfs_quota_us",
                         "devices.allow", "cgroup.kill", "cgroup.freeze"):
                print(place / name, act(lambda: (place / name).write_text("0")))
            print(place / "child", act(lambda: (place / "child").mkdir()))
    print("mount", call(165 if X86 else 40, b"none", b"/work", b"cgroup", 0, b"memory"))
    print("mount2", call(165 if X86 else 40, b"none", b"/work", b"cgroup2", 0, None))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert "OK" not in said.values(), {name for name, value in said.items() if value == "OK"}
        groups = (await sh(box, "cat /proc/self/cgroup")).text
        assert "docker" not in groups
        assert "swarm-" not in groups


@pytest.mark.claim("read-only system")
async def test_nothing_can_be_written_beside_the_four_writable_places(jail: SandboxBackend) -> None:
    program = """
    places = ("/work", "/home/agent", "/tmp", "/dev/shm", "/proc", "/dev/mqueue", "/dev/pts")
    for folder, names, files in os.walk("/"):
        if any(folder == one or folder.startswith(one + "/") for one in places):
            names.clear()
            continue
        probe = os.path.join(folder, ".probe")
        if act(lambda: os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))) == "OK":
            print(folder)
        if act(lambda: os.mkdir(probe)) == "OK":
            print(folder)
        for name in files[:50]:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and act(lambda: os.utime(path, follow_symlinks=False)) == "OK":
                print(folder, name)
    """
    async with jail.open(SPEC) as box:
        outcome = await python(box, program, timeout=25)
        assert (outcome.text, outcome.exit_code) == ("", 0)


@pytest.mark.claim("no open file of the daemon")
async def test_no_descriptor_of_the_daemon_is_inherited(jail: SandboxBackend, tmp_path: Path) -> None:
    held = [os.open(tmp_path, os.O_RDONLY), os.open("/dev/null", os.O_RDWR)]
    for descriptor in held:
        os.set_inheritable(descriptor, True)
    program = """
    for number in range(1024):
        try:
            os.fstat(number)
        except OSError:
            continue
        print(number, os.readlink(f"/proc/self/fd/{number}").split(":")[0])
    """
    try:
        async with jail.open(SPEC) as box:
            said = await answers(box, program)
            assert set(said) <= {"0", "1", "2"}, said
            assert set(said.values()) <= {"pipe", "/dev/null"}, said
    finally:
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.claim("no variable of the daemon")
async def test_no_variable_of_the_daemon_gets_in_by_any_way(jail: SandboxBackend) -> None:
    canary = f"canary{mark()}"
    taken = {
        name: os.environ.get(name) for name in ("LD_PRELOAD_CANARY", "SSL_CERT_FILE", "PYTHONPATH", "GIT_DIR", "ENV")
    }
    os.environ.update(dict.fromkeys(taken, canary))
    try:
        async with jail.open(SPEC) as box:
            seen = await sh(
                box, "env; set; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/[0-9]*/cmdline"
            )
            assert canary not in seen.text
            assert "AGENT_SWARM" not in seen.text
    finally:
        for name, value in taken.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@pytest.mark.claim("no process of the host in sight")
async def test_two_sandboxes_see_nothing_of_each_other(jail: SandboxBackend) -> None:
    tag = mark()
    async with jail.open(SPEC) as one, jail.open(SPEC) as two:
        await sh(one, f"echo {tag} >secret; cp secret /tmp; cp secret /dev/shm; cp secret $HOME")
        server = """
        import threading
        s = socket.create_server(("127.0.0.1", 4567))
        threading.Timer(3, lambda: os._exit(0)).start()
        s.accept()
        """
        seek = "import time; time.sleep(1)\n"
        seek += "print('tcp', act(lambda: socket.create_connection(('127.0.0.1', 4567), 1)))"
        _, said = await asyncio.gather(python(one, server), answers(two, seek))
        assert said["tcp"] != "OK"
        seen = await sh(
            two, f"grep -rs {tag} /work /tmp /dev/shm /home 2>/dev/null; ls /dev/mqueue; ipcs -m 2>/dev/null"
        )
        assert tag not in seen.text
