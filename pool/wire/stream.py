"""Cuts the bytes of a server-sent event stream into events, however they were split on the way; pure.

Source: WHATWG HTML, 9.2.6. Parsers of whole libraries work on text lines and build objects; this one keeps the bytes,
since a gateway hands them on, and is held to httpx-sse's reading in its tests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from pool.errors import TransientError

JSON = dict[str, Any]
Sort = Literal["piece", "error", "done", "comment"]

LARGEST = 16 * 1024 * 1024  # bytes of one event; more than that is no answer of a model
BOM = b"\xef\xbb\xbf"
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``raw`` are its bytes with plain line ends and the blank line, ``data`` its value; of a value that
    came in any other form than one line of data, ``raw`` is the plain form, which every reader knows.

    A ``comment`` keeps a connection open and says nothing of the engine.
    """

    sort: Sort
    raw: bytes
    data: bytes = b""

    def json(self) -> JSON:
        """The value as an object. Raises TransientError for anything else."""
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"the stream holds an event that is no JSON: {self.data[:80]!r}") from error
        if not isinstance(value, dict):
            raise TransientError(f"the stream holds an event that is no object: {self.data[:80]!r}")
        return value


class Splitter:
    """Takes bytes as they come and gives whole events. What is left at the end of a stream was never whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._started = False
        self._carriage = False

    @property
    def rest(self) -> bytes:
        """Bytes of an event that has not ended."""
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are whole now. Raises TransientError for one that never ends."""
        at = max(0, len(self._buffer) - 1)
        self._buffer += self._plain(chunk)
        if not self._started and not self._bom():
            return []
        events: list[Event] = []
        begin = 0
        while (end := self._buffer.find(b"\n\n", max(at, begin))) >= 0:
            if block := bytes(self._buffer[begin:end]).lstrip(b"\n"):
                events.append(_event(block))
            begin = end + 2
        del self._buffer[:begin]
        if len(self._buffer) > LARGEST:
            raise TransientError(f"the stream holds an event of more than {LARGEST} bytes")
        return events

    def _plain(self, chunk: bytes) -> bytes:
        """The chunk with plain line ends. A carriage return ends its line at once, or the last event would wait for a
        byte that never comes; a line feed that follows it later belongs to it."""
        if self._carriage and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._carriage = False
        self._carriage = self._carriage or chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in chunk else chunk

    def _bom(self) -> bool:
        """Drop a byte order mark; False while the first bytes may still become one."""
        if len(self._buffer) < len(BOM) and BOM.startswith(bytes(self._buffer)):
            return False
        if self._buffer.startswith(BOM):
            del self._buffer[: len(BOM)]
        self._started = True
        return True


def _event(block: bytes) -> Event:
    raw = block + b"\n\n"
    if block.startswith(b"data: ") and b"\n" not in block:
        data = block[6:]
        return Event("done" if data.strip() == DONE else "piece", raw, data)
    values, named_error = [], False
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            values.append(value)
        elif name == b"error" and colon:  # llama.cpp once sent its errors under this name
            values, named_error = [b'{"error":' + value + b"}"], True
            break
        elif name == b"event" and value == b"error":
            named_error = True
    if not values:
        return Event("comment", raw)
    data = b"\n".join(values)
    if named_error:
        return Event("error", raw, data)
    raw = b"data: " + b" ".join(values) + b"\n\n"  # a line's end within JSON is a blank
    return Event("done" if data.strip() == DONE else "piece", raw, data)
