"""A folder of things that were costly to make, by name: made once however many ask, read-only afterwards, bounded.

Each thing is a folder of its own that appears by one rename. A lock file per name keeps two makers apart and holds off
the removal of what is in use, between processes as well; the least recently used goes first. The folder belongs to this
user alone: whoever else could write there could put programs into every sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.config import ImagesConfig
from sandbox.errors import SandboxUnavailableError
from sandbox.types import GIB, Frozen

Make = Callable[[Path], Awaitable[None]]
_PAUSE = 0.05


class Kept(Frozen):
    """One thing on a shelf. Bytes, and seconds since the epoch."""

    name: str
    size: int
    used: float
    busy: bool


@dataclass(frozen=True)
class Bounds:
    """``most`` bytes on the shelf in all; nothing is made while the disk has fewer than ``floor`` bytes free."""

    most: int
    floor: int


class Shelf:
    """Things by name. Names are lower-case letters, digits and hyphens."""

    def __init__(self, folder: Path, bounds: Bounds, *, mode: int = 0o700) -> None:
        """``mode`` is the folder's: 0o711 lets another user read the things whose names it knows, and change none."""
        self.folder = folder
        self._bounds = bounds
        self._mode = mode

    @asynccontextmanager
    async def hold(self, name: str, make: Make, sound: Callable[[Path], bool]) -> AsyncIterator[Path]:
        """The thing's folder, not removed while it is held. ``make`` fills an empty folder where there is none yet.

        A thing that is not ``sound`` is made anew. Whatever ``make`` raises is raised, and nothing is kept then. Raises
        SandboxUnavailableError where the disk is too full, or the folder could be written by another user.
        """
        self.prepare()
        place = self.folder / name
        lock = await _locked(self._lock(name), shared=True)
        try:
            while not await asyncio.to_thread(_sound, place, sound):
                os.close(lock)
                lock = -1
                await self._made(name, make, sound)
                lock = await _locked(self._lock(name), shared=True)
            os.utime(place)
            yield place
        finally:
            if lock >= 0:
                os.close(lock)

    def making(self, name: str) -> bool:
        """Whether someone makes that thing just now."""
        self.prepare()
        if (lock := _try(self._lock(name), fcntl.LOCK_SH)) is None:
            return True
        os.close(lock)
        return False

    def prepare(self) -> None:
        """Make the folder. Raises SandboxUnavailableError where another user could change what is in it."""
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(parents=True, mode=0o700)
            self.folder.chmod(self._mode)
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o777 & ~self._mode:
            raise SandboxUnavailableError(
                f"{self.folder} has to be a folder of this user with mode {self._mode:o}, since others could put "
                f"programs into sandboxes there; mend: look who wrote there, then remove it"
            )

    @contextmanager
    def spare(self) -> Iterator[Path]:
        """A folder for the time being, on the shelf's disk; of a process that was killed, the next maker removes it."""
        self.prepare()
        place = self.folder / f".spare-{secrets.token_hex(4)}"
        new = place.with_name(f".making{place.name}")  # nobody takes it for one that was left before it is locked
        new.mkdir(mode=0o700)
        lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(place)
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            os.close(lock)

    def kept(self) -> tuple[Kept, ...]:
        """What is there, the least recently used first. Raises SandboxUnavailableError for another user's folder."""
        found = []
        for place in self._places():
            with contextlib.suppress(OSError):
                busy = (lock := _try(self._lock(place.name), fcntl.LOCK_EX)) is None
                if lock is not None:
                    os.close(lock)
                found.append(
                    Kept(name=place.name, size=size_of(place), used=place.stat().st_mtime, busy=busy),
                )
        return tuple(sorted(found, key=lambda kept: kept.used))

    def prune(self, *, keep: int = 0, unused_since: float | None = None, dry: bool = False) -> tuple[Kept, ...]:
        """Remove the least recently used until at most ``keep`` bytes are left; what was removed, or would be.

        ``unused_since`` spares what was used at that time or later. Nothing in use is removed. Raises as `kept`.
        """
        kept = self.kept()
        left, gone = sum(each.size for each in kept), []
        for each in kept:
            if left <= keep or (unused_since is not None and each.used >= unused_since):
                break
            if each.busy or not (dry or self._remove(each.name)):
                continue
            left -= each.size
            gone.append(each)
        return tuple(gone)

    def _places(self) -> list[Path]:
        try:
            return [place for place in sorted(self.folder.iterdir()) if not place.name.startswith(".")]
        except FileNotFoundError:
            return []
        except PermissionError as error:
            raise SandboxUnavailableError(
                f"{self.folder} belongs to another user; mend: look into it as the daemon's user, or as root"
            ) from error

    def free(self) -> int:
        """Bytes free on the shelf's disk."""
        return shutil.disk_usage(self.folder).free

    def room(self) -> int:
        """Bytes that may be put there before the floor is reached."""
        return max(0, self.free() - self._bounds.floor)

    async def _made(self, name: str, make: Make, sound: Callable[[Path], bool]) -> None:
        """Make it, unless another did so while we waited for our turn."""
        lock = await _locked(self._lock(name), shared=False)
        try:
            place = self.folder / name
            if await asyncio.to_thread(_sound, place, sound):
                return
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            await asyncio.to_thread(self._make_room)
            new = self.folder / f".new-{name}-{secrets.token_hex(4)}"
            new.mkdir(mode=0o755)
            try:
                await make(new)
                new.rename(place)
            finally:
                await asyncio.to_thread(shutil.rmtree, new, ignore_errors=True)
        finally:
            os.close(lock)

    def _make_room(self) -> None:
        """Let go of old things while there is too much; insist on the floor."""
        self._clear_broken()
        self.prune(keep=self._bounds.most)
        if (short := self._bounds.floor - self.free()) > 0:
            self.prune(keep=max(0, sum(each.size for each in self.kept()) - short))
        if (free := self.free()) < self._bounds.floor:
            raise SandboxUnavailableError(
                f"the disk of {self.folder} has {free / GIB:.2f} GiB free, and {self._bounds.floor / GIB:.2f} GiB have "
                "to stay free; mend: free some space, or lower sandbox.images.disk_floor"
            )

    def _clear_broken(self) -> None:
        """Remove what a maker left that was killed; one that lives holds its lock."""
        for new in self.folder.glob(".new-*/"):
            lock = _try(self._lock(new.name.removeprefix(".new-").rpartition("-")[0]), fcntl.LOCK_EX)
            if lock is not None:
                shutil.rmtree(new, ignore_errors=True)
                os.close(lock)
        for spare in self.folder.glob(".spare-*/"):
            with contextlib.suppress(OSError):
                lock = os.open(spare, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(spare, ignore_errors=True)
                finally:
                    os.close(lock)

    def _remove(self, name: str) -> bool:
        lock = _try(self._lock(name), fcntl.LOCK_EX)
        if lock is None:
            return False
        try:
            gone = self.folder / f".new-{name}-{secrets.token_hex(4)}"
            (self.folder / name).rename(gone)  # never half there
            shutil.rmtree(gone, ignore_errors=True)
            self._lock(name).unlink()
        except OSError:
            return False
        finally:
            os.close(lock)
        return True

    def _lock(self, name: str) -> Path:
        return self.folder / f".{name}.lock"


@dataclass(frozen=True)
class Shelves:
    """What a state folder keeps of set-ups and of images."""

    setups: Shelf
    images: Shelf


def shelves_in(state: Path, config: ImagesConfig) -> Shelves:
    """The shelves of a state folder; nothing is made yet."""
    bounds = Bounds(config.cache, config.disk_floor)
    return Shelves(Shelf(state / "setups", bounds), Shelf(state / "images", bounds, mode=0o711))


def size_of(folder: Path) -> int:
    """Bytes that the files below a folder take."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(above, name)).st_blocks * 512
    return total


def _sound(place: Path, sound: Callable[[Path], bool]) -> bool:
    return place.is_dir() and sound(place)


async def _locked(path: Path, *, shared: bool) -> int:
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while (lock := _try(path, how)) is None:  # noqa: ASYNC110 - the kernel tells nobody that a lock was let go
        await asyncio.sleep(_PAUSE)
    return lock


def _try(path: Path, how: int) -> int | None:
    """A descriptor that holds the lock, of the file that has the name now; None where another holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino == path.stat().st_ino:
            return lock
    except OSError:  # held by another, or removed meanwhile
        pass
    os.close(lock)
    return None
