"""The engine's framing of an exec's output, taken apart: kind, three zeros, length, data. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator

OUTPUT = 1
_HEAD = struct.Struct(">BxxxI")


class Unframer:
    """Keeps no more than what it was given last and an unfinished head: a frame is handed on as it comes in."""

    def __init__(self) -> None:
        self._held = b""
        self._kind = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Pieces of output with their stream, 1 or 2, in order; a frame may come in many."""
        data, at = self._held + data, 0
        self._held = b""
        while at < len(data):
            if not self._left:
                if len(data) - at < _HEAD.size:
                    self._held = data[at:]
                    return
                self._kind, self._left = _HEAD.unpack_from(data, at)
                at += _HEAD.size
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            if piece:
                yield self._kind, piece
