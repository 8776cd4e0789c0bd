"""A part's share of a ledger: bounds of its own inside all that bound the whole, which pays for everything."""

from __future__ import annotations

from collections.abc import Iterable

from swarm.budgets.account import Ledger
from swarm.budgets.ledger import exceeded
from swarm.budgets.notices import Notice, left
from swarm.budgets.prices import Counted
from swarm.budgets.scopes import Gauge, Standing, gauges, limits_of
from swarm.budgets.sums import LIMITS, total
from swarm.errors import BudgetExceededError
from swarm.types import Budget, Spent, Step

SCOPE = "part"
"""Begins the names of a share's own limits, as "part.tokens"."""


class Share:
    """Keeps the `Ledger` protocol. What it does not use stays with the whole, since nothing is set apart for it.

    ``limits`` are by the names of `Spent`, and what is missing has none of its own. ``before`` is what the part had
    spent in an earlier life, which the whole has been charged for. ``silent`` parts are told nothing of what is left.
    """

    def __init__(
        self, whole: Ledger, limits: dict[str, float], *, before: Spent | None = None, silent: bool = False
    ) -> None:
        self._whole = whole
        self._limits = dict(limits)
        self._own = before or Spent()
        self._began = whole.spent().wall
        self._silent = silent

    @property
    def budget(self) -> Budget:
        """The whole's, narrowed to this share."""
        whole = self._whole.budget
        known = {name: value for name, value in limits_of(whole).items() if name in self._limits}
        narrow = {name: min(value, self._limits[name]) for name, value in known.items()}
        return whole.model_copy(update={name: _whole_number(name, value) for name, value in narrow.items()})

    def own(self) -> Spent:
        """What the part has spent, its earlier life included."""
        wall = self._own.wall + self._whole.spent().wall - self._began
        return self._own.model_copy(update={"wall": wall})

    def spent(self) -> Spent:
        """What the whole has spent."""
        return self._whole.spent()

    def gauges(self) -> tuple[Gauge, ...]:
        """Its own limits, then the whole's."""
        return (*self._gauges(), *self._whole.gauges())

    def notice(self, told: int, own: tuple[Gauge, ...] = ()) -> Notice | None:
        """What is newly to be told of what is left, by whichever limit is nearest."""
        if self._silent:
            return None
        return self._whole.notice(told, (*own, *self._gauges()))

    def left(self) -> str:
        """What may still be spent, in words."""
        return left(self.gauges())

    def bill(self, call: Counted, guess: int = 0) -> Spent:
        """What a model call cost."""
        return self._whole.bill(call, guess)

    def admit(self) -> None:
        """Raises BudgetExceededError where nothing is left of a limit of the share's or the whole's."""
        self._whole.admit()
        spent = next((gauge for gauge in self._gauges() if gauge.used >= gauge.limit), None)
        if spent is not None:
            raise exceeded(spent)

    def charge(self, cost: Spent) -> None:
        """Count something, for the whole first. Raises BudgetExceededError past a limit of either."""
        self._own = total((self._own, cost))
        self._whole.charge(cost)
        over = next((gauge for gauge in self._gauges() if gauge.used > gauge.limit), None)
        if over is not None:
            raise exceeded(over)

    def seconds_left(self) -> float:
        """Of the shorter wall clock, not below zero."""
        whole = self._whole.seconds_left()
        return whole if "wall" not in self._limits else max(0.0, min(whole, self._limits["wall"] - self.own().wall))

    def late(self) -> BudgetExceededError:
        """The error of the wall clock that was to end first."""
        own = next((gauge for gauge in self._gauges() if gauge.unit == "seconds"), None)
        if own is None or self._whole.seconds_left() < own.limit - own.used:
            return self._whole.late()
        return exceeded(own)

    def _gauges(self) -> tuple[Gauge, ...]:
        return gauges(Standing(SCOPE, self._limits, self.own()))


def share_of(ledger: Ledger, part: float) -> dict[str, float]:
    """The limits of a share: such a ``part`` (0 to 1) of what the nearest limit of each kind leaves now.

    Steps are at least one, so that a share of very little is not nothing while anything is left.
    """
    least: dict[str, float] = {}
    names = {unit: name for name, unit in LIMITS}
    for gauge in ledger.gauges():
        name = names[gauge.unit]
        least[name] = min(least.get(name, gauge.limit - gauge.used), gauge.limit - gauge.used)
    limits = {name: max(0.0, value) * part for name, value in least.items()}
    if limits.get("steps"):
        limits["steps"] = max(1.0, float(int(limits["steps"])))
    return limits


def spent_in(lines: Iterable[Step]) -> Spent:
    """What the journal's lines of a part tell that it spent: tokens, money, GPU-seconds, and a turn for each call."""
    calls = [line.data for line in lines if line.kind == "model_call"]
    return Spent(
        steps=sum("message" in data for data in calls),
        tokens=sum(int(data.get("prompt_tokens") or 0) + int(data.get("completion_tokens") or 0) for data in calls),
        gpu_seconds=sum(float(data.get("gpu_seconds") or 0.0) for data in calls),
        money=sum(float(data.get("money") or 0.0) for data in calls),
    )


def _whole_number(name: str, value: float) -> float:
    return max(1, int(value)) if name in {"steps", "tokens"} else value
