"""How much of a model's window a conversation takes and what is left for an answer. Pure; lengths are in tokens.

What the server counted for the last request is taken as it is, only what was added since is estimated. A request whose
prompt and ``max_tokens`` together are more than the window is refused by vLLM (vllm-project/vllm#42474), so an answer
is never asked for more than is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pool.types import Message, ToolSpec

ANSWER, SHORTEST = 4096, 512  # of one answer: what is asked for, and with less than which none is worth asking for
BYTES = 3.0  # of UTF-8 a token, taken low: code and paths come to 3 to 4
_FRAME = 24  # bytes of what a chat template puts around a message or a call
_SLACK, _SHARE = 16, 0.02  # by which a prompt may be longer than was estimated: fixed, and of what was added
ROOMY = 0.4  # share of the window that a conversation is brought down to, so that it is done rarely


@dataclass(frozen=True)
class Count:
    """What the server counted last: ``tokens`` for a conversation of ``weight`` bytes; nothing yet where both are 0."""

    tokens: int = 0
    weight: int = 0


def weight(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
    """Bytes of a conversation, its calls and the tools offered included."""
    said = sum(_FRAME + _bytes(message.content) for message in messages)
    calls = (call for message in messages for call in message.tool_calls)
    called = sum(_FRAME + _bytes(call.name) + _bytes(call.arguments) for call in calls)
    return said + called + sum(_bytes(tool.model_dump_json()) for tool in tools)


def estimate(count: Count, now: int) -> int:
    """Tokens of a conversation of ``now`` bytes, taken high."""
    if not count.tokens or not count.weight:
        return math.ceil(now / BYTES) + _SLACK
    grown = now - count.weight
    if grown < 0:  # something was taken out: what is left is taken to be like the whole
        return math.ceil(count.tokens * now / count.weight * (1 + _SHARE)) + _SLACK
    return count.tokens + math.ceil(grown / BYTES * (1 + _SHARE)) + (_SLACK if grown else 0)


def least(window: int) -> int:
    """The room for an answer without which a request is not sent."""
    return min(SHORTEST, max(1, window // 8))


def fits(window: int | None, prompt: int) -> bool:
    """Whether an answer of any use has room beside a prompt; a window that is not known holds whatever is sent."""
    return window is None or prompt + least(window) <= window


def answer(window: int | None, prompt: int, most: int = ANSWER) -> int:
    """What an answer may be at most, in the room that is left."""
    if window is None:
        return most
    return max(1, min(most, window - prompt, max(least(window), window // 2)))


def roomy(window: int | None, prompt: int) -> int:
    """What a conversation that outgrew its window is brought down to."""
    return int((window or prompt) * ROOMY)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
