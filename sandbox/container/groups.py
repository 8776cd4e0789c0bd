"""Looks, after a container was removed, whether its control group is empty, and ends what is still in there.

An engine can believe that a container is gone while a process of it stays: one that is traced by its own child, with no
init of the engine's, outlived its removal and even the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import SandboxError

ROOT = Path("/sys/fs/cgroup")
_ID = re.compile(r"[0-9a-f]{64}\Z")
_PATIENCE = 5.0
_CONTROLLERS = ("", "pids", "memory", "systemd", "unified")
_PARENTS = ("docker/{}", "system.slice/docker-{}.scope", "user.slice/docker-{}.scope")


def groups_of(container: str, root: Path = ROOT) -> list[Path]:
    """Where the control groups of a container with this full id would be, of either version and driver: pure."""
    if not _ID.match(container):
        return []
    return [root / controller / parent.format(container) for controller in _CONTROLLERS for parent in _PARENTS]


def inside(groups: Iterable[Path]) -> set[int]:
    """The processes in these groups and below them; 0 is one of a process namespace that we cannot see."""
    found: set[int] = set()
    for group in groups:
        for file in (group / "cgroup.procs", *group.glob("**/cgroup.procs")):
            with contextlib.suppress(OSError):
                found.update(int(line) for line in file.read_text().split() if line.isdigit())
    return found


async def empty(container: str, root: Path = ROOT) -> int:
    """End what a removed container left in its control groups; how many processes that were.

    Raises SandboxError where they stay, for whoever reads the log to look into.
    """
    groups, until, ended = groups_of(container, root), time.monotonic() + _PATIENCE, set[int]()
    while left := inside(groups):
        if time.monotonic() > until:
            raise SandboxError(f"processes {sorted(left)} outlived their container {container[:12]}; mend: end them")
        _kill_unseen(groups)
        for pid in (pid for pid in left if pid > 1):  # to the kernel, 0 means our own group
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended |= left
        await asyncio.sleep(0.05)
    return len(ended)


def _kill_unseen(groups: Iterable[Path]) -> None:
    """Version 2 kills what is in a group without being told who that is."""
    for group in groups:
        if (group / "cgroup.kill").exists():
            with contextlib.suppress(OSError):
                (group / "cgroup.kill").write_text("1")
