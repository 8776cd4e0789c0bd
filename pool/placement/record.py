"""Keeps the last decisions so that each can be explained, and sums up what they were worth. Bounded. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

from pool.placement.choice import Score
from pool.placement.view import Decision, Row

LeftOut = Sequence[tuple[str, str]]
"""Endpoints that were not priced, each with the reason."""


class Rows(Sequence[Row]):
    """The rows of a decision, written out only when somebody looks. ``least`` is what all unpriced cost at least."""

    __slots__ = ("_left_out", "_scores", "least")

    def __init__(
        self, scores: Sequence[Score], left_out: LeftOut | Callable[[], LeftOut], least: float | None = None
    ) -> None:
        self._scores = scores
        self._left_out = left_out
        self.least = least

    def __len__(self) -> int:
        return len(self._scores) + len(self._others())

    def __iter__(self) -> Iterator[Row]:
        yield from (score.row() for score in self._scores)
        yield from (Row(name, left_out=reason) for name, reason in self._others())

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def best_but(self, name: str | None) -> float | None:
        """The shortest wait for a first token that was foreseen anywhere else, in seconds."""
        return min((score.ttft for score in self._scores if score.name != name), default=self.least)

    def _others(self) -> LeftOut:
        return self._left_out() if callable(self._left_out) else self._left_out


@dataclass(slots=True)
class Regret:
    """What the decisions for one endpoint were worth. Seconds; ``error`` is that of the foreseen TTFT, averaged."""

    answers: int = 0
    error: float = 0.0
    lost: float = 0.0
    hit_foreseen: int = 0
    hit_told: int = 0


class Log:
    """The last decisions by request, and the sums by endpoint."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._decisions: OrderedDict[str, Decision] = OrderedDict()
        self.regrets: dict[str, Regret] = {}

    def keep(self, decision: Decision) -> None:
        """Remember a decision in place of an earlier one for the same request."""
        self._decisions.pop(decision.request, None)
        self._decisions[decision.request] = decision
        if len(self._decisions) > self._most:
            self._decisions.popitem(last=False)

    def get(self, request: str) -> Decision | None:
        """The last decision for a request, unless it was long ago."""
        return self._decisions.get(request)

    def close(self, decision: Decision, ttft: float | None, cached: int | None) -> None:
        """The answer to a decision was seen: what was it worth? None is unknown and counts nowhere."""
        summary = self.regrets.setdefault(str(decision.endpoint), Regret())
        summary.answers += 1
        lost = None
        if ttft is not None:
            other = decision.rows.best_but(decision.endpoint) if isinstance(decision.rows, Rows) else None
            lost = max(0.0, ttft - other) if other is not None else 0.0
            summary.lost += lost
            summary.error += 0.1 * (abs(ttft - (decision.expected_ttft or 0.0)) - summary.error)
        if cached is not None:
            summary.hit_foreseen += decision.expected_hit
            summary.hit_told += cached
        if self._decisions.get(decision.request) is decision:
            self._decisions[decision.request] = replace(decision, actual_ttft=ttft, actual_hit=cached, regret=lost)
