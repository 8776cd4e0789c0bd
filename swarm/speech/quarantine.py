"""A turn that makes a server refuse every request which holds it, found and made harmless. Pure.

One malformed call that is kept makes each later request fail with 400 or 500 (OpenHands/OpenHands#13949,
vllm-project/vllm#53269). What is kept of an answer is well-formed from the start; this is for what a server, its
template or its parser takes offence at all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pool.types import Message, ToolCall
from swarm.history import clean as printable
from swarm.speech.keeping import EMPTY, clean

REMOVED = "[an answer that the model's server would not take back; it is left out]"
_RESULT = "[what its call of {} gave]\n"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def quarantine(messages: Sequence[Message]) -> tuple[Message, ...] | None:
    """The same conversation with what a server may have refused made harmless; None where nothing is left to do.

    First every turn that looks odd (special tokens, control characters, names and arguments that are none) is cleaned;
    where none does, the last answer that is not harmless yet becomes words, and its results those of the user. So a
    caller that goes on asking until None is returned takes out one answer at a time, the newest first.
    """
    cleaned = tuple(map(_cleaned, messages))
    if cleaned != tuple(messages):
        return cleaned
    last = next((n for n in range(len(messages) - 1, 1, -1) if _suspect(messages[n])), None)
    if last is None:
        return None
    names = {call.id: call.name for call in messages[last].tool_calls}
    harmless = Message(role="assistant", content=REMOVED)
    rest = tuple(_as_words(message, names) for message in messages[last + 1 :])
    return (*messages[:last], harmless, *rest)


def _suspect(message: Message) -> bool:
    return message.role == "assistant" and message.content != REMOVED


def _as_words(message: Message, names: dict[str, str]) -> Message:
    """A result whose call is gone, as words of the user."""
    if message.role != "tool" or message.tool_call_id not in names:
        return message
    return Message(role="user", content=f"{_RESULT.format(names[message.tool_call_id or ''])}{message.content}")


def _cleaned(message: Message) -> Message:
    content = printable(message.content)
    if message.role == "assistant":
        content = clean(content) or ("" if message.tool_calls else EMPTY)
        calls = tuple(map(_clean_call, message.tool_calls))
        return message.model_copy(
            update={"content": content, "reasoning": clean(printable(message.reasoning)), "tool_calls": calls}
        )
    return message if content == message.content else message.model_copy(update={"content": content})


def _clean_call(call: ToolCall) -> ToolCall:
    name = call.name if _NAME.fullmatch(call.name) else re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unknown"
    return call.model_copy(update={"name": name, "arguments": _arguments(call.arguments), "fault": ""})


def _arguments(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "{}"
    return text if isinstance(value, dict) else "{}"
