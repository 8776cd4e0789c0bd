"""Which system calls are refused inside, as data: both backends compile the same rules.

They allow by default and deny what reaches past a sandbox: other socket families (AF_VSOCK goes to the hypervisor),
io_uring (sockets without a socket call), ptrace, keys, mounts, namespaces, clocks, and protocols whose modules the
kernel would load. What git, pip, pytest, node, cargo and the JVM use stays: memfd_create, pidfd_open,
pidfd_send_signal, seccomp, landlock_*. A call of a foreign architecture (32 bit, x32) kills the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

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
    """These calls, under this condition, give this errno instead; ``why`` is told by an explanation."""

    names: tuple[str, ...]
    errno: int
    why: str
    condition: Condition | None = None


_EPERM, _ENOSYS, _EPROTONOSUPPORT, _EAFNOSUPPORT = 1, 38, 93, 97
_INT = 0xFFFFFFFF  # the kernel cuts an int argument off; a filter sees all 64 bits
_NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_TERMINAL = (0x5412, 0x541C, 0x5423)  # TIOCSTI (CVE-2017-5226), TIOCLINUX (CVE-2023-28100), TIOCSETD
_KIND, _DEVICES = 0o170000, (0o020000, 0o060000)
_PROTOCOLS = (33, 115, 132, 136, 262)  # DCCP, L2TP, SCTP, UDP-Lite, MPTCP
_SOCKETS = ("socket", "socketpair")

_DENIED: tuple[tuple[str, str], ...] = (
    ("sockets and files without a filtered call", "io_uring_enter io_uring_register io_uring_setup vmsplice"),
    (
        "other processes' memory and descriptors",
        "kcmp pidfd_getfd process_madvise process_mrelease process_vm_readv process_vm_writev ptrace",
    ),
    ("kernel keyrings, which no namespace divides", "add_key keyctl request_key"),
    (
        "mounts and roots",
        (
            "chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree open_tree_attr pivot_root "
            "umount umount2"
        ),
    ),
    ("new or other namespaces", "setns unshare"),
    ("files by handle, past every path", "name_to_handle_at open_by_handle_at"),
    (
        "programs in the kernel and its inner workings",
        (
            "_sysctl bpf create_module delete_module finit_module get_kernel_syms init_module kexec_file_load "
            "kexec_load lookup_dcookie modify_ldt nfsservctl perf_event_open query_module sysfs syslog userfaultfd "
            "uselib ustat"
        ),
    ),
    ("clocks of the host", "adjtimex clock_adjtime clock_settime settimeofday stime"),
    (
        "memory that hides, or moves between nodes",
        "mbind memfd_secret migrate_pages move_pages set_mempolicy set_mempolicy_home_node",
    ),
    (
        "the host itself",
        (
            "acct fanotify_init ioperm iopl lsm_set_self_attr personality quotactl quotactl_fd reboot setdomainname "
            "sethostname swapoff swapon vhangup"
        ),
    ),
)

RULES: tuple[Rule, ...] = (
    *(Rule(tuple(names.split()), _EPERM, why) for why, names in _DENIED),
    # Libraries try these first and fall back; clone3's flags lie in memory, out of a filter's sight.
    Rule(("clone3", "listmount", "statmount"), _ENOSYS, "the older call, which can be filtered, is used instead"),
    *(Rule(("clone",), _EPERM, "new namespaces", Condition(0, "MASKED_EQ", flag, flag)) for flag in _NEW_NAMESPACES),
    *(
        Rule(("ioctl",), _EPERM, "typing into a terminal, or changing its driver", Condition(1, "MASKED_EQ", n, _INT))
        for n in _TERMINAL
    ),
    *(
        Rule((name,), _EPERM, "device files", Condition(argument, "MASKED_EQ", kind, _KIND))
        for name, argument in (("mknod", 1), ("mknodat", 2))
        for kind in _DEVICES
    ),
    # Families 1 (unix), 2 (inet) and 10 (inet6) stay. GE also catches set high bits, which the kernel would cut off.
    Rule(_SOCKETS, _EAFNOSUPPORT, "socket families but unix and inet", Condition(0, "GE", 11)),
    *(
        Rule(_SOCKETS, _EAFNOSUPPORT, "socket families but unix and inet", Condition(0, "EQ", family))
        for family in (0, 3, 4, 5, 6, 7, 8, 9)
    ),
    *(
        Rule(("socket",), _EPROTONOSUPPORT, "protocols but TCP and UDP", Condition(2, "MASKED_EQ", number, _INT))
        for number in _PROTOCOLS
    ),
)
ARCHITECTURES = MappingProxyType({"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"})
