"""The breaker opens on failures of the endpoint alone, soon lets probes through, and always finds its way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.breaker import COLD, LONGEST, LOST, PROBES, RAMP, SHORTEST, VOLUME, Breaker, Outcome


def put(breaker: Breaker, outcome: Outcome, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.leave(breaker.enter(now), outcome, now)


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    put(breaker, "failed", now, VOLUME)
    assert breaker.state(now) == "open"
    return breaker


def test_refusals_never_open_it() -> None:
    """vllm-project/router#60, sgl-project/sglang#25811, #26713: a client's own mistakes opened the breaker."""
    breaker = Breaker()
    put(breaker, "neutral", 1.0, 10_000)
    assert breaker.state(1.0) == "closed"
    assert breaker.wait(1.0) == 0


def test_few_failures_open_nothing_and_many_do_at_once() -> None:
    """vime#371: a short hiccup became an outage; BerriAI/litellm#34836: 25 failures in a row opened nothing."""
    breaker = Breaker()
    put(breaker, "failed", 1.0, VOLUME - 1)
    assert breaker.state(1.0) == "closed"
    put(breaker, "failed", 1.0)
    assert breaker.state(1.0) == "open"
    assert 0 < breaker.wait(1.0) <= SHORTEST


def test_few_failures_among_many_successes_open_nothing() -> None:
    breaker = Breaker()
    put(breaker, "ok", 1.0, 20)
    put(breaker, "failed", 1.0, 9)
    assert breaker.state(1.0) == "closed"


def test_old_failures_are_forgotten() -> None:
    breaker = Breaker()
    put(breaker, "failed", 1.0, VOLUME - 1)
    put(breaker, "failed", 60.0)
    assert breaker.state(60.0) == "closed"


def test_death_opens_it_with_one_word() -> None:
    breaker = Breaker()
    put(breaker, "dead", 1.0)
    assert breaker.state(1.0) == "open"


def test_half_open_lets_few_through_and_closes_with_the_first_success() -> None:
    """sgl-project/sglang#31206: half-open never closed."""
    breaker = opened()
    now = SHORTEST
    tickets = [breaker.enter(now) for _ in range(PROBES)]
    assert breaker.wait(now) > 0
    breaker.leave(tickets[0], "ok", now)
    assert breaker.state(now) == "closed"
    assert breaker.wait(now) == 0


def test_failed_probe_opens_it_for_longer_but_never_for_long() -> None:
    breaker, now = opened(), 0.0
    waits = []
    for _ in range(12):
        now += breaker.wait(now)
        put(breaker, "failed", now)
        waits.append(breaker.wait(now))
    assert waits[0] == 2 * SHORTEST
    assert max(waits) == LONGEST


def test_probe_that_is_cancelled_gives_its_place_to_another() -> None:
    breaker = opened()
    for _ in range(50):
        put(breaker, "neutral", SHORTEST)
    assert breaker.wait(SHORTEST) == 0


def test_lost_probe_holds_nobody_for_ever() -> None:
    """sgl-project/sglang#31206."""
    breaker = opened()
    for _ in range(PROBES):
        breaker.enter(SHORTEST)
    assert breaker.wait(SHORTEST) == pytest.approx(LOST)
    assert breaker.wait(SHORTEST + LOST) == 0


def test_what_went_out_before_says_nothing_of_now() -> None:
    breaker = Breaker()
    early = [breaker.enter(0.0) for _ in range(20)]
    put(breaker, "failed", 0.0, VOLUME)
    for ticket in early:
        breaker.leave(ticket, "failed", 0.5)
    assert breaker.wait(SHORTEST) == 0


def test_return_is_slow_and_ends() -> None:
    """vime#371: no herd on an endpoint that just came back."""
    breaker = opened()
    put(breaker, "ok", SHORTEST)
    assert breaker.warmth(SHORTEST) == COLD
    assert COLD < breaker.warmth(SHORTEST + RAMP / 2) < 1
    assert breaker.warmth(SHORTEST + RAMP) == 1


OUTCOMES = st.sampled_from(["ok", "failed", "dead", "neutral", "lost"])


@given(st.lists(st.tuples(st.floats(0, 5), OUTCOMES), max_size=200))
def test_whatever_happens_it_can_be_left_within_a_minute(story: list[tuple[float, str]]) -> None:
    breaker, now = Breaker(), 0.0
    for step, outcome in story:
        now += step
        ticket = breaker.enter(now)
        if outcome != "lost":
            breaker.leave(ticket, outcome, now)  # type: ignore[arg-type]
        assert 0 <= breaker.warmth(now) <= 1
    later = now + LONGEST + LOST
    assert breaker.wait(later) == 0
    breaker.leave(breaker.enter(later), "ok", later)
    assert breaker.state(later) == "closed"
