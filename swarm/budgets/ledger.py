"""The budget of a task over all its attempts, as one attempt sees and spends it."""

from __future__ import annotations

import time
from collections.abc import Callable

from swarm.budgets.notices import Notice, left, notice
from swarm.budgets.prices import Counted, Prices, bill
from swarm.budgets.scopes import Gauge, Standing, gauges, limits_of
from swarm.budgets.sums import total
from swarm.errors import BudgetExceededError
from swarm.types import Budget, Spent

_DAY = "it goes on at 00:00 UTC, or with a larger [budgets] in swarm.toml; then: swarm retry"
_OWN = "give the task a larger budget: swarm retry grants it once more"


class BudgetLedger:
    """Counts what an attempt spends on top of what earlier ones did; ``write`` takes the attempt's own sum to disk.

    The wall clock runs while the object lives in a running attempt, not while the daemon is down. The budgets of its
    lineage and of the day are as they were when the last sum was written, which `heard` is told.
    """

    def __init__(
        self,
        budget: Budget,
        before: Spent,
        own: Spent,
        write: Callable[[Spent], None],
        *,
        prices: Prices | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget = budget
        self._before = before
        self._own = own
        self._write = write
        self._prices = prices or Prices()
        self._clock = clock
        self._started = clock()
        self._around: tuple[Standing, ...] = ()

    @property
    def budget(self) -> Budget:
        """What may be spent over all attempts."""
        return self._budget

    def own(self) -> Spent:
        """What this attempt has spent, its earlier lives included."""
        wall = self._own.wall + self._clock() - self._started
        return self._own.model_copy(update={"wall": wall, "attempts": 1})

    def spent(self) -> Spent:
        """What all attempts have spent."""
        return total((self._before, self.own()))

    def heard(self, standings: tuple[Standing, ...]) -> None:
        """How the budgets around the task's own stand by now. Safe to be called from another thread."""
        self._around = standings

    def gauges(self) -> tuple[Gauge, ...]:
        """Every limit that it may run into, its own first."""
        own = Standing("task", limits_of(self._budget), self.spent())
        return tuple(gauge for standing in (own, *self._around) for gauge in gauges(standing))

    def notice(self, told: int, own: tuple[Gauge, ...] = ()) -> Notice | None:
        """What the agent is to be told of what is left, where it was told of so many marks before."""
        return notice((*own, *self.gauges()), told)

    def left(self) -> str:
        """What may still be spent, in words."""
        return left(self.gauges())

    def bill(self, call: Counted, guess: int = 0) -> Spent:
        """What a model call cost, by the price table; see `prices.bill`."""
        return bill(self._prices, call, guess)

    def charge(self, cost: Spent) -> None:
        """Count something, on disk before any later line of the journal. Raises BudgetExceededError past a limit."""
        self._own = total((self._own, cost))
        self.flush()
        self.insist()

    def insist(self) -> None:
        """Raises BudgetExceededError where a limit was passed."""
        over = next((gauge for gauge in self.gauges() if gauge.used > gauge.limit), None)
        if over is not None:
            raise exceeded(over)

    def admit(self) -> None:
        """Asked before whatever spends more. Raises BudgetExceededError where nothing is left of a limit."""
        spent = next((gauge for gauge in self.gauges() if gauge.used >= gauge.limit), None)
        if spent is not None:
            raise exceeded(spent)

    def flush(self) -> None:
        """Write down what was spent by now."""
        self._write(self.own())

    def seconds_left(self) -> float:
        """Of the wall clock, its lineage's included; not below zero."""
        shortest = self._shortest()
        return max(0.0, shortest.limit - shortest.used)

    def late(self) -> BudgetExceededError:
        """The error of the wall clock that was to end first, for whoever has waited until then."""
        return exceeded(self._shortest())

    def _shortest(self) -> Gauge:
        """The wall clock of which the least is left."""
        walls = (gauge for gauge in self.gauges() if gauge.unit == "seconds")
        return min(walls, key=lambda gauge: gauge.limit - gauge.used)


def exceeded(over: Gauge) -> BudgetExceededError:
    """The error of a limit that is spent, or was passed."""
    of_day = not over.name.startswith(("part.", "task.", "lineage."))
    return BudgetExceededError(over.told(), _DAY if of_day else _OWN, limit=over.name)
