"""What the tries come to: broken ones count nowhere, pairs are held together by case, and words say what is meant."""

from __future__ import annotations

from typing import Any

import pytest

from swarm.evaluation.plan import Way
from swarm.evaluation.results import Try
from swarm.evaluation.scores import compared, score


def row(case: str, outcome: str, **more: Any) -> Try:
    base = {
        "strategy": "agent",
        "tier": "small",
        "number": 1,
        "key": f"{case}-{more.get('number', 1)}",
        "ending": "finished",
    }
    return Try.model_validate(base | {"case": case, "outcome": outcome} | more)


def rows(solved: int, of: int, **more: Any) -> list[Try]:
    return [row(f"c{place}", "solved" if place < solved else "unsolved", **more) for place in range(of)]


def test_a_way_is_scored_by_its_own_tries_and_no_broken_one() -> None:
    tries = [
        row("a", "solved", tokens=100, prompt=90, completion=10, cached=50, steps=2),
        row("b", "unsolved", tokens=300, prompt=280, completion=20, steps=5, ending="limit_hit"),
        row("c", "broken", tokens=999, ending="infra_failed"),
        row("a", "solved", strategy="other", tokens=7),
    ]
    told = score(Way(strategy="agent", tier="small"), tries, 0)
    assert (told.tries, told.solved, told.broken, told.share) == (2, 1, 1, 0.5)
    assert (told.tokens, told.prompt, told.completion, told.cached, told.steps) == (400, 370, 30, 50, 7)
    assert told.tokens_per_solved == 400.0
    assert told.endings == {"finished": 1, "infra_failed": 1, "limit_hit": 1}


def test_a_cache_that_nobody_told_of_is_not_an_empty_one() -> None:
    assert score(Way(strategy="agent", tier="small"), rows(1, 2), 0).cached is None


def test_what_was_solved_without_saying_so_is_told_apart() -> None:
    told = score(Way(strategy="agent", tier="small"), [row("a", "solved", ending="gave_up"), row("b", "solved")], 0)
    assert (told.solved, told.delivered) == (2, 1)


def test_two_sides_in_one_plain_sentence() -> None:
    told = compared(("ours", "theirs"), rows(12, 40), rows(5, 40), 1)
    assert told is not None
    assert told.words.startswith("ours: 12 of 40 against 5 of 40 of theirs; the difference of 17.5 points lies in [")
    assert (told.only_ours, told.only_theirs) == (7, 0)
    assert told.p == pytest.approx(2 / 2**7)
    assert told.ratio == pytest.approx(12 / 5)
    assert "may be chance" not in told.words


def test_what_may_be_chance_is_said_to_be() -> None:
    ours = [row("a", "solved"), row("b", "unsolved"), row("c", "solved"), row("d", "unsolved")]
    theirs = [row("a", "unsolved"), row("b", "solved"), row("c", "unsolved"), row("d", "unsolved")]
    told = compared(("ours", "theirs"), ours, theirs, 1)
    assert told is not None
    assert "which may be chance" in told.words


def test_only_cases_that_both_tried_are_compared() -> None:
    ours = [row("a", "solved"), row("b", "solved"), row("c", "broken")]
    theirs = [row("b", "unsolved"), row("c", "unsolved"), row("d", "solved")]
    told = compared(("ours", "theirs"), ours, theirs, 1)
    assert told is not None
    assert (told.cases, told.ours_solved, told.theirs_solved, told.left_out) == (1, 1, 0, 3)
    assert "no interval can be told" in told.words
    assert compared(("ours", "theirs"), ours[:1], theirs, 1) is None


def test_sides_without_a_difference_claim_no_certainty() -> None:
    told = compared(("ours", "theirs"), rows(40, 40), rows(0, 40), 1)
    assert told is not None
    assert "no two cases differ" in told.words
    assert told.interval == told.ratio_interval == (None, None)


def test_several_tries_a_case_have_no_mcnemar() -> None:
    ours = [row("a", "solved", number=1), row("a", "unsolved", number=2), row("b", "solved", number=1)]
    told = compared(("ours", "theirs"), ours, rows(0, 2), 1)
    assert told is None
    told = compared(("ours", "theirs"), ours, [row("a", "unsolved"), row("b", "unsolved")], 1)
    assert told is not None
    assert told.p is None
    assert told.difference == pytest.approx(0.75)


def test_a_seed_decides_the_intervals() -> None:
    sides = rows(12, 40), rows(5, 40)
    assert compared(("a", "b"), *sides, 1) == compared(("a", "b"), *sides, 1)
    assert score(Way(strategy="agent", tier="small"), rows(3, 9, tokens=5), 2) == score(
        Way(strategy="agent", tier="small"), rows(3, 9, tokens=5), 2
    )
