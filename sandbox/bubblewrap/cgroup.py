"""Control groups, version 1 and 2: a child group per sandbox under a parent that belongs to us. Bytes and processes.

The parent is made by root, was handed over by ``scripts/prepare-sandbox``, or is the group that systemd delegated to
the service that we run in (``Delegate=yes``). In version 2 (the kernel's admin-guide/cgroup-v2) a process can only move
into a child when it lives below the same parent, and a group that limits others holds no process itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.rules.profile import CPU_PERIOD, Profile
from sandbox.types import MIB

ROOM = 32 * MIB
CONTROLLERS = ("memory", "pids", "cpu")
_PATIENCE = 3.0
_PAUSES = (0.0, 0.0005, 0.001, 0.002, 0.004)  # seconds between two looks; the last one goes on
_USUAL = "agent-swarm"  # the group that scripts/prepare-sandbox makes when it is told no other
_ASIDE = "daemon"  # where the processes of a delegated group move to, so that it may limit others


@dataclass(frozen=True)
class Group:
    """One sandbox's control group: a folder per controller in version 1, one folder in version 2."""

    folders: tuple[Path, ...]
    unified: bool

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.folders[0].name

    @property
    def entrances(self) -> tuple[Path, ...]:
        """Files into which a process writes ``0`` to move itself in."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def limit(self, profile: Profile) -> None:
        """Give it the profile's limits. Raises SandboxError."""
        try:
            for file, value in _settings(profile, unified=self.unified):
                _set(self, file, value)
        except OSError as error:
            raise SandboxError(f"the control group {self.name} cannot be limited: {error}") from error

    def relieve(self, memory: int) -> bool:
        """Let one in which nothing runs start something again: its files alone may take up all of its ``memory``.

        It gets `ROOM` bytes more then, to look at them, save them and remove some; never more, and no longer than that.
        Whether it has them now.
        """
        most = memory + ROOM if self._held() > memory - ROOM else memory
        files = ["memory.max"] if self.unified else ["memory.memsw.limit_in_bytes?", "memory.limit_in_bytes"]
        for file in [*files, *files]:  # which one has to go first depends on whether it grows or shrinks
            with contextlib.suppress(OSError):
                _set(self, file, str(most))
        return most > memory

    def _held(self) -> int:
        """Bytes that the kernel cannot take back by itself."""
        usage = "memory.current" if self.unified else "memory.usage_in_bytes"
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                held = int((folder / usage).read_text())
                for line in (folder / "memory.stat").read_text().splitlines():
                    name, _, value = line.partition(" ")
                    held -= int(value) if name in {"active_file", "inactive_file"} else 0
                return held
        return 0

    @property
    def limited(self) -> bool:
        """Whether it was given limits: only then it is, or was, a sandbox's."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                return (folder / "pids.max").read_text().strip() != "max"
        return False

    def created(self) -> float:
        """When it was made, in seconds since the epoch; 0 when it is gone."""
        try:
            return self.folders[0].stat().st_ctime
        except OSError:
            return 0.0

    def processes(self) -> set[int]:
        """Process ids inside, as we count them; 0 is one of a process namespace that we cannot see."""
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
        before = self._most("0")
        try:
            return await self._emptied()
        finally:
            self._most(before)

    async def remove(self) -> bool:
        """Empty it and take it away. False where that failed."""
        self._most("0")
        await self._emptied()
        return await _until(self._gone)

    async def _emptied(self) -> bool:
        return await _until(self._killed)

    def _killed(self) -> bool:
        inside = self.processes()
        if inside:
            self._kill(inside)
        return not inside

    def _gone(self) -> bool:
        self._killed()  # one that was on its way in may have come only now
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self.folders)

    def _most(self, processes: str) -> str:
        """Set how many processes there may be; what was set before. 0 stops forks, so that a kill catches all."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                file = folder / "pids.max"
                before = file.read_text().strip()
                file.write_text(processes)
                return before
        return "max"

    def _kill(self, inside: set[int]) -> None:
        if self.unified:
            with contextlib.suppress(OSError):
                (self.folders[0] / "cgroup.kill").write_text("1")
        for pid in (pid for pid in inside if pid > 1):  # to the kernel, 0 means our own group
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


async def _until(done: Callable[[], bool]) -> bool:
    """Look until it is so, ever less often; False after `_PATIENCE` seconds."""
    deadline = time.monotonic() + _PATIENCE
    pauses = iter(_PAUSES)
    while not done():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(next(pauses, _PAUSES[-1]))
    return True


@dataclass(frozen=True)
class Parent:
    """The group below which sandboxes are made."""

    folders: tuple[Path, ...]
    unified: bool

    def child(self, name: str) -> Group:
        """A new group, without limits yet. Raises SandboxError."""
        group = Group(tuple(folder / name for folder in self.folders), self.unified)
        try:
            for folder in group.folders:
                folder.mkdir()
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
        return _unified(
            mounts["unified"], name, delegated_group(mounts["unified"], Path("/proc/self/cgroup").read_text())
        )
    if not all(controller in mounts for controller in CONTROLLERS):
        raise SandboxUnavailableError(
            "no control groups for memory, processes and CPU are mounted below /sys/fs/cgroup, so no limit holds; "
            "mend: run where the host shares its cgroup file system, or use the Docker backend"
        )
    folders = tuple(mounts[controller] / name for controller in CONTROLLERS)
    try:
        for folder in folders:
            _made(folder)
    except OSError as error:
        raise _refusal(folders[0], name, error) from error
    return Parent(folders, unified=False)


def delegated_group(root: Path, cgroup: str) -> Path | None:
    """Our own version 2 group, where systemd or a person handed it to us; see cgroups(7) for the text."""
    paths = [line.removeprefix("0::") for line in cgroup.splitlines() if line.startswith("0::/")]
    own = root / paths[0].lstrip("/") if paths else root
    own = own.parent if own.name == _ASIDE else own
    usable = own != root and all(os.access(own / file, os.W_OK) for file in ("cgroup.procs", "cgroup.subtree_control"))
    return own if usable else None


def _unified(root: Path, name: str, delegated: Path | None) -> Parent:
    """Below the root, or where we may not, below the group that was delegated to us."""
    folder = root / name
    try:
        _made(folder)
        for above in [path for path in reversed(folder.parents) if path.is_relative_to(root)]:
            with contextlib.suppress(OSError):  # not ours to change; then whoever handed the folder over did it
                _let_limit(above)
        _let_limit(folder)
    except OSError as error:
        if delegated is None:
            raise _refusal(folder, name, error) from error
    else:
        return Parent((folder,), unified=True)
    folder = delegated / name
    try:
        _step_aside(delegated)
        _let_limit(delegated)
        _made(folder)
        _let_limit(folder)
    except OSError as error:
        raise _refusal(folder, name, error) from error
    return Parent((folder,), unified=True)


def _step_aside(group: Path) -> None:
    """Move all of a delegated group's processes, which are our service's, into a group of their own below it."""
    (group / _ASIDE).mkdir(exist_ok=True)
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (group / _ASIDE / "cgroup.procs").write_text(pid)


def _let_limit(folder: Path) -> None:
    (folder / "cgroup.subtree_control").write_text("+memory +pids +cpu")


def _made(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _refusal(folder: Path, name: str, error: OSError) -> SandboxUnavailableError:
    script = f"AGENT_SWARM_CGROUP={name} scripts/prepare-sandbox" if name != _USUAL else "scripts/prepare-sandbox"
    if os.geteuid() == 0:
        mend = f"run {script} groups, which moves processes out of the groups above"
    else:
        mend = (
            f"as root, run {script} user NAME for the user that runs the daemon, or run it as a systemd service with "
            "Delegate=yes"
        )
    return SandboxUnavailableError(f"control groups below {folder} cannot be made ({error.strerror}); mend: {mend}")


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
            ("memory.oom.group?", "0"),  # one process dies, not the sandbox
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
        try:
            descriptor = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
        return
    if name == file:
        raise FileNotFoundError(2, f"no {name} below {group.folders[0]}")
