"""Sums of what was spent, and the limits that they meet."""

from __future__ import annotations

import pytest

from swarm.budgets.sums import granted, may_try_again, remaining, total
from swarm.types import Budget, Spent


def test_a_sum_holds_every_unit_that_is_counted() -> None:
    one = Spent.model_validate({name: number for number, name in enumerate(Spent.model_fields, 1)})
    assert total([one, one]) == Spent.model_validate({n: 2 * getattr(one, n) for n in Spent.model_fields})
    assert total([]) == Spent()


def test_a_budget_granted_again_doubles_its_sums_and_leaves_the_rest() -> None:
    once = Budget(steps=5, tokens=10, wall=3.0, attempts=2, money=1.5, idle=9.0, rounds=3)
    twice = granted(once, 2)
    assert twice == Budget(steps=10, tokens=20, wall=6.0, attempts=4, money=3.0, idle=9.0, rounds=3)
    assert twice.gpu_seconds is None


@pytest.mark.parametrize(
    "over",
    [{"steps": 60}, {"tokens": 400_000}, {"wall": 1800.0}, {"attempts": 2}, {"gpu_seconds": 9.0}, {"money": 2.0}],
)
def test_nothing_is_tried_again_once_any_limit_is_reached(over: dict[str, float]) -> None:
    budget = Budget(gpu_seconds=9.0, money=2.0)
    assert may_try_again(budget, Spent(attempts=1))
    assert not may_try_again(budget, Spent.model_validate({"attempts": 1} | over))


def test_a_budget_stored_before_it_had_all_its_limits_still_reads() -> None:
    """An old database holds budgets and attempts without the newer units."""
    old = Budget.model_validate_json('{"steps":3,"tokens":4,"wall":5.0,"attempts":1}')
    assert (old.gpu_seconds, old.money, old.idle, old.rounds) == (None, None, None, None)
    assert Spent.model_validate_json('{"steps":1,"tokens":2,"wall":3.0,"attempts":1}').money == 0.0


def test_what_is_left_begins_its_attempts_anew_and_is_nothing_once_any_limit_is_reached() -> None:
    budget = Budget(steps=10, tokens=100, wall=50.0, money=2.0, attempts=3)
    spent = Spent(steps=9, tokens=10, wall=1.0, money=0.5, attempts=2, gpu_seconds=99.0)
    assert remaining(budget, spent) == Budget(steps=1, tokens=90, wall=49.0, money=1.5, attempts=3)
    assert remaining(budget, Spent(steps=10)) is None
    assert remaining(budget, Spent(money=2.0)) is None
