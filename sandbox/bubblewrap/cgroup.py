"""Control groups, version 1 and 2: a child group per sandbox under a parent that belongs to us. Bytes and processes.

The parent is made by root, or was handed over by ``scripts/prepare-sandbox``. Version 2 was written from the kernel's
documentation (admin-guide/cgroup-v2); a process can only move into a child when it lives below the same parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.rules.profile import CPU_PERIOD, Profile

CONTROLLERS = ("memory", "pids", "cpu")
_PATIENCE = 3.0


@dataclass(frozen=True)
class Group:
    """One sandbox's control group: a folder per controller in version 1, one folder in version 2."""

    folders: tuple[Path, ...]
    unified: bool

    @property
    def entrances(self) -> tuple[Path, ...]:
        """Files into which a process writes ``0`` to move itself in."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def processes(self) -> set[int]:
        """Process ids inside, as the host counts them."""
        found: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError, OSError):
                found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
        return found

    def oom_kills(self) -> int:
        """How many processes the kernel killed in here for want of memory."""
        name = "memory.events" if self.unified else "memory.oom_control"
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                for line in (folder / name).read_text().splitlines():
                    key, _, value = line.partition(" ")
                    if key == "oom_kill":
                        return int(value)
        return 0

    async def empty(self) -> bool:
        """Kill everything inside, however fast it forks. False where something outlives `_PATIENCE` seconds."""
        self._stop_forks()
        deadline = time.monotonic() + _PATIENCE
        while inside := self.processes():
            self._kill(inside)
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.002)
        return True

    async def remove(self) -> bool:
        """Empty it and take it away. False where that failed."""
        await self.empty()
        deadline = time.monotonic() + _PATIENCE
        while left := [folder for folder in self.folders if folder.exists()]:
            for folder in left:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            if time.monotonic() > deadline:
                return False
            if any(folder.exists() for folder in left):
                await asyncio.sleep(0.005)
        return True

    def _stop_forks(self) -> None:
        for folder in self.folders:
            with contextlib.suppress(OSError):
                (folder / "pids.max").write_text("0")

    def _kill(self, inside: set[int]) -> None:
        if self.unified:
            with contextlib.suppress(OSError):
                (self.folders[0] / "cgroup.kill").write_text("1")
        for pid in inside:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Parent:
    """The group below which sandboxes are made."""

    folders: tuple[Path, ...]
    unified: bool

    def child(self, name: str, profile: Profile) -> Group:
        """A new group with the profile's limits. Raises SandboxError."""
        group = Group(tuple(folder / name for folder in self.folders), self.unified)
        try:
            for folder in group.folders:
                folder.mkdir()
            for file, value in _settings(profile, unified=self.unified):
                _set(group, file, value)
        except OSError as error:
            for folder in group.folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise SandboxError(f"the control group {name} cannot be made: {error}") from error
        return group

    def children(self) -> dict[str, Group]:
        """Groups below, by name."""
        names: set[str] = set()
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                names.update(path.name for path in folder.iterdir() if path.is_dir())
        return {name: Group(tuple(folder / name for folder in self.folders), self.unified) for name in names}


def find_parent(name: str) -> Parent:
    """The parent group called ``name``, made where we may. Raises SandboxUnavailableError with the mend."""
    mounts = _mounts(Path("/proc/self/mountinfo").read_text())
    if "unified" in mounts and set(CONTROLLERS) <= _offered(mounts["unified"]):
        parent = Parent((mounts["unified"] / name,), unified=True)
    elif all(controller in mounts for controller in CONTROLLERS):
        parent = Parent(tuple(mounts[controller] / name for controller in CONTROLLERS), unified=False)
    else:
        raise SandboxUnavailableError(
            "no control groups for memory, processes and CPU are mounted below /sys/fs/cgroup, so no limit holds; "
            "mend: run where the host shares its cgroup file system, or use the Docker backend"
        )
    try:
        _ready(parent, mounts)
    except OSError as error:
        raise SandboxUnavailableError(
            f"control groups below {parent.folders[0]} cannot be made ({error.strerror}); "
            "mend: as root, run scripts/prepare-sandbox user NAME for the user that runs the daemon"
        ) from error
    return parent


def _ready(parent: Parent, mounts: dict[str, Path]) -> None:
    for folder in parent.folders:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    if parent.unified:
        folder = parent.folders[0]
        for above in [path for path in reversed(folder.parents) if path.is_relative_to(mounts["unified"])]:
            with contextlib.suppress(OSError):  # not ours to change; then whoever handed the folder over did it
                (above / "cgroup.subtree_control").write_text("+memory +pids +cpu")
        (folder / "cgroup.subtree_control").write_text("+memory +pids +cpu")


def _mounts(mountinfo: str) -> dict[str, Path]:
    """Where each controller is mounted; ``unified`` is version 2. See proc(5) for the fields."""
    found: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        place = Path(left.split(" ")[4])
        if kind == "cgroup2":
            found.setdefault("unified", place)
        elif kind == "cgroup":
            for option in options.split(","):
                if option in CONTROLLERS:
                    found.setdefault(option, place)
    return found


def _offered(folder: Path) -> set[str]:
    try:
        return set((folder / "cgroup.controllers").read_text().split())
    except OSError:
        return set()


def _settings(profile: Profile, *, unified: bool) -> list[tuple[str, str]]:
    """Files and values, in the order in which the kernel takes them. No swap: memory plus swap equals memory."""
    memory, processes = str(profile.memory), str(profile.processes)
    if unified:
        return [
            ("memory.max", memory),
            ("memory.swap.max?", "0"),
            ("pids.max", processes),
            ("cpu.max", f"{profile.cpu_quota} {CPU_PERIOD}"),
        ]
    return [
        ("memory.limit_in_bytes", memory),
        ("memory.memsw.limit_in_bytes?", memory),
        ("memory.swappiness?", "0"),
        ("pids.max", processes),
        ("cpu.cfs_period_us", str(CPU_PERIOD)),
        ("cpu.cfs_quota_us", str(profile.cpu_quota)),
    ]


def _set(group: Group, file: str, value: str) -> None:
    """Write one setting; a name that ends in ``?`` may be absent (kernels without swap accounting)."""
    name = file.rstrip("?")
    for folder in group.folders:
        if (folder / name).exists():
            (folder / name).write_text(value)
            return
    if name == file:
        raise FileNotFoundError(2, f"no {name} below {group.folders[0]}")
