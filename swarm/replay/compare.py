"""How a replayed line differs from the recorded one, and whether that is more than times and numbers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pool.types import Message
from swarm.types import Frozen, Step

What = Literal["order", "request", "command", "exit code", "output", "tree", "verdict"]
_SHOWN = 300
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b(?=[a-f]*\d)[0-9a-f]{7,64}\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_TEMPORARY = re.compile(r"(?<=/tmp/)[\w.-]+|\b(?:tmp|temp|probe)[-_.]?[a-z0-9_]{6,}\b", re.IGNORECASE)
_ENDS = ("exit_code", "timed_out", "out_of_memory")


class Difference(Frozen):
    """One thing that was not as recorded. ``step`` is the recorded line's number, ``noise`` holds for mere numbers."""

    step: int | None
    what: What
    recorded: str
    replayed: str
    noise: bool = False


def plain(text: str) -> str:
    """Text without what differs from run to run: times, numbers, object ids, names of temporary files."""
    return _NUMBERS.sub("0", _TEMPORARY.sub("tmp", text))


def lines(recorded: Step, kind: str, data: Mapping[str, Any]) -> Difference | None:
    """How a line differs from the recorded one at its place; None where it does not."""
    if recorded.kind != kind or recorded.data.get("tool") != data.get("tool"):
        return Difference(step=recorded.seq, what="order", recorded=_told(recorded), replayed=_named(kind, data))
    if kind == "model_call":
        return None  # what was asked is compared when it is asked
    if recorded.data.get("path") != data.get("path"):
        return _differ(recorded, "command", recorded.data.get("path"), data.get("path"))
    ended, ends = ([each.get(key) for key in _ENDS] for each in (recorded.data, data))
    if ended != ends:
        return _differ(recorded, "exit code", _ending(recorded.data), _ending(data))
    return _outputs(recorded, data)


def requests(step: Step, recorded: Sequence[Message], asked: Sequence[Message], known: set[int]) -> list[Difference]:
    """What is another message in the request than was recorded; ``known`` are those told of already."""
    found = []
    for index in range(max(len(recorded), len(asked))):
        before = recorded[index] if index < len(recorded) else None
        after = asked[index] if index < len(asked) else None
        if before == after or index in known:
            continue
        known.add(index)
        left, right = _words(before), _words(after)
        noise = before is not None and after is not None and before.role == after.role and plain(left) == plain(right)
        first, second = _first(left, right)
        found.append(
            Difference(
                step=step.seq,
                what="request",
                recorded=f"message {index + 1}: {first}",
                replayed=f"message {index + 1}: {second}",
                noise=noise,
            )
        )
    return found


def _outputs(recorded: Step, data: Mapping[str, Any]) -> Difference | None:
    left, right = (_text(each) for each in (recorded.data, data))
    if left == right and recorded.data.get("output") == data.get("output"):
        return None
    first, second = _first(left, right)
    noise = plain(left) == plain(right)
    return Difference(step=recorded.seq, what="output", recorded=first, replayed=second, noise=noise)


def _differ(recorded: Step, what: What, before: object, after: object) -> Difference:
    return Difference(step=recorded.seq, what=what, recorded=str(before)[:_SHOWN], replayed=str(after)[:_SHOWN])


def _first(left: str, right: str) -> tuple[str, str]:
    """The first lines that differ; where only what was cut off differs, the beginnings."""
    for before, after in zip(left.splitlines(), right.splitlines(), strict=False):
        if before != after:
            return before[:_SHOWN], after[:_SHOWN]
    if left == right:
        return "the same to the model, other bytes", "the same to the model, other bytes"
    return f"{len(left.splitlines())} lines", f"{len(right.splitlines())} lines"


def _words(message: Message | None) -> str:
    if message is None:
        return ""
    return "\n".join([message.content, *(f"{call.name} {call.arguments}" for call in message.tool_calls)])


def _text(data: Mapping[str, Any]) -> str:
    message = data.get("message")
    return str(message.get("content", "")) if isinstance(message, Mapping) else str(data.get("text", ""))


def _ending(data: Mapping[str, Any]) -> str:
    flags = [key.replace("_", " ") for key in _ENDS[1:] if data.get(key)]
    return ", ".join([f"exit code {data.get('exit_code')}", *flags])


def _told(step: Step) -> str:
    return _named(step.kind, step.data)


def _named(kind: str, data: Mapping[str, Any]) -> str:
    words = data.get("tool") or data.get("path") or data.get("text") or ""
    return f"{kind} {str(words)[:_SHOWN]}".strip()
