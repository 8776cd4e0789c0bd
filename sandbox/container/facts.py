"""What an engine says about itself, read: what it can keep, what to tell with the self-test, what to mend. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sandbox.rules.calls import ARCHITECTURES

# Fixed in these runc releases: CVE-2024-21626 in 1.1.12; CVE-2025-31133, -52565 and -52881 in 1.2.8, 1.3.3, 1.4.0-rc.3.
_FIXED = {(1, 2): (1, 2, 8), (1, 3): (1, 3, 3), (1, 4): (1, 4, 0)}
_OLDEST = (1, 2, 8)
_NEEDED = {
    "MemoryLimit": "memory",
    "PidsLimit": "processes",
    "CpuCfsQuota": "processor time",
}
_GROUPS = "enable the memory, pids and cpu control groups on the engine's machine"
_ROOTLESS = (
    "a rootless engine needs cgroup v2 with systemd and delegated controllers: boot with "
    "systemd.unified_cgroup_hierarchy=1, Delegate=cpu cpuset io memory pids, or use a rootful engine"
)


def options_of(info: Mapping[str, Any]) -> set[str]:
    """Names among the security options: seccomp, apparmor, rootless, userns and the like."""
    found = set()
    for option in info.get("SecurityOptions") or ():
        fields = dict(part.partition("=")[::2] for part in str(option).split(","))
        found.add(fields.get("name", str(option)))
    return found


def refusal_of(info: Mapping[str, Any], runtime: str | None) -> str | None:
    """Why this engine cannot keep what a sandbox promises, with the mend; None where nothing speaks against it."""
    if str(info.get("OSType", "linux")) != "linux":
        return f"it runs {info['OSType']} containers; mend: an engine on Linux"
    machine = str(info.get("Architecture", ""))
    if machine not in ARCHITECTURES:
        return f"no system call filter for {machine}; mend: an engine on {' or '.join(ARCHITECTURES)}"
    if runtime and runtime not in (info.get("Runtimes") or {}):
        known = ", ".join(sorted(info.get("Runtimes") or {}))
        return f"it has no runtime {runtime}, only {known}; mend: scripts/start-docker start --runtime {runtime}"
    if "seccomp" not in options_of(info):
        return "it filters no system calls; mend: an engine and a kernel with seccomp"
    missing = [words for name, words in _NEEDED.items() if not info.get(name)]
    if missing:
        mend = _ROOTLESS if "rootless" in options_of(info) else _GROUPS
        return f"it cannot limit {', '.join(missing)}; mend: {mend}"
    return None


def detail_of(info: Mapping[str, Any], version: Mapping[str, Any], runtime: str | None) -> dict[str, str]:
    """What goes into the self-test's detail beside version and image."""
    options = options_of(info)
    used = runtime or str(info.get("DefaultRuntime", "runc"))
    users = "rootless" if "rootless" in options else "remapped" if "userns" in options else "the machine's own"
    detail = {"runtime": used, "cgroup": f"v{info.get('CgroupVersion', '1')}", "users": users}
    if not info.get("SwapLimit"):
        detail["swap"] = "not limited apart from memory"
    for part in version.get("Components") or ():
        if part.get("Name") == "runc" and used == "runc":
            detail["runc"] = runc_told(str(part.get("Version", "")))
    return detail


def runc_told(version: str) -> str:
    """A runc version, and whether it is older than the last known escapes: distributions mend without a new number."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)(-rc\.?(\d+))?", version)
    if match is None:
        return f"{version or 'unknown'} (its age cannot be told)"
    number = (int(match[1]), int(match[2]), int(match[3]))
    fixed = _FIXED.get(number[:2], _OLDEST)
    early = number[:2] == (1, 4) and match[4] is not None and int(match[5]) < 3
    if number >= fixed and not early:
        return version
    words = ".".join(str(part) for part in fixed) + ("-rc.3" if number[:2] == (1, 4) else "")
    return (
        f"{version} (older than {words}; check that your distribution has backported the fixes of CVE-2024-21626, "
        "CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881)"
    )


def runtime_mend(runtime: str) -> str:
    """What to do about a runtime that fails the self-test."""
    if runtime.startswith("runsc"):
        return (
            "a newer gVisor on the systrap platform (its own threads count against the limit of processes, and builds"
            " of 2022 break on that and on sized tmpfs), or the engine's own runtime"
        )
    return "look at the engine's version and control groups, or use bubblewrap"


def users_mend(info: Mapping[str, Any]) -> str:
    """What to add to a container that could not be started, where the engine maps users."""
    if options_of(info) & {"rootless", "userns"}:
        return "; mend: the engine's user needs 71001 subordinate ids or more in /etc/subuid and /etc/subgid"
    return ""
