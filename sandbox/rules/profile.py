"""Turns a spec into one locked-down profile, and renders it for each backend. Pure: both backends ask the same data.

The seccomp rules allow by default and deny what reaches past a sandbox: other socket families (AF_VSOCK goes to the
hypervisor), io_uring (sockets without a socket call), ptrace, keys, mounts, namespaces. They are stated once, here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from sandbox.types import MIB, Command, SandboxSpec

WORK = "/work"
HOME = "/home/agent"
# High enough to be nobody's: system and login accounts end at 65533, ranges for user namespaces start at 100000.
AGENT_UID = 70_000
AGENT_UIDS = 1_000
KEEPER_UID = 71_000  # holds a container open, so that a command can kill all of the agent's processes but not it
CPU_PERIOD = 100_000
_KEEP_OPEN = 1024

ENVIRONMENT = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own tmpfs
        "PYTHONDONTWRITEBYTECODE": "1",
    }
)

Compare = Literal["EQ", "GE", "MASKED_EQ"]


@dataclass(frozen=True)
class Condition:
    """On one argument of a system call; ``mask`` is for MASKED_EQ."""

    argument: int
    compare: Compare
    value: int
    mask: int = 0


@dataclass(frozen=True)
class Rule:
    """These calls, under this condition, give this errno instead."""

    names: tuple[str, ...]
    errno: int
    condition: Condition | None = None


_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_CLONE_NEWUSER, _TIOCSTI, _TIOCLINUX = 0x10000000, 0x5412, 0x541C
_DENIED = (
    "acct add_key adjtimex bpf clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig "
    "fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp "
    "kexec_file_load kexec_load keyctl lookup_dcookie mbind memfd_secret migrate_pages mount mount_setattr "
    "move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open "
    "personality pidfd_getfd pivot_root process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot "
    "request_key set_mempolicy setdomainname sethostname setns settimeofday swapoff swapon syslog umount2 "
    "unshare uselib userfaultfd ustat vhangup vmsplice "
)
_SOCKETS = ("socket", "socketpair")
# Families 1 (unix), 2 (inet) and 10 (inet6) stay. GE also catches set high bits, which the kernel would cut off.
RULES: tuple[Rule, ...] = (
    Rule(tuple(_DENIED.split()), _EPERM),
    Rule(("clone3",), _ENOSYS),  # its flags lie in memory, out of a filter's sight; libc falls back to clone
    Rule(("clone",), _EPERM, Condition(0, "MASKED_EQ", _CLONE_NEWUSER, _CLONE_NEWUSER)),
    Rule(("ioctl",), _EPERM, Condition(1, "MASKED_EQ", _TIOCSTI, 0xFFFFFFFF)),
    Rule(("ioctl",), _EPERM, Condition(1, "MASKED_EQ", _TIOCLINUX, 0xFFFFFFFF)),
    Rule(_SOCKETS, _EAFNOSUPPORT, Condition(0, "GE", 11)),
    *(Rule(_SOCKETS, _EAFNOSUPPORT, Condition(0, "EQ", family)) for family in (0, 3, 4, 5, 6, 7, 8, 9)),
)
ARCHITECTURES = MappingProxyType({"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"})


@dataclass(frozen=True)
class Profile:
    """What one sandbox may do. Bytes and seconds; no network, no capability and a read-only root are not choices.

    The workspace and the other tmpfs folders lie in memory and count against ``memory``, in every backend.
    """

    memory: int
    processes: int
    cpus: float
    disk: int
    output: int
    wall: float
    environment: tuple[tuple[str, str], ...]
    tmp: int = 64 * MIB
    home: int = 16 * MIB
    shm: int = 16 * MIB

    @property
    def inodes(self) -> int:
        """How many files the workspace may hold; each costs the kernel memory even when empty."""
        return max(16_384, self.disk // 2048)

    @property
    def cpu_quota(self) -> int:
        """Microseconds of CPU time per period of ``CPU_PERIOD``."""
        return max(1_000, int(self.cpus * CPU_PERIOD))

    @property
    def export_limit(self) -> int:
        """Bytes of a tar stream of the whole workspace: contents plus headers and padding of every file."""
        return self.disk + self.inodes * 2048 + MIB


def profile_of(spec: SandboxSpec) -> Profile:
    """The locked-down settings of a spec."""
    limits = spec.limits
    return Profile(
        memory=limits.memory,
        processes=limits.processes,
        cpus=limits.cpus,
        disk=limits.disk,
        output=limits.output,
        wall=limits.wall,
        environment=tuple((dict(ENVIRONMENT) | spec.env).items()),
    )


def environment_of(profile: Profile, command: Command) -> dict[str, str]:
    """Every variable that a command sees; nothing comes from this process."""
    return dict(profile.environment) | command.env


def time_limit(profile: Profile, command: Command) -> float:
    """Seconds a command may take."""
    return min(command.timeout or profile.wall, profile.wall)


def docker_seccomp(machine: str, rules: Iterable[Rule] = RULES) -> str:
    """The rules as Docker's JSON, for this machine's architecture alone, so that no foreign one walks around them.

    Raises KeyError for an architecture without a known name.
    """
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": [ARCHITECTURES[machine]],
            "syscalls": [
                {
                    "names": list(rule.names),
                    "action": "SCMP_ACT_ERRNO",
                    "errnoRet": rule.errno,
                    "args": [_docker_condition(rule.condition)] if rule.condition else [],
                }
                for rule in rules
            ],
        }
    )


def _docker_condition(condition: Condition) -> dict[str, Any]:
    masked = condition.compare == "MASKED_EQ"
    return {
        "index": condition.argument,
        "op": f"SCMP_CMP_{condition.compare}",
        "value": condition.mask if masked else condition.value,
        "valueTwo": condition.value if masked else 0,
    }


def docker_settings(profile: Profile, machine: str) -> dict[str, Any]:
    """Keyword arguments of the SDK's ``containers.create``; image, name, command and labels are the caller's.

    Commands are run in it as ``AGENT_UID``.
    """
    tmpfs = "rw,nosuid,nodev"
    return {
        "network_mode": "none",
        "user": f"{KEEPER_UID}:{KEEPER_UID}",
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", f"seccomp={docker_seccomp(machine)}"],
        "read_only": True,
        "ipc_mode": "private",
        "shm_size": profile.shm,
        "tmpfs": {
            "/tmp": f"{tmpfs},size={profile.tmp},mode=1777",  # noqa: S108 - the sandbox's own tmpfs
            HOME: f"{tmpfs},size={profile.home},mode=700,uid={AGENT_UID},gid={AGENT_UID}",
            WORK: (
                f"{tmpfs},exec,size={profile.disk},nr_inodes={profile.inodes},mode=755,uid={AGENT_UID},gid={AGENT_UID}"
            ),
        },
        "pids_limit": profile.processes,
        "mem_limit": profile.memory,
        "memswap_limit": profile.memory,
        "cpu_period": CPU_PERIOD,
        "cpu_quota": profile.cpu_quota,
        "environment": dict(profile.environment),
        "working_dir": WORK,
        "hostname": "sandbox",
    }


def rlimits(profile: Profile) -> dict[str, int]:
    """Limits of every process: bytes of one file, open files, core dumps. Docker's names; `ulimit` has letters."""
    return {"fsize": profile.disk, "nofile": _KEEP_OPEN, "core": 0}


def bwrap_arguments(profile: Profile, root: Iterable[str], *, work: str, environment: dict[str, str]) -> list[str]:
    """Bubblewrap's arguments up to the command. ``root`` shows the system, ``work`` is the workspace outside."""
    uid = str(AGENT_UID)
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", uid, "--gid", uid, "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"),
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        *root,
        *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
        *("--perms", "1777", "--size", str(profile.shm), "--tmpfs", "/dev/shm"),  # noqa: S108 - inside the sandbox
        *("--perms", "1777", "--size", str(profile.tmp), "--tmpfs", "/tmp"),  # noqa: S108 - inside the sandbox
        *("--perms", "0700", "--size", str(profile.home), "--tmpfs", HOME),
        *("--bind", work, WORK, "--chdir", WORK, "--remount-ro", "/"),
    ]
