"""Who got least goes first: shares converge, fade with time and cost no sweep."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from pool.admission.fairness import NOTHING, Service, used, weight
from pool.types import Usage


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(10, 5_000), min_size=2, max_size=5), st.integers(0, 2**32))
def test_backlogged_programs_get_equal_parts_whatever_their_requests_weigh(sizes: list[int], seed: int) -> None:
    service = Service(half_life=1e9)
    got = dict.fromkeys(map(str, range(len(sizes))), 0.0)
    for step in range(400):
        program = min(got, key=lambda name: (service.level(name), name))
        size = 1 + (sizes[int(program)] * (1 + (seed + step) % 7)) // 4
        service.charge(program, size, float(step))
        got[program] += size
    spread = max(got.values()) - min(got.values())
    assert spread <= 2 * max(sizes) + 2  # no more than one of the largest requests apart, whatever the run


def test_half_of_what_was_got_is_forgotten_after_the_half_life() -> None:
    service = Service(half_life=60.0)
    service.charge("a", 1_000, now=0.0)
    assert math.isclose(service.attained("a", 60.0), 500.0)
    service.charge("b", 600, now=60.0)
    assert service.level("a") < service.level("b")
    service.charge("a", 200, now=60.0)
    assert service.level("a") > service.level("b")


def test_weeks_of_uptime_neither_overflow_nor_lose_the_order() -> None:
    service = Service(half_life=60.0)
    for week in range(10):
        now = week * 604_800.0
        service.charge("a", 2_000, now)
        service.charge("b", 1_000, now)
        assert service.level("b") < service.level("a")
        assert math.isclose(service.attained("a", now), 2_000, rel_tol=1e-3)


def test_estimate_taken_back_leaves_nothing() -> None:
    service = Service(half_life=60.0)
    service.charge("a", 500, 10.0)
    service.charge("a", -500, 10.0)
    assert service.level("a") == NOTHING
    assert len(service) == 0


def test_programs_are_bounded_and_the_longest_unserved_is_forgotten() -> None:
    """State that grows until the process dies: vllm-project/production-stack#687."""
    service = Service(half_life=60.0, cap=100)
    for i in range(5_000):
        service.charge(f"p{i}", 10, float(i))
    assert len(service) == 100
    assert service.level("p4999") > NOTHING
    assert service.level("p0") == NOTHING


def test_output_weighs_more_than_prompt_and_cached_prompt_least() -> None:
    assert weight(0, 10) > weight(10, 0) > weight(10, 0, cached=10) > 0
    told = Usage(prompt_tokens=100, completion_tokens=10, cached_tokens=90)
    untold = Usage(prompt_tokens=100, completion_tokens=10)
    assert used(told) < used(untold)


def test_only_ten_times_as_much_is_a_hog_and_little_counts_as_a_few_turns() -> None:
    service = Service(half_life=60.0)
    service.charge("much", 500_000, 100.0)
    service.charge("some", 60_000, 100.0)
    assert service.hogs("much", "never served")
    assert not service.hogs("much", "some")
    assert not service.hogs("some", "much")
    service.charge("turn", 20_000, 100.0)
    assert not service.hogs("turn", "never served")
