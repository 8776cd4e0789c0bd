"""When an agent is told what is left, and that it is told once."""

from __future__ import annotations

import pytest

from swarm.budgets.notices import left, notice, told_before
from swarm.budgets.scopes import Gauge
from swarm.types import Step


def gauge(share: float, name: str = "task.tokens", unit: str = "tokens") -> Gauge:
    return Gauge(name, unit, share * 100, 100.0)


@pytest.mark.parametrize(("share", "passed"), [(0.5, 1), (0.79, 1), (0.8, 2), (0.95, 3), (1.4, 3)])
def test_it_is_told_at_each_mark(share: float, passed: int) -> None:
    found = notice([gauge(share)], 0)
    assert found is not None
    assert found.passed == passed
    assert ("Wrap up" in found.text) == (passed == 3)
    assert notice([gauge(share)], passed) is None


def test_nothing_is_told_before_half_is_spent() -> None:
    assert notice([gauge(0.499)], 0) is None
    assert notice([], 0) is None


def test_the_limit_that_is_nearest_to_its_end_counts_whoever_set_it() -> None:
    day = gauge(0.81, "repository:web.money", "money")
    found = notice([gauge(0.1, "task.steps", "steps"), gauge(0.6), day], 1)
    assert found is not None
    assert found.limit == "repository:web.money"
    assert found.text.startswith(
        "[81% of your money (the day's budget of repository web) is spent; left: 90 turns, 40 tokens, 19"
    )


def test_what_is_left_is_told_once_for_each_unit_by_whichever_limit_leaves_least() -> None:
    day = [gauge(0.9, "user:ann.tokens"), gauge(0.2, "user:ann.money", "money")]
    assert left([gauge(0.99, "task.steps", "steps"), gauge(0.6), *day]) == "1 turn, 10 tokens, 80 money"
    assert left([gauge(1.5)]) == "0 tokens"


@pytest.mark.parametrize(("used", "limit", "told"), [(1, 3, False), (2, 3, True), (58, 60, True), (59, 60, True)])
def test_whoever_has_one_turn_left_is_told_to_wrap_up(used: int, limit: int, told: bool) -> None:
    found = notice([Gauge("task.steps", "steps", used, limit), gauge(0.7)], 0)
    assert found is not None
    assert ("Wrap up" in found.text) is told
    assert (found.limit == "task.steps") is told


def test_a_single_thing_that_is_left_is_told_as_one() -> None:
    found = notice([Gauge("task.steps", "steps", 2, 3), Gauge("task.money", "money", 1, 2)], 0)
    assert found is not None
    assert "left: 1 turn, 1 money." in found.text


def test_what_was_told_is_read_from_the_lines_of_its_own_attempt_alone() -> None:
    def line(attempt: str, **data: int) -> Step:
        return Step(task="t", attempt=attempt, seq=1, at=0.0, kind="command", data=data)

    assert told_before([line("a", noticed=1), line("a"), line("a", noticed=2)], "a") == 2
    assert told_before([line("b", noticed=3)], "a") == 0
