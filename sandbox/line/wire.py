"""The host's side of the frames: puts requests together and takes apart what comes from inside, trusting nothing."""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandbox.errors import SandboxLostError
from sandbox.inside import protocol as inside

_REQUEST = 8 * 1024 * 1024
_EMPTY = frozenset({inside.END, inside.CLOSE, inside.ALIVE})
_LENGTHS = {
    inside.CREDIT: inside.COUNT.size,
    inside.OPEN: inside.COUNT.size,
    inside.DONE: inside.DONE_FIELDS.size,
}
_PIECES = frozenset({inside.DATA, inside.HEAD_OUTPUT, inside.TAIL_OUTPUT, inside.STATE_BYTES})
_WORDS = frozenset({inside.HELLO, inside.REFUSED})


class BrokenLineError(SandboxLostError):
    """What came over the line is no answer of a supervisor."""


@dataclass(frozen=True)
class Frame:
    """One piece of an answer. Its length fits its kind."""

    kind: int
    channel: int
    data: bytes


@dataclass(frozen=True)
class Done:
    """How a request ended. All but ``code`` matter for commands only."""

    code: int
    timed_out: bool
    unclean: bool
    starved: int
    cut: int


class Frames:
    """Cuts a byte stream into frames; holds at most one of them."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Raises BrokenLineError."""
        self._buffer += data
        at, size = 0, inside.HEAD.size
        try:
            while len(self._buffer) - at >= size:
                kind, channel, length = inside.HEAD.unpack_from(self._buffer, at)
                _check(kind, length)
                if len(self._buffer) - at < size + length:
                    return
                with memoryview(self._buffer) as whole:
                    data = bytes(whole[at + size : at + size + length])
                yield Frame(kind, channel, data)
                at += size + length
        finally:
            del self._buffer[:at]


def _check(kind: int, length: int) -> None:
    fits = (
        (kind in _EMPTY and length == 0)
        or (kind in _LENGTHS and length == _LENGTHS[kind])
        or (kind in _PIECES and 0 < length <= inside.FRAME)
        or (kind in _WORDS and length <= inside.FRAME)
    )
    if not fits:
        raise BrokenLineError(f"a frame of kind {kind} and {length} bytes came, which no supervisor sends")


def frame(kind: int, channel: int, data: bytes = b"") -> bytes:
    """One frame to the supervisor."""
    return inside.HEAD.pack(kind, channel, len(data)) + data


def request(channel: int, *words: Any) -> bytes:
    """A request in as many frames as it needs. Raises SandboxLostError for one that is longer than 8 MiB."""
    data = marshal.dumps(words, 2)
    if len(data) > _REQUEST:
        raise SandboxLostError(f"a request of {len(data)} bytes is too long for a sandbox's line")
    *parts, last = [data[at : at + inside.FRAME] for at in range(0, len(data), inside.FRAME)]
    return b"".join([*(frame(inside.PART, channel, part) for part in parts), frame(inside.ASK, channel, last)])


def done(data: bytes) -> Done:
    """What a DONE frame says."""
    code, flags, starved, cut = inside.DONE_FIELDS.unpack(data)
    return Done(code, bool(flags & inside.TIMED_OUT), bool(flags & inside.UNCLEAN), starved, cut)


def count(data: bytes) -> int:
    """The number of a CREDIT or OPEN frame."""
    return int(inside.COUNT.unpack(data)[0])
