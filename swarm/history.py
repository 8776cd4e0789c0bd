"""The conversation as data: text made fit for a model, older output elided, messages rebuilt from the journal. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pool.types import Message
from swarm.types import Step

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_MARK = "[output removed to make room: {} characters; run or view it again where it matters]"
_SHORT = 300
OPENING = "opening"
ELIDED = "elided"


def clean(text: str) -> str:
    """Text without terminal sequences and control characters; line ends become newlines, a lone CR starts a line."""
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs"))


def plain(text: str) -> str:
    """Text that UTF-8 can carry: lone surrogates, which a server's JSON may hold, become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def shorten(text: str, limit: int) -> str:
    """At most about ``limit`` characters: the head and the larger tail, with a note of what is missing between."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit * 2 // 5], text[len(text) - limit * 3 // 5 :]
    head = head[: head.rfind("\n") + 1] or head + "\n"
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail[:-1] else tail
    left_out = text[len(head.removesuffix("\n")) : len(text) - len(tail)]
    note = f"[... {len(left_out)} characters, {left_out.count(chr(10))} lines left out ...]\n"
    return head + note + tail


def elide(messages: Sequence[Message], keep: int) -> tuple[Message, ...]:
    """The same messages, the text of every tool result but the last ``keep`` replaced by a mark.

    Roles, calls and their ids stay, so that the conversation stays well-formed; the opening messages are never
    touched. Short results and those already elided stay as they are: where nothing is left to remove the result equals
    the input, and asking again would not help.
    """
    results = [index for index, message in enumerate(messages) if index >= 2 and message.role in ("tool", "user")]
    old = set(results[: max(0, len(results) - keep)])
    return tuple(
        message.model_copy(update={"content": _MARK.format(len(message.content))})
        if index in old and len(message.content) > _SHORT
        else message
        for index, message in enumerate(messages)
    )


def size(messages: Iterable[Message]) -> int:
    """Characters of a conversation, calls included."""
    return sum(len(m.content) + sum(len(call.arguments) + len(call.name) for call in m.tool_calls) for m in messages)


@dataclass(frozen=True)
class Past:
    """What the journal holds of an earlier part of the same attempt."""

    messages: tuple[Message, ...]
    native: bool
    open_calls: tuple[str, ...]
    changed: bool


def rebuild(steps: Iterable[Step]) -> Past | None:
    """The conversation as it stood when the journal ends. None where no conversation had begun.

    ``open_calls`` are ids of calls that were asked for but have no result: they were interrupted. In the text protocol
    an unanswered turn has the one id "text".
    """
    messages: tuple[Message, ...] = ()
    native, changed = False, False
    for step in steps:
        data = step.data
        if data.get("about") == OPENING:
            messages, native = tuple(_message(item) for item in data["messages"]), bool(data["native"])
        elif data.get("about") == ELIDED:
            messages = elide(messages, int(data["keep"]))
        elif messages and "message" in data:
            messages = (*messages, _message(data["message"]))
            changed = changed or bool(data.get("changed"))
    if not messages:
        return None
    return Past(messages, native, _open_calls(messages, native=native), changed)


def _message(data: Any) -> Message:
    return Message.model_validate(data)


def _open_calls(messages: Sequence[Message], *, native: bool) -> tuple[str, ...]:
    """Ids of the last turn's calls that nothing answers."""
    answered: set[str | None] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            if not native or not message.tool_calls:
                return () if answered else ("text",)
            return tuple(call.id for call in message.tool_calls if call.id not in answered)
        answered.add(message.tool_call_id)
    return ()
