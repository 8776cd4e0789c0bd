"""A pack read ahead of git: kinds, sizes and chains as declared, inflated within a budget, nothing kept.

Git would inflate 256 MiB out of 261 KB before it says a word; here a pack that declares too much, or holds more than it
declares, is refused in milliseconds. Format: git-scm.com/docs/pack-format.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from broker.config.policy import Policy
from broker.wire import Finding

_COMMIT, _TREE, _BLOB, _TAG, _NEAR_DELTA, _NAMED_DELTA = 1, 2, 3, 4, 6, 7
_PIECE = 4096
_SMALLEST = 9  # a byte of header and eight of zlib around nothing
_MAX_CHAIN = 4095  # git's own limit


@dataclass(frozen=True)
class Room:
    """How much a pack may hold: objects, bytes of one of them and of all, inflated, deltas at their results' size."""

    objects: int
    one: int
    all: int


def room_for(policy: Policy) -> Room:
    """Several times what the policy would let through, so that its own findings name what is a little too much."""
    return Room(
        objects=16 * policy.max_files + 8_000,
        one=max(16 << 20, 4 * policy.max_file_bytes),
        all=max(32 << 20, 8 * policy.max_total_bytes),
    )


class _BadPackError(Exception):
    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def survey(pack: bytes, room: Room, hash_bytes: int) -> Finding | None:
    """Why the pack is not even shown to git; None if it may be."""
    try:
        _Reader(pack, room, hash_bytes).read()
    except _BadPackError as bad:
        mend = "seal the tree again from the granted base, and propose a smaller change"
        return Finding(rule=bad.rule, severity="fatal", message=f"the pack {bad}", mend=mend)
    return None


class _Reader:
    def __init__(self, pack: bytes, room: Room, hash_bytes: int) -> None:
        self._pack = memoryview(pack)
        self._end = len(pack) - hash_bytes
        self._hash_bytes = hash_bytes
        self._room = room
        self._left = room.all
        self._at = 12
        self._seen: dict[int, int] = {}  # where an object begins, and how many deltas it hangs on

    def read(self) -> None:
        head = bytes(self._pack[:12])
        if self._end < 12 or head[:4] != b"PACK" or head[4:8] not in {b"\0\0\0\2", b"\0\0\0\3"}:
            raise _BadPackError("pack-rejected", "is none")
        count = int.from_bytes(head[8:], "big")
        if count * _SMALLEST > self._end - 12:
            raise _BadPackError("pack-rejected", f"says that it holds {count} objects and is too short for them")
        if count > self._room.objects:
            raise _BadPackError("pack-too-large", f"holds {count} objects, more than {self._room.objects}")
        for _ in range(count):
            self._object()
        if self._at != self._end:
            raise _BadPackError("pack-rejected", "does not end where its objects end")

    def _object(self) -> None:
        start = self._at
        kind, size = self._header()
        chain = self._chain(start, kind)
        self._spend(size)
        begin = self._inflate(size)
        if kind in {_NEAR_DELTA, _NAMED_DELTA}:
            _source, at = _number(begin, 0)
            self._spend(_number(begin, at)[0])
        self._seen[start] = chain

    def _header(self) -> tuple[int, int]:
        byte = self._byte()
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 128:
            byte = self._byte()
            size |= (byte & 127) << shift
            shift += 7
            if shift > 60:
                raise _BadPackError("pack-rejected", "declares a size without end")
        return kind, size

    def _chain(self, start: int, kind: int) -> int:
        if kind in {_COMMIT, _TAG}:
            raise _BadPackError("hidden-object", "holds a commit or a tag, which no proposal needs")
        if kind == _NEAR_DELTA:
            below = self._seen.get(start - self._offset())
            if below is None or below >= _MAX_CHAIN:
                raise _BadPackError("pack-rejected", "holds a delta whose base is not there, or too far away")
            return below + 1
        if kind == _NAMED_DELTA:
            self._at += self._hash_bytes
        elif kind not in {_TREE, _BLOB}:
            raise _BadPackError("pack-rejected", f"holds an object of kind {kind}")
        return 0

    def _offset(self) -> int:
        byte = self._byte()
        offset, read = byte & 127, 1
        while byte & 128:
            byte = self._byte()
            offset, read = (offset + 1 << 7) | (byte & 127), read + 1
            if read > 9:
                raise _BadPackError("pack-rejected", "holds an offset without end")
        return offset

    def _byte(self) -> int:
        if self._at >= self._end:
            raise _BadPackError("pack-rejected", "is cut")
        self._at += 1
        return self._pack[self._at - 1]

    def _spend(self, size: int) -> None:
        self._left -= size
        if size > self._room.one or self._left < 0:
            most = self._room.one if size > self._room.one else self._room.all
            raise _BadPackError("pack-too-large", f"unpacks to more than {most} bytes")

    def _inflate(self, size: int) -> bytes:
        """Passes one object's bytes; its beginning, which is all that a delta needs to tell its size."""
        stream, seen, begin = zlib.decompressobj(), 0, b""
        while not stream.eof:
            piece = self._pack[self._at : min(self._at + _PIECE, self._end)]
            if not piece:
                raise _BadPackError("pack-rejected", "is cut")
            try:
                out = stream.decompress(piece, size - seen + 1)
            except zlib.error:
                raise _BadPackError("pack-rejected", "holds bytes that do not inflate") from None
            seen += len(out)
            if seen > size:
                break
            begin = begin if len(begin) >= 20 else (begin + out)[:20]
            self._at += len(piece) - len(stream.unused_data) - len(stream.unconsumed_tail)
        if seen != size:
            raise _BadPackError("pack-rejected", "holds an object of another size than declared")
        return begin


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if not byte & 128:
            return value, at
    raise _BadPackError("pack-rejected", "holds a delta that is cut")
