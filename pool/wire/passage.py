"""What of a server's stream is handed on to a caller who speaks the same protocol, event by event; pure.

Handed on as it came, but for three things: usage that the pool asked for and the caller did not, a finish that speaks
of a tool call which was cut or never made, and the joint where another endpoint goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pool.wire.arguments import whole_json
from pool.wire.assembly import Assembly
from pool.wire.stream import Event

JSON = dict[str, Any]


def wants_stream(body: Mapping[str, Any]) -> bool:
    """Whether a caller asked for a stream."""
    return body.get("stream") is True


class Passage:
    """One stream on its way to a caller. ``joined`` tells it that what comes goes on after ``partial``."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        options = body.get("stream_options")
        self._usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._first: JSON = {}
        self._blanks = ""
        self._later = False
        self._spent = 0

    def joined(self, partial: str, spent: int) -> None:
        """Another endpoint goes on; ``partial`` was said, in about so many tokens."""
        self._later = True
        self._spent = spent
        self._blanks = partial[len(partial.rstrip()) :]

    def out(self, event: Event, piece: JSON | None, assembly: Assembly) -> bytes:
        """The bytes to hand on for an event; none where it is not meant for the caller."""
        if piece is None:
            return event.raw
        if not self._first:
            self._first = {key: piece[key] for key in ("id", "created", "model") if key in piece}
        changed = self._drop_usage(piece)
        if not piece.get("choices") and changed:
            return b""
        if self._later:
            self._join(piece)
            changed = True
        changed = mark_cut(piece, assembly) or changed
        return written(piece) if changed else event.raw

    def _drop_usage(self, piece: JSON) -> bool:
        if self._usage or piece.get("usage") is None:
            return False
        del piece["usage"]
        return True

    def _join(self, piece: JSON) -> None:
        """Make a later endpoint's piece one of the same answer."""
        piece.update(self._first)
        for part in piece.get("choices") or ():
            delta = part.get("delta")
            if isinstance(delta, dict):
                delta.pop("role", None)
                if isinstance(text := delta.get("content"), str):
                    delta["content"] = self._unsaid(text)
            elif isinstance(text := part.get("text"), str):
                part["text"] = self._unsaid(text)
        if isinstance(usage := piece.get("usage"), dict):
            for name in ("completion_tokens", "total_tokens"):
                usage[name] = (usage.get(name) or 0) + self._spent

    def _unsaid(self, text: str) -> str:
        """The part of a text that is new: blanks that were said already are not said again."""
        while self._blanks and text and text[0] == self._blanks[0]:
            text, self._blanks = text[1:], self._blanks[1:]
        if text:
            self._blanks = ""
        return text


def mark_cut(piece: JSON, assembly: Assembly) -> bool:
    """Let a finish by tool calls say `length` where one was cut, and `stop` where none was made; True where it did."""
    changed = False
    for part in piece.get("choices") or ():
        index = part.get("index") or 0
        if part.get("finish_reason") == "tool_calls" and not assembly.called(index, whole_json):
            part["finish_reason"] = "length" if assembly.called(index) else "stop"
            changed = True
    return changed


def written(piece: JSON) -> bytes:
    """A piece as an event."""
    try:
        data = json.dumps(piece, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair: escaped, as it came
        data = json.dumps(piece, separators=(",", ":")).encode()
    return b"data: " + data + b"\n\n"
