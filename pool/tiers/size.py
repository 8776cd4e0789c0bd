"""How long requests are, in characters and about how many tokens; and shorter versions of long ones. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pool.tiers.beneath import Request
from pool.types import CompletionRequest, Message

CHARS_PER_TOKEN = 3.0  # of code and English, on the safe side: most tokenizers make 3.3 to 4.5
PER_MESSAGE = 24  # characters that a chat template adds to each message
LEFT_OUT = "[an older result was left out: the conversation had outgrown the model's window]"
KEPT = 3  # latest tool results that stay whole


def chars(request: Request) -> int:
    """Characters that a request makes a model read, tools and template included."""
    if isinstance(request, CompletionRequest):
        return len(request.prompt)
    tools = sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in request.tools)
    return tools + sum(length(message) for message in request.messages)


def length(message: Message) -> int:
    """Characters of one message, template included."""
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return len(message.content) + calls + PER_MESSAGE


def tokens(size: int, per_token: float = CHARS_PER_TOKEN) -> int:
    """About how many tokens so many characters are."""
    return int(size / per_token) + 1


def compacted(messages: Sequence[Message], keep: int = KEPT) -> tuple[Message, ...]:
    """The messages with all tool results but the last ``keep`` left out, in place, so that every call keeps its answer.

    A result that is shorter than the words that would stand for it stays.
    """
    results = [index for index, message in enumerate(messages) if message.role == "tool"]
    old = set(results[:-keep] if keep else results)
    return tuple(
        message.model_copy(update={"content": LEFT_OUT})
        if index in old and len(message.content) > len(LEFT_OUT)
        else message
        for index, message in enumerate(messages)
    )
