"""Whether everything may be killed here, and what can be told of this place: out-of-memory kills, our own limits."""

from __future__ import annotations

import os
import resource

_UIDS = range(70_000, 71_000)
_FIRST_NAMESPACE = 0xEFFFFFFC  # inode of the machine's own process namespace, see include/linux/proc_ns.h


def may_sweep(uid: int, own: tuple[str, int], host: tuple[str, int]) -> bool:
    """Whether ``kill(-1)`` can meet processes of this sandbox only: an agent's uid, in a namespace of its own."""
    return uid in _UIDS and own[1] not in (0, _FIRST_NAMESPACE) and own != tuple(host)


def process_namespace() -> tuple[str, int]:
    """The boot of the kernel, and the inode of our process namespace or 0 where it cannot be told."""
    boot, inode = "", 0
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read(64).decode("ascii", "replace").strip()
    except OSError:
        pass
    try:
        inode = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        pass
    return boot, inode


def bounds() -> tuple[object, ...]:
    """All that another process of the same user could have changed about us for good."""
    limits = tuple(resource.getrlimit(number) for number in range(16))  # RLIM_NLIMITS, which Python does not name
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0)


def starved() -> int:
    """How many processes of this sandbox the kernel killed for want of memory, where that can be read here."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path, "rb") as file:
                for line in file.read(4096).splitlines():
                    name, _, value = line.partition(b" ")
                    if name == b"oom_kill":
                        return int(value)
        except (OSError, ValueError):
            continue
    return 0
