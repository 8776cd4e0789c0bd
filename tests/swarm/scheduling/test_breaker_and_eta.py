"""Breakers open, let one through and close; estimates are ranges, and silent where nothing is known."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.scheduling.breaker import LONGEST, PAUSE, THRESHOLD, Breaker, failed, shut, trying, worked
from swarm.scheduling.eta import FEWEST, eta


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker("repository:web")
    for number in range(THRESHOLD):
        assert shut(breaker, now, ()) == ""
        breaker = failed(breaker, f"t{number}", "no sandbox", now)
    return breaker


def test_it_opens_after_failures_in_a_row_and_tells_why() -> None:
    told = shut(opened(), 0.0, ())
    assert "3 times in a row on repository web (no sandbox)" in told
    assert "swarm breaker reset repository:web" in told


def test_one_that_works_in_between_starts_the_count_anew() -> None:
    assert worked(failed(Breaker("x"), "t", "why", 0.0)) == Breaker("x")


def test_after_the_pause_one_is_let_through_and_only_one() -> None:
    half = opened()
    assert shut(half, PAUSE, ()) == ""
    tried = trying(half, "probe", PAUSE)
    assert "task probe tries" in shut(tried, PAUSE, {"probe"})
    assert not worked(tried).opened


def test_a_trial_that_fails_doubles_the_pause_up_to_a_bound() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(12):
        assert breaker.until is not None
        pauses.append(breaker.until - now)
        now = breaker.until
        breaker = failed(trying(breaker, "probe", now), "probe", "still", now)
    assert pauses[:3] == [PAUSE, 2 * PAUSE, 4 * PAUSE]
    assert max(pauses) == LONGEST


def test_what_had_begun_before_proves_nothing_and_a_stopped_trial_is_made_anew() -> None:
    half = trying(opened(), "probe", PAUSE)
    assert failed(half, "older", "too", PAUSE).until == half.until
    assert shut(half, PAUSE, {"older"}) == ""


def test_too_little_is_known_and_nothing_is_said() -> None:
    assert eta(1, [], 2, [10.0] * (FEWEST - 1)) is None
    assert eta(1, [], 0, [10.0] * FEWEST) is None


def test_the_first_in_line_waits_for_the_soonest_end() -> None:
    found = eta(1, [4.0, 8.0], 2, [10.0] * 5)
    assert found is not None
    assert (found.low, found.high) == (12.0, 12.0)


@settings(max_examples=80)
@given(
    st.integers(1, 50),
    st.lists(st.floats(0, 500), max_size=4),
    st.integers(1, 4),
    st.lists(st.floats(1, 500), min_size=FEWEST, max_size=12),
)
def test_a_range_is_one_and_who_is_later_is_done_no_sooner(
    place: int, running: list[float], slots: int, durations: list[float]
) -> None:
    now, later = eta(place, running, slots, durations), eta(place + 1, running, slots, durations)
    assert now is not None
    assert later is not None
    assert 0 < now.low <= now.high + 1e-9
    assert now.low <= later.low + 1e-9
    assert now.high <= later.high + 1e-9
