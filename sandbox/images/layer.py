"""What a set-up added to a workspace, as one tar: taken out of its hostile export, and kept away from what git tracks.

A layer never holds a path that the checkout has, nor one above or below it of another kind, nor anything called .git:
whatever a set-up did to those is forgotten. It is laid over a checkout inside a sandbox, by the agent's user.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from sandbox.errors import SetUpError
from sandbox.trees.names import above, git_among, normal
from sandbox.trees.tarball import END, Member, TarReader, header, padding
from sandbox.types import GIB, MIB

HOME_TAR = b".agent-swarm-home.tar"
_CHUNK = 256 * 1024
_CHECKOUT = 64 * GIB  # bytes, of a stream of our own making
_FILES = 10_000_000
_PART_MTIME = 315_619_200  # the second day of 1980: archives of the zip kind hold no earlier time
_LATEST = 2**33 - 1  # what a tar's plain number field holds


@dataclass(frozen=True)
class Entry:
    """One path of a layer: what it is, and what tells whether it was changed since. Seconds."""

    kind: str
    size: int
    mtime: int


@dataclass
class Index:
    """The paths of a layer. ``made`` are folders that are the layer's alone."""

    entries: dict[bytes, Entry] = field(default_factory=dict)
    made: set[bytes] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.entries.values())

    def holds(self, path: bytes, member: Member) -> bool:
        """Whether an entry of a later export is the layer's still: unchanged, or in a folder of the layer's own."""
        if path in self.made or any(up in self.made for up in above(path)):
            return True
        return self.entries.get(path) == Entry(member.kind, member.size, min(member.mtime, _LATEST))

    def roots(self) -> list[bytes]:
        """The topmost paths, folders with a slash at their end."""
        tops = [path for path in self.entries if not any(up in self.made for up in above(path))]
        return [path + b"/" if path in self.made else path for path in tops]

    def dumps(self) -> str:
        """As JSON."""
        rows = [[name.hex(), each.kind, each.size, each.mtime] for name, each in self.entries.items()]
        return json.dumps({"entries": rows, "made": sorted(name.hex() for name in self.made)})

    @classmethod
    def loads(cls, text: str) -> Index:
        """Back from JSON. Raises ValueError, KeyError and TypeError for what `dumps` did not write."""
        data = json.loads(text)
        rows = {bytes.fromhex(name): Entry(kind, size, mtime) for name, kind, size, mtime in data["entries"]}
        return cls(rows, {bytes.fromhex(name) for name in data["made"]})

    def disagrees(self, paths: Collection[bytes]) -> bool:
        """Whether a checkout cannot simply be laid over the layer: what is a file in one is a folder in the other."""
        for path in paths:
            mine = self.entries.get(path)
            if mine is not None and mine.kind != "file":
                return True
            if any((each := self.entries.get(up)) and each.kind != "directory" for up in above(path)):
                return True
        return False


async def layer_of(
    export: AsyncIterator[bytes], tracked: Collection[bytes], index: Index, *, limit: int
) -> AsyncGenerator[bytes, None]:
    """The layer as a tar stream; ``index`` is filled on the way.

    Raises SetUpError where it would hold more than ``limit`` bytes, WorkspaceError for a malformed stream.
    """
    folders = {up for path in tracked for up in above(path)}
    files, left = set(tracked), limit
    reader = TarReader(export, limit=2 * limit + 64 * MIB)
    async with aclosing(_entries(reader)) as entries:
        async for member in entries:
            path = normal(member.name)
            if path is None or not _belongs(path, member, index, files, folders):
                continue
            left -= member.size
            if left < 0:
                raise SetUpError(f"the set-up left more than {limit} bytes; raise sandbox.limits.disk or install less")
            index.entries[path] = Entry(member.kind, member.size, min(member.mtime, _LATEST))
            if member.kind == "directory":
                index.made.add(path)
            yield _head(path, member)
            if member.kind == "file":
                async for chunk in reader.content():
                    yield chunk
                yield padding(member.size)
    yield END


async def part_of(stream: AsyncIterator[bytes], wanted: Collection[bytes]) -> AsyncGenerator[bytes, None]:
    """Of a checkout's tar stream the wanted files alone, without .git and without the time of its commit."""
    reader = TarReader(stream, limit=_CHECKOUT, most=_FILES)
    async with aclosing(_entries(reader)) as entries:
        async for member in entries:
            path = normal(member.name)
            if path not in wanted or path is None or member.kind not in {"file", "symlink"}:
                continue
            yield _head(path, replace(member, mtime=_PART_MTIME))
            if member.kind == "file":
                async for chunk in reader.content():
                    yield chunk
                yield padding(member.size)
    yield END


async def _entries(reader: TarReader) -> AsyncGenerator[Member, None]:
    async for member in reader:
        yield member


def _belongs(path: bytes, member: Member, index: Index, files: set[bytes], folders: set[bytes]) -> bool:
    """Whether an entry of a set-up's export gets into its layer."""
    if member.kind == "other" or path in files or path in folders or path in index.entries:
        return False
    if git_among(path.split(b"/")) is not None:
        return False
    for up in above(path):
        over = index.entries.get(up)
        if up in files or (over is not None and over.kind != "directory"):
            return False
    if member.kind == "hardlink":
        target = index.entries.get(normal(member.link) or b"")
        return target is not None and target.kind == "file"
    return True


def _head(path: bytes, member: Member) -> bytes:
    mtime = min(member.mtime, _LATEST)
    if member.kind == "symlink":
        return header(path, 0o777, 0, mtime, member.link)
    if member.kind == "directory":
        return header(path + b"/", (member.mode & 0o777) | 0o700, 0, mtime)
    if member.kind == "file":
        return header(path, (member.mode & 0o777) | 0o600, member.size, mtime)
    info = tarfile.TarInfo(path.decode("utf-8", "surrogateescape"))
    info.type, info.mtime, info.mode = tarfile.LNKTYPE, mtime, 0o600
    info.linkname = (normal(member.link) or b"").decode("utf-8", "surrogateescape")
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
