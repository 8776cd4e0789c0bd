"""Budgets of a day, and the gauges that all limits are read by."""

from __future__ import annotations

from swarm.budgets.scopes import (
    DayBudget,
    DayBudgets,
    Gauge,
    Standing,
    day_of,
    gauges,
    limits_of,
    scopes_of,
    shut,
    together,
)
from swarm.types import Budget, Spent


def test_a_name_of_its_own_counts_before_what_holds_for_each() -> None:
    limits = DayBudgets(
        repository=DayBudget(tokens=5), repositories={"web": DayBudget(tokens=9)}, fleet=DayBudget(steps=1)
    )
    assert limits.of("repository:web").tokens == 9
    assert limits.of("repository:api").tokens == 5
    assert limits.of("user:ann") == DayBudget()
    assert limits.of("fleet").steps == 1


def test_what_was_spent_counts_for_the_repository_the_user_and_all() -> None:
    assert scopes_of("web", "ann") == ("repository:web", "user:ann", "fleet")
    assert scopes_of("web", "") == ("repository:web", "fleet")


def test_a_day_begins_at_midnight_utc() -> None:
    assert day_of(1_764_460_799.9) == "2025-11-29"
    assert day_of(1_764_460_800.0) == "2025-11-30"


def test_a_spent_day_says_whose_and_when_it_goes_on() -> None:
    standing = Standing("repository:web", {"money": 5.0}, Spent(money=5.2))
    assert shut(standing) == (
        "the day's budget of repository web is spent (5.2 of 5 money); "
        "it goes on at 00:00 UTC or with a larger [budgets] in swarm.toml"
    )
    assert shut(Standing("fleet", {"tokens": 10}, Spent(tokens=9))) == ""


def test_only_what_has_a_limit_is_a_gauge() -> None:
    found = gauges(Standing("task", limits_of(Budget(money=2.0)), Spent(steps=6)))
    assert [gauge.name for gauge in found] == ["task.steps", "task.tokens", "task.wall", "task.money"]
    assert found[0].told() == "6 of 60 steps are spent"


def test_a_gauge_says_whose_limit_it_is() -> None:
    assert Gauge("user:ann.tokens", "tokens", 9, 5).told() == "9 of 5 tokens are spent (the day's budget of user ann)"
    assert Gauge("repository:a.b.tokens", "tokens", 9, 5).whose == "the day's budget of repository a.b"
    assert "all that came of it" in Gauge("lineage.steps", "steps", 9, 5).told()


def test_budgets_that_are_spent_together_limit_only_what_each_of_them_limits() -> None:
    found = together([Budget(steps=10, money=2.0), Budget(steps=5)])
    assert found == {"steps": 15.0, "tokens": 800_000.0, "wall": 3600.0}
    assert together([]) == {}
