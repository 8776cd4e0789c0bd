"""Attacks from inside, on every backend that the kernel enforces."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sandbox.base import SandboxBackend
from sandbox.errors import SandboxError
from sandbox.rules.claims import MENDS
from sandbox.trees.workspace import Workspace
from sandbox.types import MIB, SandboxSpec
from tests.contract.inside import SPEC, mark, python, sh, usable


@pytest.mark.claim("processes limited")
async def test_fork_bomb_is_contained(jail: SandboxBackend, processes_with) -> None:
    tag = mark()
    bomb = "import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    async with jail.open(SPEC) as box:
        outcome = await python(box, bomb, tag, timeout=2)
        assert outcome.timed_out
        assert len(processes_with(tag)) == 0
        await usable(box)
        counted = await sh(box, "for i in $(seq 100); do sleep 30 & done; echo started; wait", timeout=2)
        assert counted.timed_out or counted.exit_code != 0
        await usable(box)


@pytest.mark.claim("memory limited")
async def test_memory_hog_is_killed_and_told_so(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        outcome = await python(box, "x = bytearray(300 << 20); print('still here')")
        assert outcome.exit_code == 137
        assert outcome.out_of_memory
        assert not outcome.timed_out
        assert "still here" not in outcome.text
        child = await sh(box, "python3 -c 'x = bytearray(300 << 20)'; exit 3")
        assert child.exit_code == 3
        assert child.out_of_memory
        fine = await python(box, "x = bytearray(8 << 20); print('small')")
        assert (fine.text, fine.out_of_memory) == ("small\n", False)


@pytest.mark.claim("memory limited")
async def test_memory_cannot_hide_in_shared_memory_or_tmpfs(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        for place in ("/tmp", "/dev/shm", "/home/agent"):
            outcome = await sh(box, f"cat /dev/zero >{place}/x; du -m {place}/x | cut -f1")
            if outcome.exit_code == 0:
                assert int(outcome.text.split()[-1]) <= 96
            else:
                assert outcome.exit_code == 137
        shared = """
        import mmap
        held = mmap.mmap(-1, 300 << 20)
        for at in range(0, 300 << 20, 4096):
            held[at] = 1
        print("still here")
        """
        outcome = await python(box, shared)
        assert "still here" not in outcome.text
        await usable(box)


@pytest.mark.claim("disk limited")
async def test_disk_hog_meets_the_limit(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        outcome = await sh(box, "cat /dev/zero >one; cat /dev/zero >two; du -m . | cut -f1; rm one two")
        assert int(outcome.text.split()[-1]) <= 9
        assert "No space left" in outcome.text or "File size limit" in outcome.text
        many = "import os\nn = 0\ntry:\n    while n < 200_000:\n        open(f'f{n}', 'w').close(); n += 1\n"
        many += "except OSError as e:\n    print(e)\nprint(n)"
        outcome = await python(box, many, timeout=25)
        assert int(outcome.text.split()[-1]) < 30_000
        await sh(box, "find . -type f -delete")
        await box.write("small", b"fits again")
        with pytest.raises(SandboxError, match="No space"):
            await box.write("big", bytes(12 * MIB))
        await usable(box)


@pytest.mark.claim("read-only system")
async def test_nothing_outside_the_workspace_is_writable(jail: SandboxBackend) -> None:
    places = "/x /usr/x /usr/bin/x /etc/x /etc/passwd /bin/x /lib/x /root/x /var/x /dev/x /home/x /mnt/x"
    places += " /proc/sys/kernel/hostname /proc/sysrq-trigger"
    async with jail.open(SPEC) as box:
        for place in places.split():
            outcome = await sh(box, f"echo evil >>{place}")
            assert outcome.exit_code != 0, place
        outcome = await sh(
            box, "mkdir ../up; touch /work/../y; chmod 777 /; mount -t tmpfs x /work; umount /work; id -u"
        )
        assert "Read-only" in outcome.text
        assert outcome.text.splitlines()[-1] not in {"0", "1000"}
    assert not [name for name in ("/x", "/usr/x", "/usr/bin/x", "/etc/x", "/y", "/up") if os.path.lexists(name)]  # noqa: ASYNC240


@pytest.mark.claim("no route out")
async def test_no_network_of_any_family(jail: SandboxBackend) -> None:
    name = f"swarm-test-{mark()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as tcp:
        abstract.bind("\0" + name)
        abstract.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        program = """
        def connect(family, kind, address):
            with socket.socket(family, kind) as s:
                s.settimeout(2)
                s.connect(address)
        def send(family, address):
            with socket.socket(family, socket.SOCK_DGRAM) as s:
                s.sendto(b"x", address)
        port = int(sys.argv[2])
        print(act(lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + sys.argv[1])))
        print(act(lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port))))
        print(act(lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80))))
        print(act(lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))))
        print(act(lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 80))))
        print(act(lambda: send(socket.AF_INET, ("192.0.2.1", 53))))
        print(act(lambda: send(socket.AF_INET, ("255.255.255.255", 53))))
        print(*(act(lambda f=f: socket.socket(f, socket.SOCK_STREAM)) for f in (40, 38, 9, 31, 44)))
        print(*(act(lambda f=f: socket.socket(f, socket.SOCK_RAW, 1)) for f in (16, 17, 2, 10)))
        number = 41 if os.uname().machine == "x86_64" else 198
        print(call(number, ctypes.c_long((1 << 32) + 40), 1, 0), call(number, ctypes.c_long(-(1 << 32) + 16), 3, 0))
        """
        async with jail.open(SPEC) as box:
            outcome = await python(box, program, name, str(tcp.getsockname()[1]))
            lines = outcome.text.splitlines()
            assert lines[:4] == ["ECONNREFUSED", "ECONNREFUSED", "ENETUNREACH", "ENETUNREACH"], outcome.text
            assert lines[4] in {"ENETUNREACH", "EADDRNOTAVAIL"}  # the latter where there is no inet6 at all
            assert lines[5] == "ENETUNREACH"
            assert lines[6] in {"ENETUNREACH", "EACCES"}
            assert set(lines[7].split()) == {"EAFNOSUPPORT"}
            assert lines[8].split() == ["EAFNOSUPPORT", "EAFNOSUPPORT", "EPERM", "EPERM"]
            assert lines[9] == "EAFNOSUPPORT EAFNOSUPPORT"
            assert (await sh(box, "tail -n +3 /proc/net/dev | grep -v ' lo:' ; true")).text == ""


async def test_a_loopback_server_of_its_own_works(jail: SandboxBackend) -> None:
    program = """
    a = socket.create_server(("localhost", 0))
    b = socket.create_connection(a.getsockname())
    b.sendall(b"hello")
    print(a.accept()[0].recv(5))
    """
    async with jail.open(SPEC) as box:
        assert (await python(box, program)).text == "b'hello'\n"


@pytest.mark.claim("system calls filtered")
async def test_dangerous_system_calls_are_refused(jail: SandboxBackend) -> None:
    program = """
    print("io_uring", call(425, 1, ctypes.create_string_buffer(256)))
    print("ptrace", "OK" if libc.ptrace(0, 0, None, None) != -1 else "EPERM")
    print("unshare", act(lambda: None if libc.unshare(0x10000000) == 0 else (_ for _ in ()).throw(OSError(1, ""))))
    print("keyctl", call({"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -3, 1))
    print("bpf", call({"x86_64": 321, "aarch64": 280}[os.uname().machine], 0, None, 0))
    print("clone3", call(435, None, 0))
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    print("clone", call(clone, ctypes.c_long(0x10000000 | 17), None, None, None, None))
    readv = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
    print("process_vm_readv", call(readv, os.getppid(), None, 0, None, 0, 0))
    """
    async with jail.open(SPEC) as box:
        said = dict(line.split() for line in (await python(box, program)).text.splitlines())
        assert said.pop("clone3") == "ENOSYS"
        assert set(said.values()) == {"EPERM"}, said
        nested = await sh(box, "unshare --user --map-root-user true || echo refused")
        assert "refused" in nested.text


@pytest.mark.claim("no foreign system call")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="32-bit calls exist on x86 alone")
async def test_foreign_architecture_calls_are_killed(jail: SandboxBackend) -> None:
    program = """
    import mmap
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex(sys.argv[1]))
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    print(ctypes.CFUNCTYPE(ctypes.c_int)(address)(), "survived")
    """
    async with jail.open(SPEC) as box:
        for name, code in (("int 0x80", "b814000000cd80c3"), ("x32", "b827000040" + "0f05c3")):  # getpid both times
            outcome = await python(box, program, code)
            assert "survived" not in outcome.text, name
            assert outcome.exit_code == 128 + signal.SIGSYS, name


@pytest.mark.claim("nothing survives a command")
async def test_an_orphan_does_not_survive_its_command(jail: SandboxBackend, processes_with) -> None:
    tag = mark()
    program = f"""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(3):
                os.close(fd)
            os.execvp("sh", ["sh", "-c", "while :; do date +%s%N >beat; sleep 0.05; done; : {tag}"])
        os._exit(0)
    import time; time.sleep(0.5)
    """
    async with jail.open(SPEC) as box:
        assert (await python(box, program)).exit_code == 0
        first = await box.read("beat")
        await asyncio.sleep(0.5)
        assert await box.read("beat") == first
        assert processes_with(tag) == []


@pytest.mark.claim("supervisor out of reach")
async def test_an_agent_that_kills_or_stops_everything_only_hurts_itself(jail: SandboxBackend, processes_with) -> None:
    tag = mark()
    async with jail.open(SPEC) as box:
        await box.write("kept", b"1")
        attacks = (
            "kill -9 -1",
            "kill -9 1 $PPID",
            "kill -STOP $PPID; kill -STOP 1",
            f"(trap '' TERM HUP INT; setsid sh -c 'sleep {tag}' &) ; kill -9 $PPID",
        )
        for attack in attacks:
            await sh(box, attack, timeout=2)
            assert processes_with(tag) == []
        # a racer: forks on and on, each child kills whatever else there is
        racer = "import os, signal\nwhile True:\n    try:\n        if os.fork():\n            os.setsid()\n"
        racer += (
            "    except OSError:\n        pass\n    try:\n        os.kill(-1, 19)\n    except OSError:\n        pass\n"
        )
        try:
            await python(box, racer, tag, timeout=2)
            await usable(box)
            assert await box.read("kept") == b"1"
        except SandboxError as error:
            assert "thrown away" in str(error)  # the other honest end  # noqa: PT017
        assert processes_with(tag) == []


@pytest.mark.claim("no process of the host in sight")
async def test_host_processes_and_their_environments_are_out_of_sight(jail: SandboxBackend) -> None:
    canary = f"canary{mark()}"
    env = {"PATH": os.environ["PATH"], "SECRET": canary}
    with subprocess.Popen(["sleep", "60"], env=env) as host:  # noqa: ASYNC220 - it only has to be there
        os.environ["SWARM_SECRET"] = canary
        try:
            async with jail.open(SPEC) as box:
                outcome = await sh(
                    box, "ls -d /proc/[0-9]* | wc -l; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; env; set"
                )
                assert int(outcome.text.split()[0]) < 10
                assert canary not in outcome.text
                outcome = await python(box, "print(act(lambda: os.kill(int(sys.argv[1]), 0)))", str(host.pid))
                assert outcome.text == "ESRCH\n"
                outcome = await sh(
                    box, "ls -l /proc/self/fd; cat /proc/self/fd/[3-9] 2>&1; ls /proc/1/fd /proc/1/root 2>&1"
                )
                assert "mnt:" not in outcome.text
                assert "user:" not in outcome.text
                seen = await sh(
                    box,
                    "ls / /home /root /etc /var /srv /opt /mnt 2>/dev/null; cat /etc/shadow; cat /proc/self/cmdline",
                )
                assert "shadow" not in seen.text.replace("/etc/shadow", "")
                assert canary not in seen.text
        finally:
            del os.environ["SWARM_SECRET"]
            host.kill()


@pytest.mark.claim("no route out")
async def test_the_docker_socket_and_the_daemons_files_are_not_there(jail: SandboxBackend, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    secret.chmod(0o666)
    os.chmod(tmp_path, 0o777)  # noqa: S103, PTH101 - on purpose: the sandbox must not see it even so
    async with jail.open(SPEC) as box:
        outcome = await sh(box, f"cat {secret}; ls /run /var/run /var/lib; find / -name '*docker*.sock' 2>/dev/null")
        assert "canary" not in outcome.text
        assert ".sock" not in outcome.text


@pytest.mark.claim("CPU limited")
async def test_limits_are_what_was_asked(jail: SandboxBackend) -> None:
    burn = "import time\nb = time.monotonic(); u = time.process_time()\nwhile time.monotonic() - b < 1: pass\n"
    burn += "print(time.process_time() - u)"
    spec = SandboxSpec(limits=SPEC.limits.model_copy(update={"cpus": 0.25, "processes": 20}))
    async with jail.open(spec) as box:
        assert float((await python(box, burn)).text) < 0.5
        forked = """
        n = 0
        while n < 100 and act(lambda: os.fork() or os.execvp("sleep", ["sleep", "5"])) == "OK":
            n += 1
        print(n)
        """
        assert 4 <= int((await python(box, forked)).text) < 20


HOSTILE = """
mkdir -p hooks .git/hooks .git/objects/info sub/.git/hooks
cat >>.git/config <<'END'
[core]
	fsmonitor = touch {canary}
	hooksPath = hooks
	pager = touch {canary}
	sshCommand = touch {canary}
[filter "evil"]
	clean = touch {canary}
	smudge = touch {canary}
	process = touch {canary}
[diff "evil"]
	textconv = touch {canary}
	command = touch {canary}
[alias]
	status = !touch {canary}
END
cp .git/config sub/.git/config
for h in pre-commit post-checkout post-index-change reference-transaction fsmonitor-watchman; do
  printf '#!/bin/sh\\ntouch {canary}\\n' >hooks/$h
  chmod +x hooks/$h
  cp hooks/$h .git/hooks/
  cp hooks/$h sub/.git/hooks/
done
printf '* filter=evil diff=evil text eol=crlf ident\\n' >.gitattributes
echo ref: /etc/passwd >.git/HEAD
echo /root >.git/objects/info/alternates
ln -s /etc/passwd leak; ln -s ../../../etc abs; mkfifo pipe; truncate -s 7M holes
printf '%s' '$Id$' >plain; touch -- '-x' '--help'
"""


@pytest.mark.claim("a hostile workspace fires nothing on the host")
async def test_a_hostile_workspace_fires_nothing_on_the_host(jail: SandboxBackend, tmp_path: Path) -> None:
    canary = tmp_path / "fired"
    os.chmod(tmp_path, 0o777)  # noqa: S103, PTH101 - so that even the agent's user could leave the canary
    origin = tmp_path / "origin"
    git = ["git", "-C", str(origin), "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["git", "init", "-q", str(origin)], [*git, "commit", "-q", "--allow-empty", "-m", "base"]):
        subprocess.run(words, check=True)  # noqa: ASYNC221
    base = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()  # noqa: ASYNC221
    words = [*git, "pack-objects", "--revs", "--stdout", "-q"]
    pack = subprocess.run(words, input=base.encode(), check=True, capture_output=True).stdout  # noqa: ASYNC221
    workspace = Workspace(tmp_path / "trusted.git")
    await workspace.take_pack(pack, base)
    async with jail.open(SPEC, workspace.checkout(base)) as box:
        outcome = await sh(box, HOSTILE.replace("{canary}", str(canary)))
        assert outcome.exit_code == 0, outcome.text
        sealed = await workspace.seal(base, box.export(), limit=8 * MIB)
        await workspace.keep("refs/salvage/x", sealed, "x")
        assert "plain" in await workspace.diff(base, sealed.tree)
        async with jail.open(SPEC, workspace.checkout_tree(sealed.tree, base)) as fresh:
            assert await fresh.read("plain") == b"$Id$"
            assert (await sh(fresh, "git status --porcelain | wc -l; readlink leak")).text.split()[-1] == "/etc/passwd"
    assert not canary.exists()
    assert {"leak", "abs", "plain", "-x", "holes", "hooks/pre-commit", ".gitattributes"} <= set(sealed.files)
    assert not any(".git/" in name for name in sealed.files)
    assert any(note.startswith("pipe ") for note in sealed.left_out)
    assert any(note.startswith("sub/.git ") for note in sealed.left_out)
    assert b"root:" not in sealed.pack


DYING = """
import asyncio, os, sys
from pathlib import Path
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.owner import owner_of
from sandbox.types import Command, SandboxSpec

async def main():
    kind = {"BwrapBackend": BwrapBackend, "ContainerBackend": ContainerBackend}[sys.argv[1]]
    config = SandboxConfig(cgroup=os.environ.get("AGENT_SWARM_CGROUP", "agent-swarm"))
    async with kind(config, owner_of(Path(sys.argv[2]))).open(SandboxSpec()) as box:
        print(box.name, flush=True)
        await box.run(Command(argv=("sleep", sys.argv[3])))

asyncio.run(main())
"""


@pytest.mark.claim("what a killed daemon leaves is swept")
async def test_what_a_killed_daemon_leaves_is_swept(jail: SandboxBackend, tmp_path: Path, processes_with) -> None:
    tag = mark()
    argv = [sys.executable, "-c", DYING, type(jail).__name__, str(tmp_path), tag]
    daemon = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    name = (await daemon.stdout.readline()).decode().strip()
    for _ in range(200):
        if len(processes_with(f"sleep\0{tag}")) > 0:
            break
        await asyncio.sleep(0.05)
    assert processes_with(f"sleep\0{tag}")
    assert await jail.sweep() == 0
    daemon.kill()
    await daemon.communicate()
    assert await jail.sweep() == 1, name
    assert await jail.sweep() == 0
    for _ in range(100):
        if not processes_with(f"sleep\0{tag}"):
            break
        await asyncio.sleep(0.05)
    assert processes_with(f"sleep\0{tag}") == []


@pytest.mark.claim("the self-test proves them all")
async def test_the_self_test_proves_every_claim(jail: SandboxBackend) -> None:
    test = await jail.self_test()
    assert test.failed == ()
    assert set(MENDS) - {"really gVisor"} <= set(test.proved)
    assert json.loads(test.model_dump_json())["backend"] in {"bwrap", "docker"}


@pytest.mark.claim("agents find their tools")
async def test_the_image_or_root_holds_what_agents_need(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        outcome = await sh(
            box, "for p in git patch ps bash python3 diff sed awk tar; do command -v $p >/dev/null || echo no $p; done"
        )
        assert outcome.text == ""
        versions = await python(box, "import pytest, coverage, sqlite3, ssl; print('ok')")
        assert versions.text == "ok\n"
        identity = await sh(
            box, "id -un; git init -q x && cd x && git commit -q --allow-empty -m 1 2>&1 | head -1; ulimit -c"
        )
        assert identity.text.splitlines()[0] == "agent"
        assert identity.text.splitlines()[-1] == "0"


@pytest.mark.claim("a hostile workspace fires nothing on the host")
async def test_a_tar_that_climbs_stays_inside(jail: SandboxBackend, tmp_path: Path) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("../../../../tmp/climbed", "/usr/climbed"):
            tar.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr"
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("out/climbed"))

    async def stream():
        yield path.read_bytes()

    with pytest.raises(SandboxError):
        async with jail.open(SPEC, stream()):
            pass
    assert not [name for name in ("/usr/climbed", "/tmp/climbed") if os.path.lexists(name)]  # noqa: ASYNC240
