"""Makes a stream of an answer that came whole, and a whole answer of one that came as a stream; pure.

A client that asked for the one cannot read the other, and servers and what stands before them now and then ignore
which was asked for. Fields that are not known here are kept: texts are joined, lists too, else the last one counts.
"""

from __future__ import annotations

from typing import Any

from pool.errors import TransientError
from pool.wire.passage import written
from pool.wire.stream import DONE, Event

JSON = dict[str, Any]
Piece = tuple[Event, JSON | None]

OWN = ("choices", "usage", "object")


class Whole:
    """Takes the pieces of a stream in their order; ``body`` is what the server would have said in one."""

    def __init__(self) -> None:
        self._head: JSON = {}
        self._usage: Any = None
        self._choices: dict[int, JSON] = {}

    def add(self, piece: JSON) -> None:
        """Take one piece, one that was judged already. Raises TransientError for an odd one."""
        self._head = self._head or {name: value for name, value in piece.items() if name not in OWN}
        self._usage = piece.get("usage") or self._usage
        try:
            for part in piece.get("choices") or ():
                _join(self._choices.setdefault(part.get("index") or 0, {}), part)
        except (AttributeError, TypeError, LookupError) as error:
            raise TransientError(f"a piece of an answer with odd parts: {error!r:.200}") from error

    @property
    def body(self) -> JSON:
        """The answer in one."""
        choices = [_told(index, choice) for index, choice in sorted(self._choices.items())]
        kind = "chat.completion" if any("message" in choice for choice in choices) else "text_completion"
        return self._head | {"object": kind, "choices": choices, "usage": self._usage}


def pieces_of(body: JSON) -> list[Piece]:
    """The events of a stream that says what a body says, its terminator included."""
    chat = any("message" in choice for choice in body["choices"])
    kind = "chat.completion.chunk" if chat else "text_completion"
    head = {name: value for name, value in body.items() if name not in OWN} | {"object": kind}
    parts = [(at, part) for at, one in enumerate(body["choices"]) for part in (_split(one) if chat else (one,))]
    pieces = [head | {"choices": [part | {"index": at}]} for at, part in parts]
    if usage := body.get("usage"):
        pieces.append(head | {"choices": [], "usage": usage})
    events: list[Piece] = [(Event("piece", raw := written(piece), raw[6:-2]), piece) for piece in pieces]
    return [*events, (Event("done", b"data: " + DONE + b"\n\n", DONE), None)]


def _split(choice: JSON) -> tuple[JSON, JSON]:
    """What a sample says, then how it ended."""
    said = {name: value for name, value in choice["message"].items() if value is not None}
    if calls := said.get("tool_calls"):
        said["tool_calls"] = [{"index": number} | call for number, call in enumerate(calls)]
    ended = {name: value for name, value in choice.items() if name not in ("message", "logprobs")}
    return {"delta": said, "finish_reason": None, "logprobs": choice.get("logprobs")}, ended | {"delta": {}}


def _told(index: int, choice: JSON) -> JSON:
    told = {name: value for name, value in choice.items() if name != "delta"} | {"index": index}
    delta = choice.get("delta")
    if delta is not None:
        message = {"role": "assistant", "content": None} | delta
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [call for _, call in sorted(calls.items())]
        elif message["content"] is None:
            message["content"] = ""
        told["message"] = message
    return told


def _join(into: JSON, part: JSON) -> None:
    """Add what a piece says to what was said before it."""
    for name, value in part.items():
        before = into.get(name)
        if value is None or name == "index":
            into.setdefault(name, None)
        elif name == "tool_calls":
            _join_calls(into, value)
        elif name in ("role", "id", "type", "finish_reason", "stop_reason"):
            into[name] = value
        elif isinstance(value, dict):
            if before is None:
                before = into[name] = {}
            _join(before, value)
        elif isinstance(value, (str, list)) and before is not None:
            into[name] = [*before, *value] if isinstance(value, list) else before + value
        else:
            into[name] = value


def _join_calls(into: JSON, calls: list[JSON]) -> None:
    known = into["tool_calls"] = into.get("tool_calls") or {}
    for number, call in enumerate(calls):
        place = call.get("index")
        _join(known.setdefault(number if place is None else place, {}), {k: v for k, v in call.items() if k != "index"})
