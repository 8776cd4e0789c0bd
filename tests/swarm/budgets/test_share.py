"""A part spends within its own bounds and within the whole's, which pays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.budgets.ledger import BudgetLedger
from swarm.budgets.share import Share, share_of, spent_in
from swarm.errors import BudgetExceededError
from swarm.types import Budget, Spent, Step


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def whole(**budget: float) -> tuple[BudgetLedger, Clock]:
    clock = Clock()
    limits = {"steps": 10, "tokens": 100, "wall": 60, **budget}
    return BudgetLedger(Budget(**limits), Spent(), Spent(), lambda _: None, clock=clock), clock


def test_what_a_part_spends_is_charged_to_the_whole() -> None:
    ledger, _ = whole()
    Share(ledger, {"tokens": 50}).charge(Spent(tokens=20, steps=1))
    assert (ledger.spent().tokens, ledger.spent().steps) == (20, 1)


def test_a_part_ends_at_its_own_limit_and_what_it_left_is_the_others() -> None:
    ledger, _ = whole()
    first = Share(ledger, share_of(ledger, 0.5))
    with pytest.raises(BudgetExceededError, match="share of this part") as found:
        first.charge(Spent(tokens=51))
    assert found.value.limit == "part.tokens"
    assert ledger.spent().tokens == 51
    assert share_of(ledger, 1.0)["tokens"] == 49


def test_a_part_ends_at_the_limit_of_the_whole_however_large_its_own() -> None:
    ledger, _ = whole()
    ledger.charge(Spent(tokens=90))
    with pytest.raises(BudgetExceededError) as found:
        Share(ledger, {"tokens": 1000}).charge(Spent(tokens=20))
    assert found.value.limit == "task.tokens"


def test_nothing_is_admitted_where_either_is_spent() -> None:
    ledger, _ = whole()
    spent = Share(ledger, {"steps": 1})
    spent.charge(Spent(steps=1))
    with pytest.raises(BudgetExceededError, match="1 of 1 steps"):
        spent.admit()
    ledger.admit()
    ledger.charge(Spent(steps=9))
    with pytest.raises(BudgetExceededError, match="10 of 10 steps"):
        Share(ledger, {"steps": 5}).admit()


def test_the_shorter_clock_counts() -> None:
    ledger, clock = whole()
    part = Share(ledger, {"wall": 20.0})
    clock.now = 15
    assert part.seconds_left() == 5
    assert part.late().limit == "part.wall"
    clock.now = 58
    longer = Share(ledger, {"wall": 20.0})
    assert longer.seconds_left() == 2
    assert longer.late().limit == "task.wall"


def test_what_an_earlier_life_spent_counts_for_the_part_and_is_not_charged_again() -> None:
    ledger, _ = whole()
    part = Share(ledger, {"tokens": 50}, before=Spent(tokens=40))
    assert ledger.spent().tokens == 0
    with pytest.raises(BudgetExceededError):
        part.charge(Spent(tokens=11))


def test_a_part_is_told_of_its_own_limit_before_the_wholes() -> None:
    ledger, _ = whole()
    part = Share(ledger, {"steps": 2, "tokens": 90})
    part.charge(Spent(steps=1))
    notice = part.notice(0)
    assert notice is not None
    assert (notice.limit, notice.passed) == ("part.steps", 3)
    assert "left: 1 turn, 90 tokens" in notice.text
    assert Share(ledger, {"steps": 1}, silent=True).notice(0) is None


def test_a_share_of_a_share_is_bounded_by_both() -> None:
    ledger, _ = whole()
    outer = Share(ledger, {"tokens": 30})
    inner = Share(outer, share_of(outer, 0.5))
    with pytest.raises(BudgetExceededError):
        inner.charge(Spent(tokens=16))
    outer.charge(Spent(tokens=10))
    with pytest.raises(BudgetExceededError):
        Share(outer, {"tokens": 100}).charge(Spent(tokens=5))
    assert ledger.spent().tokens == 31


def test_the_budget_that_a_part_sees_is_the_narrower() -> None:
    ledger, _ = whole()
    seen = Share(ledger, {"tokens": 30, "steps": 99}).budget
    assert (seen.tokens, seen.steps, seen.wall) == (30, 10, 60)


def test_the_journal_tells_what_a_part_had_spent() -> None:
    def line(kind: str, **data: object) -> Step:
        return Step(task="t", attempt="a", seq=1, at=0.0, kind=kind, data=data)

    lines = [
        line("model_call", message={}, prompt_tokens=5, completion_tokens=2, money=0.5),
        line("model_call", ask=["line"], prompt_tokens=3, completion_tokens=None),
        line("note", text="x"),
    ]
    assert spent_in(lines) == Spent(steps=1, tokens=10, money=0.5)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.lists(st.integers(1, 30), max_size=6)), max_size=6))
def test_no_call_begins_past_a_limit_however_the_whole_is_shared(parts: list[tuple[float, list[int]]]) -> None:
    ledger, _ = whole(steps=1000)
    for fraction, calls in parts:
        part = Share(ledger, limits := share_of(ledger, fraction))
        before = ledger.spent().tokens
        try:
            for tokens in calls:
                part.admit()
                assert ledger.spent().tokens - before < limits["tokens"]
                assert ledger.spent().tokens < 100
                part.charge(Spent(tokens=tokens, steps=1))
        except BudgetExceededError:
            continue
