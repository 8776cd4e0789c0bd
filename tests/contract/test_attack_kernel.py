"""Attacks on the kernel's edges, from inside every backend that the kernel enforces.

No call here could do harm where no wall stood: times are impossible ones, keys and mounts are nobody's.
"""

from __future__ import annotations

import pytest

from sandbox.base import SandboxBackend
from sandbox.types import MIB, Limits, SandboxSpec
from tests.contract.inside import SPEC, answers, mark, python, sh, usable


@pytest.mark.claim("no socket family but unix and inet")
async def test_of_all_socket_families_unix_and_inet_alone_can_be_had(jail: SandboxBackend) -> None:
    """AF_VSOCK reaches the hypervisor from any network namespace, as codex found (its filter denies it always)."""
    program = """
    for family in range(46):
        for kind in (1, 2, 3, 4, 5, 6, 10):
            for protocol in (0, 1, 3, 15, 16):
                try:
                    socket.socket(family, kind, protocol).close()
                    print(family, kind)
                except OSError:
                    pass
        for kind in (1, 2, 5):
            try:
                for one in socket.socketpair(family, kind):
                    one.close()
                print(family, "pair")
            except OSError:
                pass
    number = 41 if X86 else 198
    for family in (16, 17, 38, 40, 31, 44):
        for high in (1 << 32, -(1 << 32)):
            print("high", call(number, ctypes.c_long(high + family), 1, 0))
    """
    async with jail.open(SPEC) as box:
        outcome = await python(box, program)
        assert outcome.exit_code == 0, outcome.text
        lines = outcome.text.splitlines()
        assert {line.split()[0] for line in lines if line[0].isdigit()} <= {"1", "2", "10"}
        assert {line for line in lines if line.startswith("high")} == {"high EAFNOSUPPORT"}
        assert ("2 1" in lines, "2 2" in lines, "1 1" in lines) == (True, True, True)


@pytest.mark.claim("no raw socket")
async def test_raw_sockets_and_rare_protocols_are_refused(jail: SandboxBackend) -> None:
    """SCTP, DCCP, UDP-Lite, L2TP and MPTCP would have the kernel load their modules for anyone who asks."""
    program = """
    for family in (2, 10):
        for kind, protocol in ((3, 1), (3, 6), (3, 17), (3, 58), (3, 255), (10, 3)):
            print("raw", family, kind, protocol, act(lambda: socket.socket(family, kind, protocol)))
        for kind, protocol in ((1, 132), (5, 132), (6, 33), (2, 136), (2, 115), (1, 262)):
            print("rare", family, kind, protocol, act(lambda: socket.socket(family, kind, protocol)))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert len(said) == 24
        assert "OK" not in said.values(), said
        assert {value for name, value in said.items() if name.startswith("rare")} == {"EPROTONOSUPPORT"}


@pytest.mark.claim("no io_uring")
async def test_io_uring_makes_no_socket_behind_the_filters_back(jail: SandboxBackend) -> None:
    program = """
    for name, number in (("setup", 425), ("enter", 426), ("register", 427)):
        print(name, call(number, 1, ctypes.create_string_buffer(256), 0, 0, 0, 0))
    """
    async with jail.open(SPEC) as box:
        assert set((await answers(box, program)).values()) == {"EPERM"}


@pytest.mark.claim("no typing into a terminal")
async def test_nothing_can_be_typed_into_a_terminal(jail: SandboxBackend) -> None:
    """TIOCSTI: CVE-2017-5226 (bubblewrap), CVE-2019-10063 (the same with high bits set); TIOCLINUX: CVE-2023-28100."""
    program = """
    import fcntl, pty
    lead, follow = pty.openpty()
    for name, request in (("sti", 0x5412), ("linux", 0x541C), ("line discipline", 0x5423)):
        for fd in (0, 1, lead, follow):
            for high in (0, 1 << 32, 0x7fff << 32):
                print(name, fd, high, call(16 if X86 else 29, fd, ctypes.c_ulong(request + high), b"x"))
    print("pty", act(lambda: os.write(lead, b"works")))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert said.pop("pty") == "OK"
        assert set(said.values()) == {"EPERM"}, said


@pytest.mark.claim("no new namespace")
async def test_no_namespace_of_any_kind_can_be_made_or_joined(jail: SandboxBackend) -> None:
    """A new user namespace brings all capabilities and with them most of the kernel's faults, CVE-2022-0492's too."""
    program = """
    kinds = {"time": 0x80, "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000,
             "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
    for name, flag in kinds.items():
        print("unshare", name, call(272 if X86 else 97, flag))
        print("unshare with user", name, call(272 if X86 else 97, flag | 0x10000000))
        if name != "time":
            for high in (0, 1 << 33):
                arguments = (ctypes.c_long(high | flag | 17), None, None, None, None)
                print("clone", high, name, call(56 if X86 else 220, *arguments))
        arguments = (ctypes.c_uint64 * 11)(flag, 0, 0, 0, 17)
        print("clone3", name, call(435, arguments, 88))
    for path in sorted(Path("/proc/self/ns").iterdir()):
        fd = os.open(path, os.O_RDONLY)
        print("setns", path.name, call(308 if X86 else 268, fd, 0))
    print("setns pidfd", call(308 if X86 else 268, os.pidfd_open(os.getpid()), 0x10000000))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert {value for name, value in said.items() if name.startswith("clone3")} == {"ENOSYS"}
        assert {value for name, value in said.items() if not name.startswith("clone3")} == {"EPERM"}, said
        assert (
            "inside"
            not in (await sh(box, "unshare -Urm echo inside; unshare -Ur echo inside; unshare -n echo inside")).text
        )


@pytest.mark.claim("no keyring")
async def test_the_kernels_keyrings_are_out_of_reach(jail: SandboxBackend) -> None:
    program = """
    key = ctypes.c_int(-3)
    print("keyctl", call(250 if X86 else 219, 0, -3, 1))
    print("join", call(250 if X86 else 219, 1, None))
    print("add", call(248 if X86 else 217, b"user", b"swarm", b"x", ctypes.c_size_t(1), key))
    print("request", call(249 if X86 else 218, b"user", b"swarm", None, key))
    """
    async with jail.open(SPEC) as box:
        assert set((await answers(box, program)).values()) == {"EPERM"}
        assert (await sh(box, "cat /proc/keys 2>/dev/null | wc -l")).text.strip() == "0"


@pytest.mark.claim("no change of clocks")
async def test_the_hosts_clocks_cannot_be_set(jail: SandboxBackend) -> None:
    """The times are impossible ones: where nothing refused the call itself it would be EINVAL, not EPERM."""
    program = """
    wrong = ctypes.create_string_buffer(b"\\xff" * 64)
    modes = ctypes.create_string_buffer(512)
    print("clock_settime", call(227 if X86 else 112, 0, wrong))
    print("settimeofday", call(164 if X86 else 170, wrong, None))
    print("adjtimex", call(159 if X86 else 171, modes))
    print("clock_adjtime", call(305 if X86 else 266, 0, modes))
    """
    async with jail.open(SPEC) as box:
        assert set((await answers(box, program)).values()) == {"EPERM"}


@pytest.mark.claim("no ptrace")
async def test_no_process_can_be_traced_read_or_robbed(jail: SandboxBackend) -> None:
    """A traced process outlives an engine's remove: the engine said gone, the process stayed for good."""
    program = """
    child = os.fork()
    if child == 0:
        import time
        time.sleep(10)
        os._exit(0)
    fd = os.pidfd_open(child)
    for pid in (child, os.getppid(), 1):
        print("attach", pid, call(101 if X86 else 117, 16, pid, 0, 0))
        print("seize", pid, call(101 if X86 else 117, 0x4206, pid, 0, 0))
        print("readv", pid, call(310 if X86 else 270, pid, None, 0, None, 0, 0))
        print("writev", pid, call(311 if X86 else 271, pid, None, 0, None, 0, 0))
        print("kcmp", pid, call(312 if X86 else 272, pid, os.getpid(), 0, 0, 0))
    print("traceme", call(101 if X86 else 117, 0, 0, 0, 0))
    print("getfd", call(438, fd, 0, 0))
    print("madvise", call(440, fd, None, 0, 21, 0))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert set(said.values()) == {"EPERM"}, said


@pytest.mark.claim("supervisor out of reach")
async def test_what_keeps_the_sandbox_can_be_neither_read_nor_robbed(jail: SandboxBackend) -> None:
    program = """
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        if pid == os.getpid():
            continue
        for name in ("mem", "environ", "maps", "auxv", "stack", "syscall", "io"):
            print(pid, name, act(lambda: (path / name).open("rb").read(1)))
        for name in ("fd", "map_files", "ns"):
            print(pid, name, act(lambda: [os.readlink(path / name / one) for one in os.listdir(path / name)]))
        for name in ("exe", "cwd", "root"):
            print(pid, name, act(lambda: os.readlink(path / name)))
        print(pid, "root/etc", act(lambda: os.listdir(path / "root/etc")))
        print(pid, "write mem", act(lambda: (path / "mem").open("wb")))
        for name in ("oom_score_adj", "comm", "timerslack_ns", "coredump_filter", "loginuid"):
            print(pid, "write", name, act(lambda: (path / name).write_text("0")))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert len(said) > 10
        assert "OK" not in said.values(), {name for name, value in said.items() if value == "OK"}
        await usable(box)


@pytest.mark.claim("system calls filtered")
async def test_calls_into_the_kernels_inner_workings_are_refused(jail: SandboxBackend) -> None:
    program = """
    x86 = dict(userfaultfd=323, bpf=321, perf_event_open=298, memfd_secret=447, open_by_handle_at=304, kexec_load=246,
               name_to_handle_at=303, init_module=175, finit_module=313, delete_module=176, swapon=167, swapoff=168,
               syslog=103, acct=163, quotactl=179, fanotify_init=300, mbind=237, move_pages=279, modify_ldt=154,
               set_mempolicy=238, migrate_pages=256, vmsplice=278, iopl=172, ioperm=173, vhangup=153, chroot=161,
               pivot_root=155, mount=165, umount2=166, sethostname=170, setdomainname=171, personality=135)
    arm = dict(userfaultfd=282, bpf=280, perf_event_open=241, memfd_secret=447, open_by_handle_at=265, kexec_load=104,
               name_to_handle_at=264, init_module=105, finit_module=273, delete_module=106, swapon=224, swapoff=225,
               syslog=116, acct=89, quotactl=60, fanotify_init=262, mbind=235, move_pages=239,
               set_mempolicy=237, migrate_pages=238, vmsplice=75, vhangup=58, chroot=51,
               pivot_root=41, mount=40, umount2=39, sethostname=161, setdomainname=162, personality=92)
    both = dict(open_tree=428, move_mount=429, fsopen=430, fsconfig=431, fsmount=432, fspick=433, mount_setattr=442)
    for name, number in {**(x86 if X86 else arm), **both}.items():
        print(name, call(number, 0, 0, 0, 0, 0, 0))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert len(said) > 30
        assert set(said.values()) == {"EPERM"}, {n: v for n, v in said.items() if v != "EPERM"}


@pytest.mark.claim("no device file")
async def test_there_are_harmless_devices_alone_and_none_can_be_made(jail: SandboxBackend) -> None:
    """Device 0:0 would be a whiteout, which hides files from whoever lays a layer over this one."""
    program = """
    import stat
    for place in ("/work", "/tmp", "/home/agent", "/dev/shm", "/dev"):
        for kind in (stat.S_IFCHR, stat.S_IFBLK):
            for number in ((0, 0), (1, 1), (1, 5), (8, 0), (253, 0), (10, 229)):
                print(place, kind, number, act(lambda: os.mknod(place + "/device", kind | 0o666, os.makedev(*number))))
    print("fifo", act(lambda: os.mkfifo("/work/fifo")))
    """
    look = """
    import stat
    for folder, _, names in os.walk("/dev"):
        for name in names:
            there = os.lstat(os.path.join(folder, name))
            if stat.S_ISBLK(there.st_mode) or stat.S_ISCHR(there.st_mode):
                print(stat.S_ISBLK(there.st_mode), os.major(there.st_rdev), os.minor(there.st_rdev))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert said.pop("fifo") == "OK"
        assert set(said.values()) <= {"EPERM", "EACCES", "EROFS", "EEXIST"}, said
        seen = {tuple(line.split()) for line in (await python(box, look)).text.splitlines()}
        harmless = {("False", "1", minor) for minor in "35789"} | {("False", "5", minor) for minor in "012"}
        assert seen <= harmless | {("False", "136", str(minor)) for minor in range(8)}
        outcome = await sh(
            box, "for d in mem kmem port kvm fuse vsock userfaultfd net/tun loop0 vda sda; do cat /dev/$d; done"
        )
        assert outcome.text.count("No such file") == 11, outcome.text


@pytest.mark.claim("unprivileged user")
async def test_commands_run_as_the_agent_whatever_they_say_and_ask(jail: SandboxBackend) -> None:
    """Exec as another user is refused here, not offered: nothing inside is anybody else's."""
    program = """
    first = os.getresuid() + os.getresgid()
    for name, work in {
        "setuid": lambda: os.setuid(0),
        "setreuid": lambda: os.setreuid(0, 0),
        "setresuid": lambda: os.setresuid(0, 0, 0),
        "seteuid": lambda: os.seteuid(65534),
        "setgid": lambda: os.setgid(0),
        "setresgid": lambda: os.setresgid(0, 0, 0),
        "setgroups": lambda: os.setgroups([0]),
        "initgroups": lambda: os.initgroups("root", 0),
        "chown": lambda: os.chown("/work", 0, 0),
        "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
        "realtime": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        "oom": lambda: Path("/proc/self/oom_score_adj").write_text("-1000"),
    }.items():
        print(name, act(work))
    print("same", os.getresuid() + os.getresgid() == first and 0 not in first)
    """
    async with jail.open(SPEC.model_copy(update={"env": {"USER": "root", "LOGNAME": "root"}})) as box:
        said = await answers(box, program)
        assert said.pop("same") == "True"
        assert "OK" not in said.values(), said
        who = await sh(box, "id -u; id -un; export USER=nobody HOME=/root; id -un; whoami")
        lines = who.text.split()
        assert lines[0] not in {"0", "1000"}
        assert lines[1:] == ["agent"] * 3
        asked = "for how in 'su -c id' 'su root -c id' 'sudo -n id' 'setpriv --reuid=0 id' 'runuser -u root id' "
        asked += "'chroot / id' 'newgrp root' 'pkexec id'; do timeout 3 $how </dev/null 2>&1; done"
        assert "uid=0" not in (await sh(box, asked)).text


@pytest.mark.claim("no new privileges")
async def test_set_user_id_programs_give_nothing(jail: SandboxBackend) -> None:
    program = """
    for top in ("/usr", "/bin", "/sbin", "/lib", "/opt", "/work", "/home", "/tmp", "/etc"):
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    there = os.lstat(path)
                except OSError:
                    continue
                if there.st_mode & 0o170000 == 0o100000 and there.st_mode & 0o6000:
                    print(path, "nosuid" if os.statvfs(path).f_flag & os.ST_NOSUID else "bites")
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert "bites" not in said.values(), said
        outcome = await sh(
            box, "cp /usr/bin/id x; chmod 6755 x; ./x -u; id -u; cp x /tmp/x; chmod 6755 /tmp/x; /tmp/x -u"
        )
        assert len(set(outcome.text.split())) == 1, outcome.text
        assert "0" not in outcome.text.split()


@pytest.mark.claim("no core dump")
async def test_a_crash_leaves_no_core_and_the_hosts_collector_is_out_of_reach(jail: SandboxBackend) -> None:
    program = """
    import resource
    for name in ("RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NOFILE"):
        try:
            resource.setrlimit(getattr(resource, name), (1 << 40, 1 << 40))
            print(name, "OK")
        except (OSError, ValueError):
            print(name, "refused")
    for path in ("core_pattern", "core_pipe_limit", "modprobe", "hotplug", "sysrq", "randomize_va_space"):
        print(path, act(lambda: Path("/proc/sys/kernel", path).write_text("|/work/evil")))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        assert "OK" not in said.values(), said
        crashed = await sh(box, "sh -c 'kill -SEGV $$'; sh -c 'kill -ABRT $$'; ls -A | grep -c core")
        assert crashed.text.split()[-1] == "0", crashed.text


@pytest.mark.claim("files under Landlock")
async def test_files_that_their_owner_may_write_are_refused_by_the_second_layer(jail: SandboxBackend) -> None:
    program = """
    if call(444, None, ctypes.c_size_t(0), ctypes.c_uint(1)) != "OK":
        print("kernel has none")
    for name in ("comm", "oom_score_adj", "coredump_filter", "timerslack_ns"):
        path = "/proc/self/" + name
        print(path, act(lambda: Path(path).write_text("500")))
    for path in ("/work/x", "/tmp/x", "/home/agent/x", "/dev/shm/x", "/dev/null"):
        print(path, act(lambda: Path(path).write_text("x")))
    for folder in ("/work", "/dev/shm"):
        Path(folder, "run").write_bytes(Path("/bin/true").read_bytes())
        os.chmod(folder + "/run", 0o755)
        print("run", folder, act(lambda: os.posix_spawn(folder + "/run", ["run"], {})))
    """
    async with jail.open(SPEC) as box:
        said = await answers(box, program)
        if "kernel has" in said:
            pytest.skip("this kernel has no Landlock")
        assert (said.pop("run /work"), said.pop("run /dev/shm")) == ("OK", "EACCES")
        assert {value for path, value in said.items() if path.startswith("/proc")} == {"EACCES"}, said
        assert {value for path, value in said.items() if not path.startswith("/proc")} == {"OK"}, said


@pytest.mark.claim("supervisor out of reach")
async def test_signals_meet_the_commands_own_processes_alone(jail: SandboxBackend, processes_with) -> None:
    """Where the kernel cannot scope signals (Landlock before ABI 6), one that kills its keeper only hurts itself."""
    tag = mark()
    async with jail.open(SPEC) as box:
        await box.write("kept", b"1")
        for attack in ("kill -9 $PPID; kill -9 1; echo on", "kill -STOP $PPID 1; echo on", "kill -9 -1; echo on"):
            await sh(box, f"sleep {tag} & {attack}", timeout=3)
            assert processes_with(tag) == []
            await usable(box)
            assert await box.read("kept") == b"1"


@pytest.mark.claim("agents find their tools")
async def test_what_ordinary_programs_need_of_the_kernel_is_there(jail: SandboxBackend) -> None:
    """A filter that breaks node, the JVM or a compiler would be turned off by the first who meets it."""
    program = """
    import asyncio, mmap, multiprocessing, pty, sqlite3, subprocess, tempfile, threading
    with multiprocessing.Pool(2) as pool:
        print("pool", pool.map(abs, [-1, -2]) == [1, 2])
    print("memfd", os.write(os.memfd_create("x"), b"x") == 1)
    print("pidfd", os.pidfd_open(os.getpid()) > 0)
    print("pty", len(pty.openpty()) == 2)
    print("shared", mmap.mmap(-1, 1 << 20)[:1] == b"\\0")
    print("lock", multiprocessing.Lock().acquire())
    print("unix", len(socket.socketpair()) == 2)
    print("sqlite", sqlite3.connect("/work/db").execute("pragma journal_mode=wal").fetchone() == ("wal",))
    print("temporary", len(tempfile.NamedTemporaryFile().name) > 0)
    os.mkfifo("/work/fifo")
    print("fifo", Path("/work/fifo").is_fifo())
    async def main():
        child = await asyncio.create_subprocess_exec("echo", "x", stdout=-1)
        return (await child.communicate())[0]
    print("asyncio", asyncio.run(main()) == b"x\\n")
    done = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start(); thread.join()
    print("thread", done == [1])
    """
    tools = {
        "node": 'node -e \'new (require("worker_threads").Worker)("process.exit(0)", {eval: true})\'',
        "javac": "printf 'class A { public static void main(String[] a) { System.out.println(1); } }' >A.java; "
        "java -Xmx64m A.java",
        "gcc": "printf 'int main(void) { return 0; }' >a.c; gcc -o a a.c && ./a",
        "git": "git init -q g && cd g && git -c user.name=x -c user.email=x commit -q --allow-empty -m x && git gc -q",
    }
    limits = Limits(memory=1024 * MIB, processes=128, disk=64 * MIB, wall=60)
    async with jail.open(SandboxSpec(limits=limits)) as box:
        said = await answers(box, program)
        assert set(said.values()) == {"True"}, said
        for tool, script in tools.items():
            if (await sh(box, f"command -v {tool}")).exit_code == 0:
                outcome = await sh(box, script, timeout=50)
                assert outcome.exit_code == 0, (tool, outcome.text)
