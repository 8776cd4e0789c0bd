"""One budget over all attempts."""

from __future__ import annotations

import pytest

from pool.types import Reply, Usage
from swarm.budgets.ledger import BudgetLedger
from swarm.budgets.prices import Price, Prices
from swarm.budgets.scopes import Standing
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


def test_a_limit_that_is_spent_whole_is_not_passed_and_admits_nothing_more() -> None:
    made, _, _ = ledger(before=Spent(steps=9, attempts=1))
    made.admit()
    made.charge(Spent(steps=1))
    made.insist()
    with pytest.raises(BudgetExceededError, match=r"^10 of 10 steps are spent$") as found:
        made.admit()
    assert found.value.limit == "task.steps"


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
    with pytest.raises(BudgetExceededError, match="65 of 60 seconds of wall clock are spent"):
        made.charge(Spent())


def test_an_attempt_writes_only_its_own_share() -> None:
    made, written, clock = ledger(before=Spent(steps=5, tokens=50, wall=5, attempts=1))
    clock.now = 2
    made.charge(Spent(steps=1, tokens=3))
    assert written == [Spent(steps=1, tokens=3, wall=2, attempts=1)]
    assert made.spent() == Spent(steps=6, tokens=53, wall=7, attempts=2)


def test_a_budget_of_the_day_ends_a_task_that_has_enough_of_its_own() -> None:
    made, _, _ = ledger()
    made.charge(Spent(steps=1))
    made.heard((Standing("repository:web", {"tokens": 1000.0}, Spent(tokens=1001)),))
    with pytest.raises(BudgetExceededError, match=r"1001 of 1000 tokens .* of repository web") as found:
        made.charge(Spent(steps=1))
    assert found.value.limit == "repository:web.tokens"
    assert "00:00 UTC" in found.value.mend


def test_the_lineages_wall_clock_is_the_shorter_one() -> None:
    made, _, _ = ledger()
    made.heard((Standing("lineage", {"wall": 60.0}, Spent(wall=50)),))
    assert made.seconds_left() == 10
    assert made.late().limit == "lineage.wall"
    assert "of 60 seconds of wall clock" in str(made.late())


def test_money_and_gpu_seconds_end_it_as_well() -> None:
    prices = Prices(tiers={"small": Price(gpu_second=1.0)})
    budget = Budget(money=2.0, gpu_seconds=50.0)
    made = BudgetLedger(budget, Spent(), Spent(), lambda _: None, prices=prices)
    usage = Usage(prompt_tokens=5)
    call = Reply(choices=(), usage=usage, endpoint="a", model="m", seconds=3.0, tier="small", gpu_seconds=3.0)
    with pytest.raises(BudgetExceededError, match="3 of 2 money") as found:
        made.charge(made.bill(call))
    assert found.value.limit == "task.money"
    free = BudgetLedger(budget, Spent(), Spent(gpu_seconds=49.0), lambda _: None)
    with pytest.raises(BudgetExceededError, match="52 of 50 GPU-seconds"):
        free.charge(free.bill(call))
