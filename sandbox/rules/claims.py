"""What every backend claims, by names that do not change, and for each claim what to mend where it does not hold.

The self-test proves them at start, the conformance suite attacks them, and proposals carry the names as evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_ENGINE = "remove what the engine's or runtime's own configuration adds to containers (daemon.json, default runtime)"
_SECCOMP = (
    "the kernel or the runtime ignores seccomp: use a kernel with CONFIG_SECCOMP_FILTER, and an engine whose "
    "`docker info` lists seccomp"
)
_NET = (
    "network namespaces must work here: check the kernel (CONFIG_NET_NS) and that nothing joins sandboxes to networks"
)
_CGROUP = "control groups must limit it: see `swarm sandbox doctor` for where they are, and run scripts/prepare-sandbox"
_TMPFS = "the kernel must keep the size of a tmpfs (CONFIG_TMPFS); use the other backend until it does"
_PROC = "mount /proc for the sandbox's own process namespace only; let the engine mask it as it does by default"
_LEAK = "a fault of the backend, not of the machine: do not use it, and report what `swarm sandbox doctor --json` says"
_OWN = "the daemon's own limits must leave room for those of sandboxes: see the limits of its service, "

MENDS: Mapping[str, str] = MappingProxyType(
    {
        "no capability": _ENGINE,
        "no new privileges": _ENGINE,
        "system calls filtered": _SECCOMP,
        "no foreign system call": _SECCOMP,
        "unprivileged user": "user ids 70000 to 71000 must exist for sandboxes: do not remap them to root",
        "no network device but lo": _NET,
        "no route out": _NET,
        "no UDP out": _NET,
        "no resolver": "a name server answers inside: remove it from the engine's configuration, and use network none",
        "no socket family but unix and inet": _SECCOMP,
        "no raw socket": _ENGINE,
        "no io_uring": _SECCOMP,
        "no ptrace": _SECCOMP,
        "no keyring": _SECCOMP,
        "no change of clocks": _SECCOMP,
        "no typing into a terminal": _SECCOMP,
        "no new namespace": _SECCOMP,
        "read-only system": "something writable is mounted into sandboxes: remove it from the engine or the image",
        "no device file": _SECCOMP,
        "no process of the host in sight": _PROC,
        "no variable of the daemon": _LEAK,
        "no open file of the daemon": _LEAK,
        "supervisor out of reach": _PROC,
        "files under Landlock": "the kernel has Landlock but refuses it: boot with lsm=landlock,... in its list",
        "disk limited": _TMPFS,
        "files limited": _TMPFS,
        "file size limited": _OWN + "`ulimit -f`",
        "processes limited": _CGROUP,
        "open files limited": _OWN + "`ulimit -n`",
        "no core dump": _OWN + "`ulimit -c`",
        "memory limited": _CGROUP + "; swap must be accounted (boot with swapaccount=1) or off",
        "CPU limited": _CGROUP,
        "time limited": _LEAK,
        "nothing survives a command": _LEAK,
        "really gVisor": "the runtime called runsc is not gVisor: install gVisor's runsc, or choose another runtime",
    }
)
# Where the kernel inside is not the host's, these are kept by its being another kernel, and cannot be seen inside.
KEPT_BY_GVISOR = frozenset(
    {
        *("system calls filtered", "no foreign system call", "no new namespace", "no io_uring", "no ptrace"),
        *("no keyring", "no change of clocks", "no typing into a terminal", "no socket family but unix and inet"),
    }
)
