"""What an answer was read as: a call, a call that cannot be run, and the turn that holds them. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pool.types import Message

Said = Literal["calls", "words", "thought", "nothing", "cut"]
"""What an answer was: calls, words without one, reasoning alone, nothing at all, or words cut off by their limit."""


@dataclass(frozen=True)
class Call:
    """A call that names a real tool; its arguments are an object with names that the tool has."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Broken:
    """A call that cannot be run, and why, in words for the model."""

    id: str
    name: str
    reason: str


@dataclass(frozen=True)
class Turn:
    """One answer: the message to keep in the history, always well-formed, and the calls in it.

    ``mended`` says what had to be mended to read it, for the journal; ``garbled`` that an answer which was to be held
    to a schema was none.
    """

    message: Message
    calls: tuple[Call | Broken, ...]
    said: Said = "calls"
    mended: tuple[str, ...] = ()
    garbled: bool = False
