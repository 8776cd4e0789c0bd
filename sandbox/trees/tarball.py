"""Reads a tar stream that an agent may have forged, and writes plain ones. Pure parsing, nothing touches a disk.

The reader is our own since the stream is hostile and live: the standard library's parser wants a file object in a
thread, walks pax headers with a regular expression that a crafted header stalls (CVE-2024-6232), and can loop for
ever on a negative offset (CVE-2025-8194). What GNU tar writes with ``--format=gnu`` is small enough to read strictly;
of pax headers, which images hold, names and sizes are read.
"""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

from sandbox.errors import WorkspaceError

BLOCK = 512
_NAME_LIMIT = 64 * 1024
_SPARSE_LIMIT = 4096
_PAX_LIMIT = 1024 * 1024
_MOST_ENTRIES = 200_000
_ZEROS = bytes(64 * 1024)
_EMPTY = bytes(BLOCK)

Kind = Literal["file", "directory", "symlink", "hardlink", "other"]
_KINDS: dict[bytes, Kind] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"S": "file",
    b"5": "directory",
    b"2": "symlink",
    b"1": "hardlink",
}
_BODILESS = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})


@dataclass(frozen=True)
class Member:
    """One entry. ``size`` is what its content expands to; ``spans`` are the data runs of a file with holes."""

    kind: Kind
    name: bytes
    link: bytes
    mode: int
    size: int
    stored: int
    spans: tuple[tuple[int, int], ...] | None = None
    mtime: int = 0

    @property
    def holes(self) -> int:
        """Bytes of the content that nobody stored."""
        return max(0, self.size - sum(length for _, length in self.spans)) if self.spans is not None else 0


class TarReader:
    """Pulls entries off a stream: ``async for member in reader``, and ``reader.content()`` for the current one."""

    def __init__(
        self, stream: AsyncIterator[bytes], *, limit: int, most: int = _MOST_ENTRIES, pax: bool = False
    ) -> None:
        """``limit`` bounds the bytes taken off the stream, and those of holes; ``most`` the entries.

        Without ``pax`` such headers are refused.

        Every malformed input raises WorkspaceError.
        """
        self._stream = stream
        self._limit = limit
        self._most = most
        self._pax = pax
        self._buffer = bytearray()
        self._taken = 0
        self._left = 0
        self._holes = 0
        self._current: Member | None = None

    async def __aiter__(self) -> AsyncIterator[Member]:
        """Entries in order; ends at the end marker, and insists on it, since a cut stream would look like deletions."""
        count = 0
        while (member := await self._next()) is not None:
            count += 1
            if count > self._most:
                raise WorkspaceError(f"the export holds more than {self._most} entries; remove build products")
            self._current, self._left = member, _padded(member.stored)
            yield member
            await self._skip()
        while await self._more():
            self._buffer.clear()

    async def content(self) -> AsyncIterator[bytes]:
        """Content of the current entry, its holes filled with zeros."""
        member = self._current
        if member is None:
            raise WorkspaceError("no entry is being read")
        position = 0
        for start, length in member.spans if member.spans is not None else ((0, member.size),):
            for hole in self._hole(start - position):
                yield hole
                await asyncio.sleep(0)  # nobody is waited for here, so others would get no turn
            async for chunk in self._data(length):
                yield chunk
            position = start + length
        for hole in self._hole(member.size - position):
            yield hole
            await asyncio.sleep(0)

    def _hole(self, length: int) -> Iterator[bytes]:
        """The zeros of a hole: they cost the sender nothing, so all together are bounded as the stream is."""
        self._holes += max(0, length)
        if self._holes > self._limit:
            raise WorkspaceError(f"holes in its files come to more than {self._limit} bytes")
        return _zeros(length)

    async def _data(self, length: int) -> AsyncIterator[bytes]:
        while length:
            chunk = await self._some(min(length, 256 * 1024))
            length -= len(chunk)
            self._left -= len(chunk)
            yield chunk

    async def _skip(self) -> None:
        while self._left:
            self._left -= len(await self._some(self._left))

    async def _next(self) -> Member | None:
        name = link = length = None
        while True:
            block = await self._exactly(BLOCK)
            if block == _EMPTY:
                return None
            kind, size = _header(block)
            if kind == b"L":
                name = await self._long(size)
            elif kind == b"K":
                link = await self._long(size)
            elif kind in {b"x", b"g"}:
                said = await self._extended(size)
                if kind == b"x":
                    name, link = said.get(b"path", name), said.get(b"linkpath", link)
                    length = _decimal(said[b"size"]) if b"size" in said else length
            else:
                return await self._member(block, kind, name, link, size if length is None else length)

    async def _extended(self, size: int) -> dict[bytes, bytes]:
        if not self._pax:
            raise WorkspaceError("the export is no tar of the expected form (pax header)")
        if size > _PAX_LIMIT:
            raise WorkspaceError("the archive holds an extended header that is too long")
        return _records((await self._exactly(_padded(size)))[:size])

    async def _member(self, block: bytes, kind: bytes, name: bytes | None, link: bytes | None, stored: int) -> Member:
        spans, size = None, stored
        if kind == b"S":
            spans, size = await self._sparse(block, stored)
        return Member(
            kind=_KINDS.get(kind, "other"),
            name=name if name is not None else _name(block),
            link=link if link is not None else _text(block[157:257]),
            mode=_number(block[100:108]) & 0o7777,
            size=size,
            stored=0 if kind in _BODILESS else stored,
            spans=spans,
            mtime=_number(block[136:148]),
        )

    async def _sparse(self, block: bytes, stored: int) -> tuple[tuple[tuple[int, int], ...], int]:
        spans, size, more = _spans(block[386:482]), _number(block[483:495]), block[482]
        while more and len(spans) < _SPARSE_LIMIT:
            extra = await self._exactly(BLOCK)
            spans, more = spans + _spans(extra[:504]), extra[504]
        ends = 0
        for start, length in spans:
            if start < ends:
                raise WorkspaceError("the export holds a malformed sparse file")
            ends = start + length
        if more or ends > size or sum(length for _, length in spans) != stored:
            raise WorkspaceError("the export holds a malformed sparse file")
        return tuple(spans), size

    async def _long(self, size: int) -> bytes:
        if size > _NAME_LIMIT:
            raise WorkspaceError("the export holds a name that is too long")
        return (await self._exactly(_padded(size)))[:size].rstrip(b"\0")

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not await self._more():
                raise WorkspaceError("the export ended early")
        return self._cut(count)

    def _cut(self, most: int) -> bytes:
        with memoryview(self._buffer) as whole:
            data = bytes(whole[:most])
        del self._buffer[:most]
        return data

    async def _some(self, most: int) -> bytes:
        if not self._buffer and not await self._more():
            raise WorkspaceError("the export ended early")
        return self._cut(most)

    async def _more(self) -> bool:
        async for chunk in self._stream:
            self._taken += len(chunk)
            if self._taken > self._limit:
                raise WorkspaceError(f"the export is larger than {self._limit} bytes; remove build products from it")
            self._buffer += chunk
            if chunk:
                return True
        return False


def header(name: bytes, mode: int, size: int, mtime: int, link: bytes | None = None) -> bytes:
    """Header of a file, of a symbolic link when ``link`` is given, or of a folder when ``name`` ends with a slash."""
    info = tarfile.TarInfo(_decoded(name.rstrip(b"/")))
    info.mode, info.size, info.mtime = mode, size, mtime
    if name.endswith(b"/"):
        info.type = tarfile.DIRTYPE
    if link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, _decoded(link)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """What follows a content of ``size`` bytes."""
    return bytes(_padded(size) - size)


END = bytes(2 * BLOCK)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _zeros(length: int) -> Iterator[bytes]:
    while length > 0:
        yield _ZEROS[:length]
        length -= len(_ZEROS)


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _name(block: bytes) -> bytes:
    """The name field; POSIX puts the front of a long one elsewhere, where GNU keeps other things."""
    front = _text(block[345:500]) if block[257:263] == b"ustar\0" else b""
    return front + b"/" + _text(block[:100]) if front else _text(block[:100])


def _records(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax header, each ``LENGTH KEY=VALUE`` and a line feed. Sparse files in this form are refused."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        digits, space, _ = data[at : at + 20].partition(b" ")
        end = at + _decimal(digits)
        record = data[at + len(digits) + 1 : end]
        key, equals, value = record.partition(b"=")
        if not space or not equals or end > len(data) or not record.endswith(b"\n"):
            raise WorkspaceError("the archive holds a malformed extended header")
        if key.startswith(b"GNU.sparse"):
            raise WorkspaceError("the archive holds a sparse file in a form that is not read")
        found[key] = value[:-1]
        at = end
    return found


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 18:
        raise WorkspaceError("the archive holds a malformed number")
    return int(digits)


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise WorkspaceError("the export holds a negative number")
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise WorkspaceError("the export is no tar stream (bad number)")
    return int(digits or b"0", 8)


def _header(block: bytes) -> tuple[bytes, int]:
    """Type and stored size, once the checksum is right."""
    if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 0x20:
        raise WorkspaceError("the export is no tar stream (bad checksum)")
    return block[156:157], _number(block[124:136])


def _spans(field: bytes) -> list[tuple[int, int]]:
    found = []
    for at in range(0, len(field), 24):
        if not field[at : at + 24].strip(b"\0"):
            break
        found.append((_number(field[at : at + 12]), _number(field[at + 12 : at + 24])))
    return found
