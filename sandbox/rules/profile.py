"""Turns a spec into one locked-down profile, in which everything that is locked stands. Pure: every backend renders it.

No network, no capability, no new privileges and a read-only root are not choices; they are in it to be told and tested.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from sandbox.rules.calls import RULES, Rule
from sandbox.types import MIB, Command, Frozen, Network, SandboxSpec

WORK = "/work"
HOME = "/home/agent"
TMP = "/tmp"  # noqa: S108 - the sandbox's own
SHM = "/dev/shm"  # noqa: S108 - the sandbox's own
# High enough to be nobody's: system and login accounts end at 65533, ranges for user namespaces start at 100000.
AGENT_UID = 70_000
AGENT_UIDS = 1_000
KEEPER_UID = 71_000  # holds a container open, so that a command can kill all of the agent's processes but not it
CPU_PERIOD = 100_000
_KEEP_OPEN = 1024
_TMP, _SHM = 64 * MIB, 16 * MIB

ENVIRONMENT = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": TMP,
        "PYTHONDONTWRITEBYTECODE": "1",
        # Nobody is there to turn a page or to answer.
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INPUT": "1",
    }
)
NAMESPACES = ("user", "mount", "pid", "net", "ipc", "uts", "cgroup")
# What of the kernel is readable by everyone and no program's business; those that a kernel lacks are left out.
MASKED = (
    *("/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kallsyms", "/proc/kmsg", "/proc/kpagecgroup"),
    *("/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/modules", "/proc/sched_debug"),
    *("/proc/slabinfo", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/vmallocinfo", "/proc/interrupts"),
)


class Folder(Frozen):
    """A writable place. It lies in memory, without device files and set-user-id programs, and counts as memory."""

    path: str
    size: int
    inodes: int
    mode: int
    executable: bool = True


class Landlock(Frozen):
    """The second layer on files, which the supervisor puts on each command: what is not named here is refused.

    Everything below ``read`` may be read and executed; below ``write`` all is allowed but making device files; below
    ``write_data`` all but that and executing; ``devices`` may be read, written and asked by ioctl. ``scoped`` (Landlock
    ABI 6) keeps signals and abstract unix sockets inside. Paths that are absent are left out. See landlock(7).
    """

    read: tuple[str, ...] = ("/",)
    write: tuple[str, ...] = (WORK, HOME, TMP)
    write_data: tuple[str, ...] = (SHM,)
    devices: tuple[str, ...] = (
        *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
        *("/dev/tty", "/dev/ptmx", "/dev/pts"),
    )
    scoped: bool = True


class Profile(Frozen):
    """What one sandbox may do. Bytes and seconds."""

    network: Network
    memory: int
    processes: int
    cpus: float
    disk: int
    output: int
    wall: float
    environment: tuple[tuple[str, str], ...]
    folders: tuple[Folder, ...]
    file_size: int
    open_files: int = _KEEP_OPEN
    core: Literal[0] = 0
    swap: Literal[0] = 0
    capabilities: tuple[()] = ()
    no_new_privileges: Literal[True] = True
    read_only_root: Literal[True] = True
    calls: tuple[Rule, ...] = RULES
    landlock: Landlock = Landlock()
    namespaces: tuple[str, ...] = NAMESPACES
    masked: tuple[str, ...] = MASKED
    user: str = "agent"
    hostname: str = "sandbox"

    def folder(self, path: str) -> Folder:
        """One of the writable places. Raises KeyError."""
        return {folder.path: folder for folder in self.folders}[path]

    @property
    def inodes(self) -> int:
        """How many files the workspace may hold; each costs the kernel memory even when empty."""
        return self.folder(WORK).inodes

    @property
    def cpu_quota(self) -> int:
        """Microseconds of CPU time per period of ``CPU_PERIOD``."""
        return max(1_000, int(self.cpus * CPU_PERIOD))

    @property
    def export_limit(self) -> int:
        """Bytes of a tar stream of the whole workspace: contents plus headers and padding of every file."""
        return self.disk + self.inodes * 2048 + MIB


def profile_of(spec: SandboxSpec) -> Profile:
    """The locked-down settings of a spec. Home has the workspace's quota: set-up phases and agents install there."""
    limits = spec.limits
    return Profile(
        network=spec.network,
        memory=limits.memory,
        processes=limits.processes,
        cpus=limits.cpus,
        disk=limits.disk,
        output=limits.output,
        wall=limits.wall,
        environment=tuple((dict(ENVIRONMENT) | spec.env).items()),
        folders=(
            Folder(path=WORK, size=limits.disk, inodes=_inodes(limits.disk), mode=0o755),
            Folder(path=HOME, size=limits.disk, inodes=_inodes(limits.disk), mode=0o700),
            Folder(path=TMP, size=max(_TMP, limits.disk // 2), inodes=_inodes(limits.disk), mode=0o1777),
            Folder(path=SHM, size=_SHM, inodes=_inodes(_SHM), mode=0o1777, executable=False),
        ),
        file_size=limits.disk,
    )


def _inodes(size: int) -> int:
    return max(16_384, size // 2048)


def time_limit(profile: Profile, command: Command) -> float:
    """Seconds a command may take."""
    return min(command.timeout or profile.wall, profile.wall)


def rlimits(profile: Profile) -> dict[str, int]:
    """Limits of every process: bytes of one file, open files, core dumps. Docker's names; `ulimit` has letters."""
    return {"fsize": profile.file_size, "nofile": profile.open_files, "core": profile.core}
