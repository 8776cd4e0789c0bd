"""One request's place at an endpoint, from the choice to its end; what it saw is learnt when its answer is whole."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from pool.placement.memory import Memory, Seen
from pool.placement.record import Log
from pool.placement.view import Ask, Decision
from pool.types import Usage


class Reservation:
    """Counts once, however often and in whatever order it is told of its end. Use as a context manager."""

    __slots__ = ("_ask", "_before", "_clock", "_first", "_log", "_memory", "_share", "decision", "endpoint")

    def __init__(self, memory: Memory, log: Log, clock: Callable[[], float], ask: Ask, decision: Decision) -> None:
        self._memory = memory
        self._log = log
        self._clock = clock
        self._ask = ask
        self._first: float | None = None
        self.decision = decision
        self.endpoint = str(decision.endpoint)
        moved = decision.moved_from is not None
        self._share, self._before = memory.begin(ask, self.endpoint, decision.expected_hit, clock(), moved=moved)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def first_token(self) -> None:
        """The first token came: its prefill is done."""
        if self._first is None and self._share.open:
            self._first = self._clock()
            self._share.prefilled()

    def grew(self, tokens: int) -> None:
        """So many more tokens were generated."""
        self._share.grew(tokens)

    def finish(self, usage: Usage) -> None:
        """The answer is whole: give the place back and learn from it."""
        if not self._memory.end(self._share):
            return
        now, began = self._clock(), self._before.at
        ttft = None if self._first is None else self._first - began
        self._memory.learn(self._ask, self.endpoint, self._before, Seen(ttft, now - began, usage), now)
        self._log.close(self.decision, ttft, usage.cached_tokens)

    def release(self) -> None:
        """Give the place back without an answer; nothing where that was done."""
        if self._memory.end(self._share) and self._first is None:
            self._memory.undo(self._ask, self.endpoint, self._before)

    def drop(self) -> None:
        """Another word for `release`."""
        self.release()
