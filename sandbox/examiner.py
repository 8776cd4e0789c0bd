"""The program that examines a sandbox from inside, before anything else runs in one. It is sent there as source.

It runs in whatever Python (3.9 or later) the sandbox has, with the standard library alone, attacks each wall once and
prints one JSON object: which claims hold, and what else there is to tell. It imports nothing of this project. Names of
claims are those of `sandbox.rules.claims`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOWHERE, NOWHERE6 = "192.0.2.1", "2001:db8::1"  # RFC 5737, RFC 3849: addresses of nobody
# Numbers of system calls, x86_64 and aarch64; those after 423 are the same everywhere.
NUMBERS = {
    "x86_64": {"socket": 41, "ptrace": 101, "keyctl": 250, "add_key": 248, "clock_settime": 227, "adjtimex": 159},
    "aarch64": {"socket": 198, "ptrace": 117, "keyctl": 219, "add_key": 217, "clock_settime": 112, "adjtimex": 171},
}.get(os.uname().machine, {})
IO_URING_SETUP, LANDLOCK_CREATE_RULESET = 425, 444
NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
INVALID = ctypes.create_string_buffer(b"\xff" * 16)  # as a time: where no filter answers first, EINVAL and no harm
INT_0X80 = bytes.fromhex("b814000000cd80c3")  # getpid the 32-bit way, then return
libc = ctypes.CDLL(None, use_errno=True)


def call(name: object, *arguments: Any) -> tuple[int, int]:
    """The result and errno of a system call; a call that this machine lacks gives ENOSYS."""
    number = name if isinstance(name, int) else NUMBERS.get(str(name), -1)
    ctypes.set_errno(0)
    return libc.syscall(ctypes.c_long(number), *arguments), ctypes.get_errno()


def refused(act: Callable[..., object], *arguments: Any) -> bool:
    """Whether the system said no."""
    try:
        act(*arguments)
    except OSError:
        return True
    return False


def child(check: Callable[..., object], *arguments: Any) -> int:
    """How a child ended that does one thing: its status as of waitpid, 0 where the check held."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        try:
            os._exit(0 if check(*arguments) else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1]


def status(name: str) -> str:
    """One field of our own status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((line.split()[1] for line in lines if line.startswith(name + ":")), "")


def connects(family: int, address: Any) -> None:
    """Raises OSError where no connection comes about."""
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.settimeout(1)
        tried.connect(address)


def sends(family: int, address: Any) -> None:
    """Raises OSError where no datagram leaves."""
    with socket.socket(family, socket.SOCK_DGRAM) as tried:
        if family == socket.AF_INET:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        tried.sendto(b"x", address)


def resolves() -> bool:
    """Whether a name of the world is told an address."""
    try:
        socket.getaddrinfo("probe.example.org", 80)
    except OSError:
        return False
    return True


def family_refused(number: int) -> bool:
    """Whether no socket of that family can be made, of no kind."""
    return all(refused(socket.socket, number, kind) for kind in (1, 2, 3, 5))


def devices() -> list[str]:
    """The network devices in sight."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return [line.split(":")[0].strip() for line in lines if ":" in line]


def filled(place: str, most: int) -> int:
    """How many bytes go into one place before it is full, at most ``most``."""
    size, names = 0, [Path(place, f".probe{number}") for number in range(4)]
    try:
        for name in names:
            with name.open("wb", buffering=0) as file:
                while size < most:
                    size += file.write(bytes(65536))
    except OSError:
        pass
    for name in names:
        name.unlink(missing_ok=True)
    return size


def files_made(place: str, most: int) -> int:
    """How many empty files a place holds, at most ``most``."""
    folder, count = Path(place, ".probe"), 0
    folder.mkdir()
    try:
        while count < most:
            os.mknod(folder / str(count), stat.S_IFREG | 0o600)
            count += 1
    except OSError:
        pass
    for number in range(count):
        (folder / str(number)).unlink()
    folder.rmdir()
    return count


def grows_to(place: str, size: int) -> bool:
    """Whether one file may be that long, holes included."""
    name = Path(place, ".probe")
    with name.open("wb") as file:
        grown = not refused(file.truncate, size)
    name.unlink()
    return grown


def forked(most: int) -> int:
    """How many children there may be at a time, at most ``most``."""
    children: list[int] = []
    waiting, done = os.pipe()
    try:
        while len(children) < most:
            pid = os.fork()
            if pid == 0:
                os.close(done)
                os.read(waiting, 1)
                os._exit(0)
            children.append(pid)
    except OSError:
        pass
    os.close(done)
    for pid in children:
        os.waitpid(pid, 0)
    return len(children)


def opened(most: int) -> int:
    """How many files one process may hold open, at most ``most``."""
    held: list[int] = []
    try:
        while len(held) < most:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for descriptor in held:
        os.close(descriptor)
    return len(held)


def strangers() -> list[int]:
    """The other processes in sight."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if int(path.name) != os.getpid()]


def out_of_reach(pid: int) -> bool:
    """Whether nothing of a process can be read, and no descriptor of it be had."""
    place = Path(f"/proc/{pid}")
    return (
        all(refused((place / name).read_bytes) for name in ("mem", "environ"))
        and all(refused(os.listdir, place / name) for name in ("fd", "map_files"))
        and all(refused(os.readlink, place / name) for name in ("exe", "cwd", "root"))
    )


def writable_beside(places: list[str]) -> list[str]:
    """Folders outside ``places`` in which a file could be made: every mount, and the two topmost levels."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    # Message queues belong to our own IPC namespace and count as memory.
    places = places + [line.split()[4] for line in mounts if " - mqueue " in line]
    tried = {line.split()[4].encode().decode("unicode_escape") for line in mounts} | {"/", "/proc/sys", "/proc/1"}
    for top in Path("/").iterdir():
        tried.add(str(top))
        if top.name not in {"proc", "sys"} and top.is_dir() and os.access(top, os.R_OK):
            tried.update(str(path) for path in top.iterdir())
    beside = [path for path in tried if not any(path == one or path.startswith(one + "/") for one in places)]
    return [path for path in sorted(beside) if may_make(Path(path))]


def may_make(folder: Path) -> bool:
    """Whether a file can be made in a folder; it is taken away again."""
    try:
        (folder / ".probe").touch(exist_ok=False)
        (folder / ".probe").unlink()
    except OSError:
        return False
    return True


def changeable_files() -> list[str]:
    """Files of the system that could be written."""
    names = ("/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.cache", "/bin/sh", sys.executable)
    return [name for name in names if not refused(lambda path: path.open("r+b").close(), Path(name))]


def foreign_call_killed() -> bool:
    """Whether a 32-bit call kills the one that makes it; only x86 has such calls."""
    if os.uname().machine != "x86_64":
        return True

    def make() -> bool:
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(INT_0X80)
        return bool(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())

    ended = child(make)
    return os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGSYS


def landlock_abi() -> int:
    """Which Landlock this kernel has; 0 for none."""
    return max(0, call(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))[0])


def landlocked(abi: int) -> bool:
    """Whether we are under Landlock: our own name may be written by its owner, so only Landlock refuses that."""
    return abi > 0 and refused(Path("/proc/self/comm").write_text, "x")


def signals_refused(abi: int) -> bool:
    """Whether processes that we did not start cannot be signalled; before ABI 6 the kernel cannot keep that."""
    return abi < 6 or all(refused(os.kill, pid, 0) for pid in strangers())


def descriptors() -> list[str]:
    """What the descriptors that we were given lead to, if it is neither a pipe nor nothing."""
    found = []
    for number in range(256):
        if not refused(os.fstat, number):
            leads = str(Path(f"/proc/self/fd/{number}").readlink())
            if number > 2 or not leads.startswith(("pipe:", "/dev/null")):
                found.append(leads)
    return found


def gvisor() -> bool:
    """Whether the kernel is gVisor's: it says so in its log, which a host's kernel would not show us."""
    log = ctypes.create_string_buffer(65536)
    return libc.klogctl(3, log, 65535) > 0 and b"gVisor" in log.value


def walls(given: dict[str, Any], held: list[str], abi: int) -> dict[str, bool]:
    """Claims about what is out of reach."""
    eperm = (-1, errno.EPERM)
    return {
        "no capability": all(int(status(n), 16) == 0 for n in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")),
        "no new privileges": status("NoNewPrivs") == "1",
        "system calls filtered": status("Seccomp") == "2",
        "no foreign system call": foreign_call_killed(),
        "unprivileged user": 0 not in (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups()),
        "no network device but lo": devices() == ["lo"],
        "no route out": refused(connects, socket.AF_INET, (NOWHERE, 80))
        and refused(connects, socket.AF_INET6, (NOWHERE6, 80)),
        "no UDP out": refused(sends, socket.AF_INET, (NOWHERE, 53))
        and refused(sends, socket.AF_INET, ("255.255.255.255", 53))
        and refused(sends, socket.AF_INET6, (NOWHERE6, 53)),
        "no resolver": child(lambda: not resolves()) == 0,
        "no socket family but unix and inet": all(map(family_refused, (n for n in range(46) if n not in (1, 2, 10))))
        and call("socket", ctypes.c_long((1 << 32) + 40), 1, 0)[0] == -1,
        "no raw socket": refused(socket.socket, 2, 3, 255) and refused(socket.socket, 10, 3, 58),
        "no io_uring": call(IO_URING_SETUP, 1, ctypes.create_string_buffer(256)) == eperm,
        "no ptrace": call("ptrace", 16, 1 << 30, 0, 0) == eperm,  # of nobody: ESRCH where it is allowed
        "no keyring": call("keyctl", 0, -3, 1) == eperm
        and call("add_key", b"user", b"probe", b"x", ctypes.c_size_t(1), -3) == eperm,
        "no change of clocks": call("clock_settime", 0, INVALID) == eperm
        and call("adjtimex", ctypes.create_string_buffer(256)) == eperm,
        "no typing into a terminal": all(_ioctl_errno(number) == errno.EPERM for number in (TIOCSTI, TIOCLINUX)),
        "no new namespace": all(child(_unshare_refused, flag) == 0 for flag in NAMESPACES),
        "read-only system": not writable_beside(given["places"]) and not changeable_files(),
        "no device file": refused(os.mknod, given["places"][0] + "/.probe", stat.S_IFCHR, os.makedev(1, 1)),
        "no process of the host in sight": len(strangers()) < 9,
        "no variable of the daemon": not [name for name in os.environ if name not in given["names"]],
        "no open file of the daemon": not held,
        "supervisor out of reach": all(map(out_of_reach, strangers())) and signals_refused(abi),
    }


def _unshare_refused(flag: int) -> bool:
    return int(libc.unshare(flag)) == -1


def _ioctl_errno(request: int) -> int | None:
    try:
        fcntl.ioctl(0, request, b"x")
    except OSError as error:
        return error.errno
    return None


def limits(given: dict[str, Any]) -> dict[str, bool]:
    """Claims about how much there is."""
    work, home, disk = given["places"][0], given["places"][1], given["disk"]
    return {
        "disk limited": all(disk // 2 < filled(place, 4 * disk) <= disk for place in (work, home)),
        "files limited": 0 < files_made(work, 2 * given["inodes"]) <= given["inodes"],
        "file size limited": not grows_to(work, 1 << 40) and not grows_to(work, given["file_size"] + (1 << 20)),
        "processes limited": 0 < forked(4 * given["processes"]) < given["processes"],
        "open files limited": opened(2 * given["open_files"]) < given["open_files"],
        "no core dump": resource.getrlimit(resource.RLIMIT_CORE) == (0, 0),
    }


def main() -> None:
    """Examine, and tell."""
    held, given, abi = descriptors(), json.loads(sys.argv[1]), landlock_abi()
    claims = walls(given, held, abi)
    if abi:
        claims["files under Landlock"] = landlocked(abi)
    claims.update(limits(given))
    if given["gvisor"]:
        claims["really gVisor"] = gvisor()
    detail = {"kernel": os.uname().release, "landlock": f"ABI {abi}" if abi else "not in this kernel"}
    sys.stdout.write(json.dumps({"claims": claims, "detail": detail}) + "\n")


if __name__ == "__main__":
    main()
