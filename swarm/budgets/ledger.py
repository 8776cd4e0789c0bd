"""The budget of a task over all its attempts, as one attempt sees and spends it."""

from __future__ import annotations

import time
from collections.abc import Callable

from swarm.budgets.sums import exceeded, total
from swarm.errors import BudgetExceededError
from swarm.types import Budget, Spent


class BudgetLedger:
    """Counts what an attempt spends on top of what earlier ones did; ``write`` takes the attempt's own sum to disk.

    The wall clock runs while the object lives in a running attempt, not while the daemon is down.
    """

    def __init__(
        self,
        budget: Budget,
        before: Spent,
        own: Spent,
        write: Callable[[Spent], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget = budget
        self._before = before
        self._own = own
        self._write = write
        self._clock = clock
        self._started = clock()

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

    def charge(self, *, steps: int = 0, tokens: int = 0) -> None:
        """Count something, on disk before any later line of the journal. Raises BudgetExceededError past a limit."""
        update = {"steps": self._own.steps + steps, "tokens": self._own.tokens + tokens}
        self._own = self._own.model_copy(update=update)
        self.flush()
        if why := exceeded(self._budget, self.spent()):
            raise BudgetExceededError(why, "give the task a larger budget: swarm retry grants it once more")

    def flush(self) -> None:
        """Write down what was spent by now."""
        self._write(self.own())

    def seconds_left(self) -> float:
        """Of the wall clock; not below zero."""
        return max(0.0, self._budget.wall - self.spent().wall)
