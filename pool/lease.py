"""One place at an endpoint, taken when it was chosen and given back exactly once, however the request ends."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from pool.placement.view import Ask, Decision
from pool.types import Usage


class Reserved(Protocol):
    """What placement counts for one request."""

    def first_token(self) -> None:
        """The answer has begun."""

    def grew(self, tokens: int) -> None:
        """The answer has so many tokens more."""

    def finish(self, usage: Usage) -> None:
        """The answer is whole."""

    def release(self) -> None:
        """It is over without one."""


class Lease:
    """Use as a context manager: leaving the block before `finish` counts as a failure. All calls may come twice."""

    __slots__ = ("_ended", "_over", "_reserved", "ask", "called", "decision", "endpoint", "waited")

    def __init__(
        self,
        ask: Ask,
        decision: Decision,
        reserved: Reserved,
        ended: Callable[[Lease, Usage | None], None],
        waited: float = 0.0,
    ) -> None:
        if decision.endpoint is None:
            raise ValueError("a lease needs a decision that names an endpoint")
        self.ask = ask
        self.decision = decision
        self.endpoint: str = decision.endpoint
        self.waited = waited
        self.called: tuple[str, ...] | None = None
        self._reserved = reserved
        self._ended = ended
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fail()

    @property
    def over(self) -> bool:
        """Whether the place was given back."""
        return self._over

    def first_token(self) -> None:
        """The answer has begun."""
        if not self._over:
            self._reserved.first_token()

    def grew(self, tokens: int) -> None:
        """The answer has so many tokens more."""
        if not self._over:
            self._reserved.grew(tokens)

    def finish(self, usage: Usage, called: tuple[str, ...] | None = None) -> None:
        """The answer is whole: give the place back and learn from what it took.

        ``called`` are the tools that it wants run, None where it was offered none or nobody knows.
        """
        if not self._over:
            self._over, self.called = True, called
            try:
                self._reserved.finish(usage)
            finally:
                self._ended(self, usage)

    def fail(self) -> None:
        """Give the place back without an answer."""
        if not self._over:
            self._over = True
            try:
                self._reserved.release()
            finally:
                self._ended(self, None)
