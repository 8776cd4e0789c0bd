"""What whoever spends sees of a budget: the whole's ledger, or a part's share of it."""

from __future__ import annotations

from typing import Protocol

from swarm.budgets.notices import Notice
from swarm.budgets.prices import Counted
from swarm.budgets.scopes import Gauge
from swarm.errors import BudgetExceededError
from swarm.types import Budget, Spent


class Ledger(Protocol):
    """The budget of the whole task, counted over all attempts, or a share of it."""

    @property
    def budget(self) -> Budget:
        """What may be spent."""

    def spent(self) -> Spent:
        """What has been spent, wall clock included."""

    def seconds_left(self) -> float:
        """Of the wall clock."""

    def late(self) -> BudgetExceededError:
        """The error of the wall clock that was to end first, for whoever has waited until then."""

    def gauges(self) -> tuple[Gauge, ...]:
        """Every limit that may be met, the task's own first."""

    def notice(self, told: int, own: tuple[Gauge, ...] = ()) -> Notice | None:
        """What is newly to be told of what is left, where so many marks were told of before.

        ``own`` are limits of whoever asks, which come before all others.
        """

    def left(self) -> str:
        """What may still be spent, in words."""

    def bill(self, call: Counted, guess: int = 0) -> Spent:
        """What a model call cost; ``guess`` are its tokens where the server counted none."""

    def admit(self) -> None:
        """Asked before whatever spends more. Raises BudgetExceededError where nothing is left of a limit."""

    def charge(self, cost: Spent) -> None:
        """Count something. Raises BudgetExceededError once a limit is passed."""
