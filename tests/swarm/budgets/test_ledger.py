"""One budget over all attempts."""

from __future__ import annotations

import pytest

from swarm.budgets.ledger import BudgetLedger
from swarm.errors import BudgetExceededError
from swarm.types import Budget, Spent


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ledger(before: Spent = Spent(), own: Spent = Spent()) -> tuple[BudgetLedger, list[Spent], Clock]:  # noqa: B008
    written: list[Spent] = []
    clock = Clock()
    made = BudgetLedger(Budget(steps=10, tokens=100, wall=60), before, own, written.append, clock=clock)
    return made, written, clock


def test_earlier_attempts_count() -> None:
    made, _, _ = ledger(before=Spent(steps=9, attempts=1))
    made.charge(Spent(steps=1))
    with pytest.raises(BudgetExceededError, match="11 of 10 steps"):
        made.charge(Spent(steps=1))


def test_what_went_over_the_limit_is_counted_all_the_same() -> None:
    made, written, _ = ledger()
    with pytest.raises(BudgetExceededError, match="tokens"):
        made.charge(Spent(tokens=150))
    assert written[-1].tokens == 150
    assert made.spent().tokens == 150


def test_the_wall_clock_counts_earlier_lives_of_the_attempt() -> None:
    made, _, clock = ledger(before=Spent(wall=20), own=Spent(wall=15))
    clock.now = 10
    assert made.spent().wall == 45
    assert made.seconds_left() == 15
    clock.now = 30
    assert made.seconds_left() == 0
    with pytest.raises(BudgetExceededError, match="seconds"):
        made.charge(Spent())


def test_an_attempt_writes_only_its_own_share() -> None:
    made, written, clock = ledger(before=Spent(steps=5, tokens=50, wall=5, attempts=1))
    clock.now = 2
    made.charge(Spent(steps=1, tokens=3))
    assert written == [Spent(steps=1, tokens=3, wall=2, attempts=1)]
    assert made.spent() == Spent(steps=6, tokens=53, wall=7, attempts=2)
