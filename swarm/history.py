"""The conversation as data: text made fit for a model, older output elided, messages rebuilt from the journal. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pool.types import Message, Traits
from swarm.recording import OVERFLOW, SAID
from swarm.types import Step

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_MARK = "[output removed to make room: {} characters; run or view it again where it matters]"
_SHORT = 300
_TYPED = 4000  # characters
OPENING = "opening"
ELIDED = "elided"
CONDENSED = "condensed"
ANEW = "begun anew"
QUARANTINED = "quarantined"
LONGER = "longer window"
MOVED = "another tier"
"""``about`` of the note that a conversation goes on with another tier than it began with, as a fork may."""
FORM = "form"
"""``about`` of the note that calls are spoken in a looser form from then on; the prompt stays as it was."""
CUT_OFF = "the last command was interrupted"
"""``text`` of the line that stands for the result of a call which a restart cut off."""
ENDS = "ends"
"""The key of a result's line with which the work ends."""
BREAKS = (ELIDED, CONDENSED, ANEW, QUARANTINED, LONGER)
"""``about`` of the notes after which a request does not begin with the bytes of the one before, or asks elsewhere."""


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
    touched, nor is what a person said. Short results and those already elided stay as they are: where nothing is left
    to remove the result equals the input, and asking again would not help.
    """
    results = [index for index, message in enumerate(messages) if index >= 2 and _is_result(message)]
    old = set(results[: max(0, len(results) - keep)])
    return tuple(
        message.model_copy(update={"content": _MARK.format(len(message.content))})
        if index in old and len(message.content) > _SHORT
        else message
        for index, message in enumerate(messages)
    )


def _is_result(message: Message) -> bool:
    """Whether a message may be what a tool gave; a person's words of a length that nobody types count as that."""
    said = message.content.startswith(SAID) and len(message.content) <= _TYPED
    return message.role in ("tool", "user") and not said


def continued(opening: Sequence[Message], added: str) -> tuple[Message, ...]:
    """The opening with something at its very end, where it breaks the least of a cached prefix.

    Within the last message, since some chat templates refuse two of a kind in a row.
    """
    *before, last = opening
    return (*before, last.model_copy(update={"content": f"{last.content}\n\n{added}"}))


def size(messages: Iterable[Message]) -> int:
    """Characters of a conversation, calls included."""
    return sum(len(m.content) + sum(len(call.arguments) + len(call.name) for call in m.tool_calls) for m in messages)


@dataclass(frozen=True)
class Past:
    """What the journal holds of an earlier part of the same attempt.

    ``answers`` are the model's so far, ``answer`` is the line of the last one and ``heard_in`` the form in which it was
    read; of its calls the first ``told`` have their result. ``counted`` are the tokens of the last request as the
    server counted them, and its bytes; zeros where nothing was counted.
    """

    messages: tuple[Message, ...]
    native: bool
    changed: bool
    failing: bool = False
    opening: tuple[Message, ...] = ()
    notes: str = ""
    traits: Traits | None = None
    began_on: str = ""
    tier: str = ""
    tools: str = ""
    ladder: tuple[str, ...] = ()
    form: Mapping[str, Any] = field(default_factory=dict)
    counted: tuple[int, int] = (0, 0)
    answers: int = 0
    answer: Mapping[str, Any] = field(default_factory=dict)
    heard_in: Mapping[str, Any] = field(default_factory=dict)
    told: int = 0


def rebuild(steps: Iterable[Step]) -> Past | None:
    """The conversation as it stood when the journal ends. None where no conversation had begun."""
    past: Past | None = None
    for step in steps:
        past = after(past, step.data)
    return past


def after(past: Past | None, data: Mapping[str, Any]) -> Past | None:
    """What stands after one more line."""
    about = str(data.get("about", ""))
    if about == OPENING:
        return _begun(data)
    if past is None:
        return None
    if (change := _CHANGES.get(about)) is not None:
        return change(past, data)
    return _said(past, data) if "message" in data else past


def _begun(data: Mapping[str, Any]) -> Past:
    opening = tuple(map(_message, data["messages"]))
    tier = str(data.get("tier", ""))
    return Past(
        opening,
        bool(data["native"]),
        changed=False,
        failing=bool(data.get("failing")),
        opening=opening,
        traits=Traits.model_validate(data["traits"]) if "traits" in data else None,
        began_on=tier,
        tier=tier,
        tools=str(data.get("tools", "")),
        ladder=tuple(data.get("ladder", ())),
        form=data.get("form", {}),
    )


def _said(past: Past, data: Mapping[str, Any]) -> Past:
    message = _message(data["message"])
    known = replace(past, messages=(*past.messages, message), changed=past.changed or bool(data.get("changed")))
    if message.role == "assistant":
        counted = counted_in(data) or past.counted
        return replace(known, counted=counted, answers=past.answers + 1, answer=data, heard_in=past.form, told=0)
    return replace(known, told=past.told + int("tool" in data or data.get("text") == CUT_OFF))


def _elided(past: Past, data: Mapping[str, Any]) -> Past:
    return replace(past, messages=elide(past.messages, int(data["keep"])))


def _condensed(past: Past, data: Mapping[str, Any]) -> Past:
    notes = str(data["notes"])
    return replace(past, messages=(*continued(past.opening, notes), *past.messages[int(data["kept"]) :]), notes=notes)


def _anew(past: Past, data: Mapping[str, Any]) -> Past:
    opening = tuple(map(_message, data["messages"]))
    return replace(past, messages=opening, opening=opening, notes="")


def _quarantined(past: Past, data: Mapping[str, Any]) -> Past:
    changed = {int(index): _message(message) for index, message in data["changed"]}
    return replace(past, messages=tuple(changed.get(n, message) for n, message in enumerate(past.messages)))


def _loosened(past: Past, data: Mapping[str, Any]) -> Past:
    return replace(past, form=data["form"])


def _longer(past: Past, data: Mapping[str, Any]) -> Past:
    known = {"traits": Traits.model_validate(data["traits"]), "form": data.get("form", past.form)}
    return replace(past, tier=str(data["tier"]), counted=(0, 0), **known)


def _moved(past: Past, data: Mapping[str, Any]) -> Past:
    return replace(_longer(past, data), began_on=str(data["tier"]))


def _overflown(past: Past, data: Mapping[str, Any]) -> Past:
    if past.traits is None:
        return past
    counted = (int(data["prompt"]), int(data["weight"])) if data.get("prompt") else past.counted
    return replace(past, traits=narrowed(past.traits, data.get("window")), counted=counted)


_CHANGES: Mapping[str, Callable[[Past, Mapping[str, Any]], Past]] = {
    ELIDED: _elided,
    CONDENSED: _condensed,
    ANEW: _anew,
    QUARANTINED: _quarantined,
    LONGER: _longer,
    MOVED: _moved,
    OVERFLOW: _overflown,
    FORM: _loosened,
}


def narrowed(traits: Traits, window: int | None) -> Traits:
    """Traits with the window that a server named, where that is smaller than was known."""
    if window is None or (traits.window is not None and traits.window <= window):
        return traits
    return traits.model_copy(update={"window": window})


def counted_in(data: Mapping[str, Any]) -> tuple[int, int] | None:
    """What a model call's line tells of its request: tokens and bytes. None where that is no measure of a window, as
    the sum of a virtual model's parts."""
    tokens, weight = data.get("prompt_tokens"), data.get("weight")
    return (int(tokens), int(weight)) if tokens and weight and "report" not in data else None


def _message(data: Any) -> Message:
    return Message.model_validate(data)
