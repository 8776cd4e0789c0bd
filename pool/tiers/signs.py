"""Reads signs of trouble from one conversation: answers that nobody can use, and calls that go round in circles. Pure.

Circles are read from the conversation itself, so nothing is forgotten in a restart and a polling loop whose results
change is none (weave-os/router#337, BerriAI/litellm#39809).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pool.tiers.answers import confidence, unusable
from pool.tiers.beneath import Request
from pool.types import Choice, Message

LONGEST_CYCLE = 4  # different turns in a row that may make one round
LOOKED_AT = 32  # turns looked back
EDGE = 2000  # characters of a long text that are compared at each end
DURATION = re.compile(r"\d+(?:\.\d+)?\s?(?:ms|s|sec|seconds)\b")


@dataclass(frozen=True, slots=True)
class Sign:
    """What one answer showed: ``unusable`` says why nobody could use it; ``confidence`` is the mean logprob."""

    unusable: str = ""
    confidence: float | None = None


def sign_of(choice: Choice, request: Request) -> Sign:
    """The sign in one answer. A cut call, which the pool takes out, shows in how the answer ended."""
    why = unusable(choice, request)
    return Sign(why, confidence(choice, "mean"))


def rounds(messages: Sequence[Message], since: int = 0) -> int:
    """How many times in a row the latest cycle of turns has come round: the same answers with the same results.

    1 where nothing repeats, 0 without any turn. Messages before index ``since`` are not looked at.
    """
    turns = _turns(messages, since)
    best = min(1, len(turns))
    for period in range(1, min(LONGEST_CYCLE, len(turns)) + 1):
        cycle = turns[-period:]
        count = 1
        while turns[-(count + 1) * period : -count * period] == cycle:
            count += 1
        best = max(best, count)
    return best


def _turns(messages: Sequence[Message], since: int) -> list[int]:
    """A number for each of the last turns, oldest first; a turn is an answer and what it led to."""
    turns: list[int] = []
    results: list[str] = []
    for message in reversed(messages[since:]):
        if message.role != "assistant":
            results.append(_plain(message.content))
            continue
        calls = tuple((call.name, call.arguments) for call in message.tool_calls)
        said = calls or _plain(message.content)
        turns.append(hash((said, tuple(results))))
        results = []
        if len(turns) == LOOKED_AT:
            break
    return turns[::-1]


def _plain(text: str) -> str:
    """A text without what differs each time although nothing happened."""
    edges = text if len(text) <= 2 * EDGE else f"{text[:EDGE]}{len(text)}{text[-EDGE:]}"
    return DURATION.sub("0 s", edges).strip()
