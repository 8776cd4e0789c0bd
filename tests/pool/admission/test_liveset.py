"""The live sessions of an endpoint never need more KV than it has, and a turn that runs is never touched."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pool.admission.footprint import Footprint, footprint
from pool.admission.liveset import LiveSet, Waste
from pool.placement.view import Prompt


def need(tokens: int) -> Footprint:
    return footprint(Prompt(tokens), 0)


def seated(*tokens: int, headroom: float = 1.0) -> LiveSet:
    """Sessions s0, s1 ... between turns, held for 100 s."""
    live = LiveSet(headroom, None)
    live.kv_tokens = 1_000
    for i, size in enumerate(tokens):
        live.enter(f"s{i}", need(size))
        live.leave(f"s{i}", need(size), 100.0, float(i))
    return live


def test_long_contexts_fill_it_though_they_are_few() -> None:
    """Counting requests hides what long contexts take: smg#1621."""
    live = seated(400, 400)
    assert not live.fits("new", need(300), 0.0)
    assert live.fits("new", need(200), 0.0)
    assert live.fits("s0", need(300), 0.0)


def test_unknown_cache_is_neither_full_nor_empty() -> None:
    """Stale or missing metrics must not stall the last endpoint: llm-d/llm-d-router#2408."""
    live = seated(10**9)
    live.kv_tokens = None
    assert live.fits("new", need(10**9), 0.0)


def test_configured_number_holds_where_the_cache_is_unknown() -> None:
    live = LiveSet(0.9, 2)
    live.enter("a", need(1))
    live.enter("b", need(1))
    assert not live.fits("c", need(1), 0.0)
    assert live.fits("a", need(1), 0.0)


def test_session_too_large_for_the_whole_cache_runs_alone() -> None:
    live = LiveSet(0.9, None)
    live.kv_tokens = 1_000
    assert live.fits("huge", need(5_000), 0.0)
    live.enter("huge", need(5_000))
    assert not live.fits("small", need(1), 0.0)
    live.relieve(0.0)
    live.leave("huge", need(5_000), 100.0, 1.0)
    live.relieve(0.0)
    assert "huge" in live.seats


def test_place_is_let_go_when_nobody_comes_back_in_time() -> None:
    live = seated(400, 400)
    live.hold("s0", 200.0, 0.0)
    assert not live.fits("new", need(300), 99.0)
    assert live.fits("new", need(300), 100.0)
    assert set(live.seats) == {"s0"}


def test_who_has_come_back_and_waits_keeps_its_place_beyond_its_time() -> None:
    live = seated(400)
    live.returned("s0", 99.0)
    live.expire(1_000.0)
    assert "s0" in live.seats


def test_under_pressure_the_one_expected_back_last_is_paused_and_no_running_turn() -> None:
    live = seated(300, 300, 300)
    live.enter("running", need(300))
    live.hold("s1", 100.0, 60.0)  # a long tool
    live.relieve(0.0)
    assert set(live.seats) == {"s0", "s2", "running"}
    live.kv_tokens = 100
    live.relieve(0.0)
    assert set(live.seats) == {"running"}
    assert live.paused == 3


def test_parallel_turns_of_one_session_hold_one_place_until_the_last_is_over() -> None:
    live = LiveSet(1.0, None)
    live.enter("s", need(100))
    live.enter("s", need(120))
    assert live.tokens == 120
    live.leave("s", need(130), 0.0, 0.0)
    live.expire(10.0)
    assert live.tokens == 130
    live.leave("s", need(140), 0.0, 0.0)
    live.expire(10.0)
    assert live.tokens == 0


def by_size(name: str, tokens: int) -> float | None:
    return None if name == "s2" else tokens / 100


def test_place_for_who_waited_too_long_is_the_cheapest_and_no_running_turns() -> None:
    live = seated(400, 200, 100)  # the last may not be paused
    live.enter("running", need(150))
    assert live.displace("late", need(300), 0.0, by_size, 10.0) == 2.0
    assert set(live.seats) == {"s0", "s2", "running"}
    assert live.paused == 1


def test_nobody_is_paused_where_that_would_cost_more_than_was_saved_up() -> None:
    live = seated(400, 400)
    assert live.displace("late", need(900), 0.0, by_size, 7.9) is None
    assert (set(live.seats), live.tokens, live.paused) == ({"s0", "s1"}, 800, 0)
    assert live.displace("late", need(900), 0.0, by_size, 8.0) == 8.0


def test_who_fits_pays_nothing() -> None:
    live = seated(400)
    assert live.displace("late", need(300), 0.0, by_size, 0.0) == 0.0
    assert set(live.seats) == {"s0"}


def test_growth_may_use_the_room_that_is_kept_from_newcomers() -> None:
    live = seated(500, 400, headroom=0.8)
    live.relieve(0.0)
    assert set(live.seats) == {"s0", "s1"}
    assert not live.fits("new", need(50), 0.0)


def test_waste_is_what_was_had_before_and_is_computed_again() -> None:
    waste = Waste()
    assert waste.share == 0.0
    for _ in range(50):
        waste.answered(0, 1_000, 0)  # a first turn
        waste.answered(1_000, 1_200, 960)
        waste.answered(1_200, 300, 0)  # compacted
        waste.answered(1_000, 1_200, None)
    assert 0.0 < waste.share < 0.03
    for _ in range(50):
        waste.answered(1_000, 1_200, 0)
    assert waste.share > 0.4


steps = st.lists(
    st.tuples(st.sampled_from(("begin", "end", "fail", "wait", "relieve")), st.integers(0, 12), st.integers(1, 600)),
    max_size=150,
)


@settings(max_examples=80, deadline=None)
@given(steps)
def test_bound_holds_under_any_run_and_all_is_given_back(run: list[tuple[str, int, int]]) -> None:
    live, now = LiveSet(0.9, None), 0.0
    live.kv_tokens = 1_000
    running: dict[str, int] = {}
    for what, number, size in run:
        name = f"s{number}"
        if what == "begin":
            alone, known = not live.seats, name in live.seats
            if live.fits(name, need(size), now):
                grown = live.seats[name].footprint.own if known else 0
                live.enter(name, need(max(size, grown)))
                running[name] = running.get(name, 0) + 1
                if not known and not alone and len(live.seats) > 1:
                    assert live.tokens <= 900
        elif what in ("end", "fail") and running.get(name):
            running[name] -= 1
            live.leave(name, need(size), now if what == "fail" else now + 50, now + size)
        elif what == "wait":
            now += size / 10
            live.expire(now)
        live.relieve(now)
        in_turn = {n for n, turns in running.items() if turns}
        assert in_turn <= set(live.seats)
        assert live.tokens == sum(seat.footprint.tokens for seat in live.seats.values())
        assert live.tokens <= 1_000 or in_turn == set(live.seats) or len(live.seats) == 1
    for name, turns in running.items():
        for _ in range(turns):
            live.leave(name, need(1), now, now)
    live.expire(now + 1_000)
    assert live.tokens == 0
    assert not live.seats
