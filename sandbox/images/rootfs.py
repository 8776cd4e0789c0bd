"""Unpacks the file systems of images into folders that nothing can climb out of. What an image says is hostile.

Every step is taken from an open folder to a name in it, without following links: a link of the image is looked up in
the image (as the root that it will be), never on the host. What is unpacked belongs to this user and is read-only
later; set-user-id bits, device nodes, sockets and pipes are left out. Whiteouts as the OCI image specification says.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.errors import ImageError
from sandbox.trees.names import normal, shown
from sandbox.trees.tarball import Member, TarReader
from sandbox.types import MIB

MOST_BYTES = 16 * 1024 * MIB
MOST_ENTRIES = 1_000_000
# Where a backend puts something of its own over the image. These are real folders and files, so that no link of the
# image can lead what is mounted there to somewhere else.
FOLDERS = ("dev", "dev/shm", "etc", "home", "home/agent", "mnt", "proc", "run", "sys", "tmp", "work", ".swarm")
FILES = ("etc/passwd", "etc/group", "etc/hosts", "etc/hostname", "etc/nsswitch.conf", "etc/resolv.conf")
_HOPS = 40
_DEEPEST = 128
_WHITEOUT, _OPAQUE = b".wh.", b".wh..wh..opq"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Caps:
    """What may still be unpacked, over all layers."""

    bytes: int = MOST_BYTES
    entries: int = MOST_ENTRIES


@dataclass
class Unpacker:
    """Lays layers over one another in ``root``, which is empty at first and this user's alone."""

    root: Path
    caps: Caps = field(default_factory=Caps)

    async def layer(self, stream: AsyncIterator[bytes]) -> None:
        """Lay one layer over what is there. Raises ImageError, and WorkspaceError for a malformed stream."""
        reader = TarReader(stream, limit=2 * MOST_BYTES, most=MOST_ENTRIES, pax=True)
        placed: set[bytes] = set()
        async for member in reader:
            path = normal(member.name)
            if path is None:
                if member.name.strip(b"./"):
                    raise ImageError(f"the image holds a path that leads outside: {shown(member.name[:200])}")
                continue
            self._count(member)
            try:
                await self._place(reader, member, path, placed)
            except (OSError, ValueError) as error:
                raise ImageError(f"{shown(path[:200])} cannot be unpacked: {error}") from error

    def finish(self) -> None:
        """Make the places of the backends, whatever the image has there."""
        for name in FOLDERS:
            with self._at(os.fsencode(name)) as (above, last):
                _folder_in(above, last)
        for name in FILES:
            with self._at(os.fsencode(name)) as (above, last):
                if (found := _kind(above, last)) is None or not stat.S_ISREG(found):
                    _clear(above, last)
                    os.close(os.open(last, _NEW, 0o644, dir_fd=above))

    def _count(self, member: Member) -> None:
        self.caps.entries -= 1
        self.caps.bytes -= member.size if member.kind == "file" else 0
        if self.caps.entries < 0 or self.caps.bytes < 0:
            raise ImageError("the image holds more files or bytes than may be unpacked, or than the disk has room for")

    async def _place(self, reader: TarReader, member: Member, path: bytes, placed: set[bytes]) -> None:
        name = path.rpartition(b"/")[2]
        with self._at(path) as (above, last):
            if name == _OPAQUE:
                _empty(above, path.rpartition(b"/")[0], placed)
            elif name.startswith(_WHITEOUT):
                _clear(above, name.removeprefix(_WHITEOUT))
            elif member.kind == "directory":
                _folder_in(above, last)
            elif member.kind == "file":
                _clear(above, last)
                await _file(reader, above, last, member.mode)
            elif member.kind == "symlink":
                _clear(above, last)
                os.symlink(member.link, last, dir_fd=above)
            elif member.kind == "hardlink":
                self._link(member, above, last)
        while path not in placed:
            placed.add(path)
            path = path.rpartition(b"/")[0]

    def _link(self, member: Member, above: int, last: bytes) -> None:
        """A second name for a plain file of the image."""
        target = normal(member.link)
        if target is None:
            raise ImageError(f"the image holds a hard link that leads outside: {shown(member.link[:200])}")
        with self._at(target) as (there, name):
            if (found := _kind(there, name)) is None or not stat.S_ISREG(found):
                raise ImageError(f"the image holds a hard link to what is no file in it: {shown(target[:200])}")
            if not _same(there, name, above, last):
                _clear(above, last)
                os.link(name, last, src_dir_fd=there, dst_dir_fd=above, follow_symlinks=False)

    @contextmanager
    def _at(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """The open folder above a path and the last name, folders made on the way."""
        above, _, last = path.rpartition(b"/")
        walk = _Walk(self.root)
        try:
            walk.go(above)
            yield walk.here, last
        finally:
            walk.close()


class _Walk:
    """A way down into an image from its root; its links are followed as if that were the root of the system."""

    def __init__(self, root: Path) -> None:
        self._folders = [os.open(root, _FOLDER)]
        self._hops = 0

    @property
    def here(self) -> int:
        """The folder that the way has led to."""
        return self._folders[-1]

    def close(self) -> None:
        """Let go of all folders."""
        for each in self._folders:
            os.close(each)

    def go(self, path: bytes) -> None:
        """On along a path. Raises ImageError for links in a circle and for what lies too deep."""
        todo = path.split(b"/")[::-1]
        while todo:
            part = todo.pop()
            if part == b"..":
                self._back(1)
            elif part not in {b"", b"."}:
                todo += self._step(part)

    def _step(self, part: bytes) -> list[bytes]:
        """Into a folder, made where there is none; the parts of a link's target instead, the next one last."""
        found = _kind(self.here, part)
        if found is not None and stat.S_ISLNK(found):
            self._hops += 1
            if self._hops > _HOPS:
                raise ImageError(f"the image holds links in a circle at {shown(part)}")
            to = os.readlink(part, dir_fd=self.here)
            if to.startswith(b"/"):
                self._back(len(self._folders))
            return to.split(b"/")[::-1]
        if len(self._folders) > _DEEPEST:
            raise ImageError(f"the image holds folders more than {_DEEPEST} deep")
        if found is None or not stat.S_ISDIR(found):
            _folder_in(self.here, part)
        self._folders.append(os.open(part, _FOLDER, dir_fd=self.here))
        return []

    def _back(self, steps: int) -> None:
        while steps and len(self._folders) > 1:
            os.close(self._folders.pop())
            steps -= 1


async def _file(reader: TarReader, above: int, name: bytes, mode: int) -> None:
    """A plain file; readable for all, since the agent's user is none of the image's."""
    into = os.open(name, _NEW, 0o600, dir_fd=above)
    try:
        async for chunk in reader.content():
            _write(into, chunk)
        os.fchmod(into, (mode & 0o755) | 0o444)
    finally:
        os.close(into)


def _write(into: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(into, rest) :]


def _kind(above: int, name: bytes) -> int | None:
    try:
        return os.lstat(name, dir_fd=above).st_mode
    except FileNotFoundError:
        return None


def _same(one: int, name: bytes, other: int, last: bytes) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.lstat(name, dir_fd=one), os.lstat(last, dir_fd=other))
    return False


def _folder_in(above: int, name: bytes) -> None:
    """A real folder of that name, open to all for reading; what else has the name goes."""
    found = _kind(above, name)
    if found is not None and not stat.S_ISDIR(found):
        os.unlink(name, dir_fd=above)
        found = None
    if found is None:
        os.mkdir(name, 0o755, dir_fd=above)


def _clear(above: int, name: bytes) -> None:
    """Remove whatever has the name, links as links."""
    if name in {b"", b".", b".."}:
        raise ImageError("the image takes away a path without a name")
    found = _kind(above, name)
    if found is None:
        return
    if stat.S_ISDIR(found):
        shutil.rmtree(name, dir_fd=above)
    else:
        os.unlink(name, dir_fd=above)


def _empty(above: int, folder: bytes, placed: set[bytes]) -> None:
    """Take from a folder what layers below put there."""
    for entry in os.listdir(above):
        name = os.fsencode(entry)
        path = folder + b"/" + name if folder else name
        if path not in placed:
            _clear(above, name)
        elif stat.S_ISDIR(_kind(above, name) or 0):
            inner = os.open(name, _FOLDER, dir_fd=above)
            try:
                _empty(inner, path, placed)
            finally:
                os.close(inner)
