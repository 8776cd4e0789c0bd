"""Reads a person's folder, and puts files into it and out of it: all of them, or none.

No link is followed on the way. What is new is written first, beside; then it changes places with what was there, which
is kept until all is done and goes back where something fails.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import WorkspaceError
from sandbox.trees.keeping import Side
from sandbox.trees.names import shown
from sandbox.types import MIB

LARGEST = 256 * MIB  # bytes of a file of the person's that is compared
PLAIN, RUNS, LINK = "100644", "100755", "120000"
_EXACT = 0o777  # bits of a mode that are kept; a changed file is nobody's set-user-id program


@dataclass(frozen=True)
class Placed:
    """What is to be at a path; None for nothing."""

    path: bytes
    side: Side | None


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of the folder. Raises WorkspaceError."""
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        yield root
    finally:
        os.close(root)


def read(root: int, path: bytes) -> Side | None:
    """What lies at a path; None for nothing. Raises OSError where a link or a folder is in the way."""
    try:
        with _above(root, path) as (at, name):
            there = _status(at, name)
            if stat.S_ISLNK(there.st_mode):
                return Side(LINK, os.readlink(name, dir_fd=at))
            if not stat.S_ISREG(there.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "no plain file")
            if there.st_size > LARGEST:
                raise OSError(errno.EFBIG, f"it is larger than {LARGEST} bytes")
            with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at), "rb") as file:  # noqa: PTH123
                return Side(RUNS if there.st_mode & stat.S_IXUSR else PLAIN, file.read())
    except FileNotFoundError:
        return None


def holds_only(root: int, path: bytes, going: Collection[bytes]) -> bool:
    """Whether at a path there is a folder that is gone once ``going`` are: no other file in it, and no empty folder."""
    try:
        with _above(root, path) as (at, name):
            for below, folders, files, seen in os.fwalk(name, dir_fd=at, follow_symlinks=False, onerror=_raised):
                inside = path + below[len(name) :]
                links = [each for each in folders if stat.S_ISLNK(_status(seen, each).st_mode)]
                if not (folders or files) or any(inside + b"/" + each not in going for each in (*files, *links)):
                    return False
            return stat.S_ISDIR(_status(at, name).st_mode)
    except OSError:
        return False


def place(root: int, work: Sequence[Placed]) -> None:
    """Put everything where it belongs, or leave the folder as it was.

    A file that is there keeps its mode, of which git knows no more than whether it runs, and its owner where that can
    be. Raises WorkspaceError that names the path.
    """
    beside = f".swarm-{secrets.token_hex(8)}".encode()
    try:
        os.mkdir(beside, 0o700, dir_fd=root)
    except OSError as error:
        raise WorkspaceError(f"nothing can be written there: {why(error)}") from error
    with _above(root, beside + b"/.") as (store, _):
        turn = _Turn(root, store)
        try:
            _all(turn, work)
        except BaseException:
            if not turn.back():
                words = f"{shown(beside)} in that folder holds what could not be put back"
                raise WorkspaceError(f"the work is there in part alone; {words}") from None
            _clear(root, store, beside)
            raise
        _clear(root, store, beside)


def why(error: OSError) -> str:
    """What is in the way, in words."""
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return "a link or a file is where a folder should be"
    return error.strerror or type(error).__name__


def _all(turn: _Turn, work: Sequence[Placed]) -> None:
    steps = [(turn.stage, each) for each in work if each.side is not None]
    steps += [(turn.take, each) for each in work if each.side is None]
    steps += [(turn.give, each) for each in work if each.side is not None]
    for step, each in steps:
        try:
            step(each)
        except (OSError, ValueError) as error:  # ValueError: a link that leads to a name with NUL
            said = why(error) if isinstance(error, OSError) else str(error)
            raise WorkspaceError(f"{shown(each.path)} cannot be written, and nothing was: {said}") from error


class _Turn:
    """One change of a folder, and the way back. ``store`` is the folder for what is new and what was there."""

    def __init__(self, root: int, store: int) -> None:
        self._root = root
        self._store = store
        self._staged: dict[bytes, bytes] = {}
        self._undo = contextlib.ExitStack()
        self._made = 0

    def stage(self, each: Placed) -> None:
        """Write what is new, beside."""
        assert each.side is not None  # noqa: S101 - only such are staged; this tells mypy
        name = self._staged[each.path] = self._name()
        if each.side.mode == LINK:
            os.symlink(each.side.content, name, dir_fd=self._store)
            return
        mode = 0o777 if each.side.mode == RUNS else 0o666  # as the person's umask has it
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, mode, dir_fd=self._store), "wb") as file:  # noqa: PTH123
            file.write(each.side.content)
            file.flush()
            if there := self._there(each.path):
                _like(file.fileno(), there, runs=each.side.mode == RUNS)

    def take(self, each: Placed) -> None:
        """Move out what was there, and the folders that are empty without it."""
        with _above(self._root, each.path) as (at, name):
            kept = self._name()
            os.rename(name, kept, src_dir_fd=at, dst_dir_fd=self._store)
        self._undo.callback(self._back, each.path, kept)
        folder = each.path.rpartition(b"/")[0]
        while folder:
            try:
                with _above(self._root, folder) as (at, name):
                    mode = stat.S_IMODE(_status(at, name).st_mode)
                    os.rmdir(name, dir_fd=at)
            except OSError:
                return  # something else is in it
            self._undo.callback(self._again, folder, mode)
            folder = folder.rpartition(b"/")[0]

    def give(self, each: Placed) -> None:
        """Have what is new change places with what is there, at once."""
        self._make(each.path)
        with _above(self._root, each.path) as (at, name):
            if self._there(each.path):
                kept = self._name()
                try:
                    os.link(name, kept, src_dir_fd=at, dst_dir_fd=self._store, follow_symlinks=False)
                except OSError:  # the file system has no second names
                    os.rename(name, kept, src_dir_fd=at, dst_dir_fd=self._store)
                self._undo.callback(self._back, each.path, kept)
                os.rename(self._staged[each.path], name, src_dir_fd=self._store, dst_dir_fd=at)
            else:
                os.rename(self._staged[each.path], name, src_dir_fd=self._store, dst_dir_fd=at)
                self._undo.callback(self._gone, each.path)

    def back(self) -> bool:
        """Undo all of it; False where something could not be."""
        try:
            self._undo.close()
        except OSError:
            return False
        return True

    def _name(self) -> bytes:
        self._made += 1
        return b"%d" % self._made

    def _there(self, path: bytes) -> os.stat_result | None:
        """The file or link at a path; None for nothing and for a folder."""
        try:
            with _above(self._root, path) as (at, name):
                found = _status(at, name)
        except OSError:
            return None
        return None if stat.S_ISDIR(found.st_mode) else found

    def _make(self, path: bytes) -> None:
        """The folders of a path."""
        parts = path.split(b"/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = b"/".join(parts[:depth])
            with _above(self._root, folder) as (at, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=at)
                self._undo.callback(self._unmade, folder)

    def _back(self, path: bytes, kept: bytes) -> None:
        with _above(self._root, path) as (at, name):
            os.replace(kept, name, src_dir_fd=self._store, dst_dir_fd=at)

    def _gone(self, path: bytes) -> None:
        with _above(self._root, path) as (at, name):
            os.unlink(name, dir_fd=at)

    def _again(self, folder: bytes, mode: int) -> None:
        with _above(self._root, folder) as (at, name):
            os.mkdir(name, 0o700, dir_fd=at)
            os.chmod(name, mode, dir_fd=at)

    def _unmade(self, folder: bytes) -> None:
        with _above(self._root, folder) as (at, name):
            os.rmdir(name, dir_fd=at)


def _like(file: int, there: os.stat_result, *, runs: bool) -> None:
    """Give a file the mode and the owner of the one whose place it takes, as far as git does not say otherwise."""
    if not stat.S_ISREG(there.st_mode):
        return
    mode = stat.S_IMODE(there.st_mode) & _EXACT
    ran = bool(mode & stat.S_IXUSR)
    if runs and not ran:
        mode |= (mode & 0o444) >> 2
    elif ran and not runs:
        mode &= ~0o111
    with contextlib.suppress(PermissionError):
        os.fchown(file, there.st_uid, there.st_gid)
    os.fchmod(file, mode)


def _clear(root: int, store: int, beside: bytes) -> None:
    """Remove the folder of what was there. What cannot be removed stays, beside what is right already."""
    with contextlib.suppress(OSError):
        for name in os.listdir(store):
            os.unlink(name, dir_fd=store)
        os.rmdir(beside, dir_fd=root)


def _status(at: int, name: bytes) -> os.stat_result:
    return os.stat(name, dir_fd=at, follow_symlinks=False)


def _raised(error: OSError) -> None:
    raise error


@contextlib.contextmanager
def _above(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """The folder of a path, reached without following any link, and the last part of the name."""
    *parts, name = path.split(b"/")
    at = os.dup(root)
    try:
        for each in parts:
            below = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = below
        yield at, name
    finally:
        os.close(at)
