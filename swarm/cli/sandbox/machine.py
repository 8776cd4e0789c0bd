"""What this machine's kernel offers to sandboxes, read from its own files. No sandbox is started for it."""

from __future__ import annotations

from pathlib import Path

from sandbox.examiner import landlock_abi
from swarm.cli.judge import Finding

_USERNS = {
    "/proc/sys/user/max_user_namespaces": "0",
    "/proc/sys/kernel/unprivileged_userns_clone": "0",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
}


def kernel() -> list[Finding]:
    """Landlock, user namespaces, control groups and overlay, each with the mend where it is missing."""
    return [_landlock(landlock_abi()), _namespaces(), _groups(_read("/proc/self/mountinfo")), _overlay()]


def _landlock(abi: int) -> Finding:
    if abi >= 6:
        return Finding(subject="Landlock", level="ok", text=f"ABI {abi}: files, and signals stay inside a command")
    if abi:
        text = f"ABI {abi}: files alone; a command can end its own supervisor, which only hurts itself"
        return Finding(subject="Landlock", level="warn", text=text, mend="a kernel of 6.12 or later has ABI 6")
    text, mend = "this kernel has none: one layer less on files", "boot with landlock in the kernel's list lsm="
    return Finding(subject="Landlock", level="warn", text=text, mend=mend)


def _namespaces() -> Finding:
    closed = [f"{path}={_read(path).strip()}" for path, off in _USERNS.items() if _read(path).strip() == off]
    if not closed:
        return Finding(subject="user namespaces", level="ok", text="every user may make them")
    mend = "allow them with sysctl, give bwrap an AppArmor profile, or use Docker"
    return Finding(subject="user namespaces", level="warn", text=f"restricted: {', '.join(closed)}", mend=mend)


def _groups(mounts: str) -> Finding:
    kinds = {line.split(" - ")[1].split(" ")[0] for line in mounts.splitlines() if " - cgroup" in line}
    if not kinds:
        mend = "mount them below /sys/fs/cgroup; in a container, share the host's"
        return Finding(subject="control groups", level="fail", text="none is mounted: no limit holds", mend=mend)
    text = {"cgroup2": "version 2", "cgroup": "version 1"}.get("".join(sorted(kinds)), "versions 1 and 2, mixed")
    return Finding(subject="control groups", level="ok", text=text)


def _overlay() -> Finding:
    if "\toverlay\n" in _read("/proc/filesystems"):
        return Finding(subject="overlay", level="ok", text="a fork can share what it does not change")
    text = "not in this kernel: a fork copies the workspace"
    return Finding(subject="overlay", level="warn", text=text, mend="load it: modprobe overlay")


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
