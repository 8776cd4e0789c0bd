"""A caller that is one session of one task, whatever its requests say, and that pays into an account of its owner."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pool.types import Report, Usage


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that ended. ``usage`` is what the server counted, None where it did not: ``tokens`` is a guess then.

    ``status`` is that of the answer, or what became of it; ``seconds`` are of wall clock, waiting included.
    ``reason`` is what the client was told instead of an answer, ``param`` the field of its request that is to blame.
    ``waited``, ``prefill`` and ``gpu_seconds`` are as in `Reply`; ``report`` is told by virtual models.
    """

    tier: str
    endpoint: str
    model: str
    status: str
    tokens: int
    usage: Usage | None
    seconds: float
    reason: str = ""
    param: str = ""
    waited: float = 0.0
    prefill: float | None = None
    gpu_seconds: float = 0.0
    report: Report | None = None


class Account(Protocol):
    """Who pays."""

    def holding(self, tokens: int) -> AbstractContextManager[None]:
        """One request of about so many tokens, for as long as the block runs. Raises RefusedError where nothing is left
        to pay it with."""

    def left(self) -> str:
        """What it may still pay for, in words, for whoever asks."""

    def answered(self, answered: Answered) -> None:
        """A request of this account ended. Called while it is still held."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Whose every request is: the session that placement knows, the task tree that shares are counted by."""

    session: str
    program: str
    account: Account
