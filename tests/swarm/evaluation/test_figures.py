"""The figures agree with the textbooks, and the same seed draws the same."""

from __future__ import annotations

from itertools import combinations

import pytest

from swarm.evaluation import figures
from swarm.evaluation.figures import Counts


def counts(solved: list[int], tokens: list[int] | None = None, n: int = 1) -> Counts:
    return Counts((n,) * len(solved), tuple(solved), tuple(tokens or [100] * len(solved)))


def test_one_try_a_case_has_wilsons_interval() -> None:
    # Newcombe 1998, table I, example "15/148": 0.0624 to 0.1605 by the score method without continuity correction.
    low, high = figures.share(counts([1] * 15 + [0] * 133), 0)
    assert (low, high) == (pytest.approx(0.0624, abs=5e-5), pytest.approx(0.1605, abs=5e-5))


def test_all_or_nothing_solved_leaves_room_on_the_other_side() -> None:
    low, high = figures.share(counts([0] * 10), 0)
    assert low == 0.0
    assert high is not None
    assert 0.2 < high < 0.35
    assert figures.share(counts([]), 0) == (None, None)


def test_several_tries_at_a_case_are_not_taken_for_so_many_cases() -> None:
    once = figures.share(counts([1] * 5 + [0] * 5), 0)
    often = figures.share(counts([10] * 5 + [0] * 5, n=10), 0)
    wilson_of_100 = 0.5 - 0.096
    assert once[0] is not None
    assert often[0] is not None
    assert often[0] < wilson_of_100 - 0.1


def test_cases_that_all_came_out_alike_are_no_certainty() -> None:
    assert figures.share(counts([3] * 10, n=3), 0) == figures.share(counts([1] * 10), 0)
    assert figures.share(counts([0] * 10, n=3), 0) == figures.share(counts([0] * 10), 0)


def test_tokens_per_solved_hold_the_tokens_of_what_was_not_solved() -> None:
    value, (low, high) = figures.tokens_per_solved(counts([1, 0, 1, 0] * 10, [100, 300, 100, 300] * 10), 3)
    assert value == 400.0
    assert low is not None
    assert high is not None
    assert low < 400 < high
    assert figures.tokens_per_solved(counts([1, 0, 1, 0] * 10, [100, 300, 100, 300] * 10), 3) == (value, (low, high))


def test_where_a_draw_may_solve_nothing_there_is_no_upper_end() -> None:
    _, (low, high) = figures.tokens_per_solved(counts([1] + [0] * 19), 0)
    assert low is not None
    assert high is None
    assert figures.tokens_per_solved(counts([0, 0]), 0) == (None, (None, None))
    assert figures.tokens_per_solved(counts([1, 1], [0, 0]), 0) == (None, (None, None))


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (5, 0, 2), (4, 4, 2), (6, 1, 6)])
def test_pass_at_k_is_the_share_of_draws_with_a_solved_try(n: int, c: int, k: int) -> None:
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert figures.pass_at(counts([c], n=n), k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_more_than_was_tried_is_not_told() -> None:
    assert figures.pass_at(counts([1], n=2), 3) is None


def test_mcnemars_exact_p() -> None:
    # Two-sided binomial: 2 * (1 + 10) / 2**10 for 9 of 10 discordant pairs.
    assert figures.mcnemar(9, 1) == pytest.approx(2 * 11 / 1024)
    assert figures.mcnemar(0, 0) == 1.0
    assert figures.mcnemar(3, 8) == figures.mcnemar(8, 3)


def test_a_difference_is_paired() -> None:
    hard = [0.0] * 10 + [1.0] * 10
    better = [0.0] * 5 + [1.0] * 15
    gap, (low, high) = figures.difference(better, hard, 1)
    assert gap == pytest.approx(0.25)
    assert low is not None
    assert high is not None
    assert 0.0 < low < 0.25 < high < 0.5


def test_a_ratio_without_a_bound_is_open() -> None:
    value, (low, high) = figures.ratio([1.0] * 6, [0.0] * 5 + [1.0], 0)
    assert value == 6.0
    assert low is not None
    assert high is None
    assert figures.ratio([1.0, 1.0], [0.0, 0.0], 0)[0] is None


def test_one_case_has_no_interval() -> None:
    assert figures.difference([1.0], [0.0], 0) == (1.0, (None, None))


@pytest.mark.slow
def test_the_interval_of_tokens_per_solved_holds_the_truth_about_as_often_as_it_says() -> None:
    import random  # noqa: PLC0415

    draw, held = random.Random(5), 0  # noqa: S311 - a simulation
    for seed in range(200):
        solved = [int(draw.random() < 0.4) for _ in range(60)]
        tokens = [draw.randrange(100, 300) if each else draw.randrange(300, 500) for each in solved]
        _, (low, high) = figures.tokens_per_solved(counts(solved, tokens), seed)
        truth = (0.4 * 199.5 + 0.6 * 399.5) / 0.4
        held += (low or 0.0) <= truth <= (high or float("inf"))
    assert 176 <= held <= 200
