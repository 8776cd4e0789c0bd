"""A folder of this machine as a tar stream for a sandbox: what a checkout tracks, or all of a plain folder.

No link is followed, neither one that is a file nor one on the way to it: every step of a path is opened by itself. What
is neither a file, a folder nor a link is left out, and so is every `.git`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import WorkspaceError
from sandbox.trees.gitdir import tracked_files
from sandbox.trees.tarball import END, header, padding

_CHUNK = 256 * 1024
_MOST = 200_000  # files


async def folder_stream(folder: Path, *, limit: int) -> AsyncIterator[bytes]:
    """The tar stream, at most ``limit`` bytes of content. Raises WorkspaceError naming what is in the way."""
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be opened as a folder: {error.strerror}") from error
    try:
        names = await tracked_files(folder)
        left = limit
        for path in _all_of(folder) if names is None else names:
            for chunk in _entry(top, path, left):
                left -= len(chunk)
                yield chunk
                if left < -(1 << 20):
                    raise WorkspaceError(_too_much(folder, limit))
        yield END
    finally:
        os.close(top)


def _all_of(folder: Path) -> Iterator[bytes]:
    """Every file and link below a plain folder, relative to it."""
    top, count = os.fsencode(folder), 0
    for above, folders, files in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]  # noqa: PTH114, PTH118 - bytes
        folders[:] = sorted(name for name in folders if name != b".git" and name not in links)
        for name in sorted([*files, *links]):
            count += 1
            if count > _MOST:
                raise WorkspaceError(f"{folder} holds more than {_MOST} files; mend: name a smaller folder")
            yield os.path.relpath(os.path.join(above, name), top)  # noqa: PTH118 - bytes


def _entry(top: int, path: bytes, most: int) -> Iterator[bytes]:
    """The tar entry of one path; nothing for one that is gone, special, below a link, or not ours to read."""
    parts = path.split(b"/")
    if b".git" in parts or b".." in parts or not all(parts):
        return
    try:
        with _within(top, parts[:-1]) as folder:
            there = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(there.st_mode):
                yield header(path, 0o777, 0, int(there.st_mtime), os.readlink(parts[-1], dir_fd=folder))
            elif stat.S_ISREG(there.st_mode):
                yield from _file(folder, parts[-1], path, most)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        shown = path.decode("utf-8", "replace")
        mend = "make it readable, or name a folder without it"
        raise WorkspaceError(f"{shown} cannot be read: {error.strerror}; mend: {mend}") from error


def _file(folder: int, name: bytes, path: bytes, most: int) -> Iterator[bytes]:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        there = os.fstat(descriptor)
        if not stat.S_ISREG(there.st_mode):
            return
        if there.st_size > most:
            shown = path.decode("utf-8", "replace")
            mend = "raise sandbox.limits.disk, or name a smaller folder"
            raise WorkspaceError(
                f"{shown} has {there.st_size} bytes, where {most} of sandbox.limits.disk are left; mend: {mend}"
            )
        yield header(path, there.st_mode & 0o777, there.st_size, int(there.st_mtime))
        left = there.st_size
        while left:
            chunk = file.read(min(left, _CHUNK)) or bytes(min(left, _CHUNK))  # one that shrinks meanwhile ends in zeros
            left -= len(chunk)
            yield chunk
        yield padding(there.st_size)


@contextmanager
def _within(top: int, parts: Iterable[bytes]) -> Iterator[int]:
    """A descriptor of a folder below ``top``, no step of which is a link. Raises OSError."""
    here = os.dup(top)
    try:
        for part in parts:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _too_much(folder: Path, limit: int) -> str:
    return (
        f"{folder} holds more than the {limit} bytes of sandbox.limits.disk; mend: raise it, or name a smaller folder"
    )
