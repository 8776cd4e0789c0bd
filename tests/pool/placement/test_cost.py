"""Prices are found from what was seen, stay sane from the first observation on, and are never negative."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.placement.cost import Cost

SERVERS = {
    "a small GPU": (0.03, 1.25e-4, 1e-9),
    "a rack": (0.01, 2e-5, 1e-10),
    "a laptop's CPU": (0.2, 3.3e-3, 1e-8),
    "one far away": (0.5, 1e-4, 0.0),
}


def seconds(server: tuple[float, float, float], new: float, before: float) -> float:
    base, token, pair = server
    return base + token * new + pair * new * (before + new / 2)


def fitted(server: tuple[float, float, float], size: Callable[[random.Random], float], odd: float = 0.0) -> Cost:
    cost, dice = Cost(), random.Random(3)  # noqa: S311  noise, no secret
    for _ in range(300):
        new, before = size(dice), dice.choice([0, 5_000, 50_000])
        wait = seconds(server, new, before) * dice.lognormvariate(0, 0.1) * (20 if dice.random() < odd else 1)
        cost.saw_first(new, before, 0, wait)
    return cost


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
def test_agent_traffic_teaches_what_a_lost_prefix_costs(server: tuple[float, float, float]) -> None:
    cost = fitted(server, lambda d: d.uniform(100, 1_000) if d.random() < 0.95 else d.uniform(5_000, 100_000))
    for new in (500, 20_000, 100_000):
        assert cost.prefill(new) == pytest.approx(seconds(server, new, 0), rel=0.2)
    assert cost.prefill(800, 100_000) == pytest.approx(seconds(server, 800, 100_000), rel=0.25)


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
def test_short_prefills_alone_still_give_a_long_one_its_size(server: tuple[float, float, float]) -> None:
    cost = fitted(server, lambda d: d.uniform(100, 1_000))
    assert 1 / 3 < cost.prefill(100_000) / seconds(server, 100_000, 0) < 3


def test_long_prefills_are_remembered_through_an_hour_of_short_ones() -> None:
    server, cost = SERVERS["a small GPU"], Cost()
    for _ in range(10):
        cost.saw_first(80_000, 0, 0, seconds(server, 80_000, 0))
    for i in range(5_000):
        cost.saw_first(300 + i % 400, 50_000, 0, seconds(server, 300 + i % 400, 50_000))
    assert cost.prefill(80_000) == pytest.approx(seconds(server, 80_000, 0), rel=0.1)


def test_a_few_stalls_do_not_spoil_the_prices() -> None:
    server = SERVERS["a small GPU"]
    cost = fitted(server, lambda d: d.choice([200, 900, 30_000]), odd=0.03)
    assert cost.prefill(30_000) == pytest.approx(seconds(server, 30_000, 0), rel=0.25)


def test_server_that_became_slower_is_noticed() -> None:
    cost = Cost()
    for speed in (1e-4, 5e-4):
        for i in range(200):
            new = 500 + 100 * (i % 20)
            cost.saw_first(new, 0, 0, 0.05 + speed * new)
    assert cost.prefill(2_000) == pytest.approx(1.05, rel=0.15)


def test_tokens_ahead_are_waited_for() -> None:
    cost = Cost()
    for ahead in (0, 2_000, 8_000, 500, 30_000) * 10:
        cost.saw_first(1_000, 0, ahead, 0.05 + 1e-4 * (1_000 + ahead))
    assert cost.prefill_terms[1] == pytest.approx(1e-4, rel=0.1)


def test_decode_slows_with_the_batch_as_seen() -> None:
    cost = Cost()
    for batch in (1, 2, 4, 8, 16, 32) * 5:
        cost.saw_steps(100, batch, 100 * (0.006 + 0.0004 * batch))
    assert cost.decode(100, 20) == pytest.approx(100 * (0.006 + 0.0004 * 20), rel=0.1)


@given(st.lists(st.tuples(*[st.floats(0, 1e6, allow_nan=False)] * 3, st.floats(-1, 1e5, allow_nan=False)), max_size=30))
def test_no_price_is_ever_negative(observed: list[tuple[float, float, float, float]]) -> None:
    cost = Cost()
    for new, before, ahead, wait in observed:
        cost.saw_first(new, before, ahead, wait)
        cost.saw_steps(int(new), ahead, wait)
        assert all(price >= 0 for price in (*cost.prefill_terms, *cost.step_terms))
        assert cost.prefill(10, 10) >= 0


def whole(server: tuple[float, float, float], lengths: tuple[int, ...], step: float = 0.01, answers: int = 40) -> Cost:
    """Answers that came whole: nobody saw where the prefill ended."""
    cost, dice = Cost(), random.Random(4)  # noqa: S311  noise, no secret
    for number in range(answers):
        new, tokens = dice.choice([400, 2_000, 9_000]), lengths[number % len(lengths)]
        took = (seconds(server, new, 0) + tokens * step) * dice.lognormvariate(0, 0.1)
        cost.saw_whole(new, 0, 0, tokens, 1, took)
    return cost


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
def test_whole_answers_of_several_lengths_teach_what_prefill_costs(server: tuple[float, float, float]) -> None:
    cost = whole(server, (4, 40, 400))
    assert cost.known
    assert cost.seen == 0  # no first token was seen: no forecast is certain enough to refuse anybody
    for new in (2_000, 9_000):
        assert seconds(server, new, 0) / 1.7 < cost.prefill(new) < 1.7 * seconds(server, new, 0)


def test_one_long_answer_that_came_whole_is_not_taken_for_a_long_prefill() -> None:
    cost = Cost()
    cost.saw_whole(1_000, 0, 0, 1_000, 1, 20.0)
    assert cost.prefill(1_000) < 1.0


def test_first_tokens_overrule_whole_answers_whichever_came_first() -> None:
    early, late = whole((3.0, 1e-2, 0.0), (400,)), Cost()
    for cost in (early, late):
        for _ in range(20):
            cost.saw_first(1_000, 0, 0, 0.1)
    before = late.prefill(1_000)
    late.saw_whole(1_000, 0, 0, 8, 1, 60.0)
    assert early.prefill(1_000) == late.prefill(1_000) == before


@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 100_000), st.floats(1e-6, 1e5)), max_size=30))
def test_no_whole_answer_makes_a_price_negative(answers: list[tuple[int, int, float]]) -> None:
    cost = Cost()
    for new, tokens, took in answers:
        cost.saw_whole(new, 0, 0, tokens, 3, took)
    assert min(*cost.prefill_terms, *cost.step_terms) >= 0
