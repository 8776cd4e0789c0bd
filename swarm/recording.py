"""What the journal keeps of a model call, to play it back: the request's digest and the whole answer. Pure.

A digest leaves out whose request it was and how long it might take: two runs of one task ask the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pool.errors import ContextOverflowError, PermanentError, PoisonError, PoolError
from pool.types import ChatRequest, Choice, CompletionRequest, Message, ToolCall

OVERFLOW = "overflow"
"""``about`` of the note that a request was too long; beside it the request's digest and the window in tokens."""
TOO_LONG = "the request was too long: "
REFUSED = "refused"
"""``about`` of the note that a request was turned down for another reason; beside it its digest and the error."""
SAID = "A message from "
"""Begins what a person said, as the model is told of it: never taken for the result of a tool."""
BEFORE = "before"
"""``about`` of the line of a test run before any change, which is no turn of the work."""
NO_ANSWER = (OVERFLOW, REFUSED)
_WHOSE = {"session", "program", "deadline", "request_class", "cache_salt", "messages", "tools"}
_LATER = {"sampling", "template", "effort", "tool_choice"}
"""Fields that requests of older journals had not: where they say nothing a request is named as it was before."""
_LENGTH = 32  # hexadecimal digits


def mark(message: Message) -> str:
    """Names a message by its content."""
    return _hashed(message.model_dump_json(exclude_defaults=True))


def digest(request: ChatRequest | CompletionRequest, marks: Sequence[str] | None = None) -> str:
    """Names a request by what it asks. ``marks`` are those of its messages, where the caller has them already."""
    asked: dict[str, Any] = request.model_dump(mode="json", exclude=_WHOSE)
    asked = {name: value for name, value in asked.items() if name not in _LATER or _says(value)}
    if isinstance(request, ChatRequest):
        asked["tools"] = [tool.model_dump(mode="json") for tool in request.tools]
        asked["messages"] = list(marks) if marks is not None else [mark(message) for message in request.messages]
    return _hashed(json.dumps(asked, sort_keys=True))


def fingerprint(output: bytes) -> str:
    """Names the output of a command."""
    return hashlib.sha256(output).hexdigest()[:_LENGTH]


def answer_of(choice: Choice, message: Message) -> dict[str, Any]:
    """What a choice holds beyond the message that was made of it; mostly nothing, since the message is kept anyway."""
    kept: dict[str, Any] = {}
    if choice.content != message.content:
        kept["content"] = choice.content
    if choice.reasoning != message.reasoning and (message.reasoning or not choice.tool_calls):  # it may have been read
        kept["reasoning"] = choice.reasoning
    if choice.torn:
        kept["torn"] = [call.model_dump(mode="json", exclude_defaults=True) for call in choice.torn]
    if not _same(choice.tool_calls, message.tool_calls):
        kept["tool_calls"] = [call.model_dump(mode="json", exclude_defaults=True) for call in choice.tool_calls]
    return kept


def choice_of(data: Mapping[str, Any]) -> Choice:
    """The choice again, out of a `model_call` line that holds its message and ``answer``. Raises ValueError."""
    message = Message.model_validate(data.get("message", {"role": "assistant"}))
    known = {"content": message.content, "reasoning": message.reasoning, "tool_calls": message.tool_calls}
    known["finish_reason"] = data["finish_reason"]
    return Choice.model_validate(known | dict(data.get("answer", {})))


def error_of(data: Mapping[str, Any]) -> PoolError:
    """The error again that a note about OVERFLOW or REFUSED tells of."""
    text = str(data.get("text", ""))
    if data.get("about") == OVERFLOW:
        return ContextOverflowError(text.removeprefix(TOO_LONG), window=data.get("window"))
    kinds = {kind.__name__: kind for kind in (PermanentError, PoisonError, ContextOverflowError)}
    return kinds.get(str(data.get("error")), PoolError)(text)


def _says(value: Any) -> bool:
    return any(item is not None for item in value.values()) if isinstance(value, dict) else value not in (None, "auto")


def _same(asked: Iterable[ToolCall], kept: Iterable[ToolCall]) -> bool:
    """Whether the calls that were kept would be read as those that were asked for."""
    return [_meant(call) for call in asked] == [_meant(call) for call in kept]


def _meant(call: ToolCall) -> tuple[str, Any, str]:
    try:
        return call.name, json.loads(call.arguments), call.fault
    except (ValueError, RecursionError):
        return call.name, call.arguments, call.fault


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_LENGTH]
