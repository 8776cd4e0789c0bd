"""Load counts every request once, returns to nothing in whatever order things end, and fades where it is old."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.placement.load import Lane, Load, Share
from pool.types import Usage
from tests.pool.placement.world import World

ENDS = st.lists(st.sampled_from(["first_token", "grew", "finish", "release", "drop"]), max_size=6)


@given(st.lists(ENDS, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_counts_return_to_nothing_whatever_the_order(lives: list[list[str]], order: Any) -> None:
    """In-flight counters leak on client disconnect: vllm-project/router#215. One accounting point: #179."""
    world = World("a", "b", kv_tokens=100_000)
    places = [world.take(world.ask(f"s{i % 3}", 10 + i)) for i in range(len(lives))]
    steps = [(place, step) for place, life in zip(places, lives, strict=True) for step in [*life, "release"]]
    order.shuffle(steps)
    for place, step in steps:
        if step == "grew":
            place.grew(7)
        elif step == "finish":
            place.finish(Usage(prompt_tokens=160, completion_tokens=5, cached_tokens=0))
        else:
            getattr(place, step)()
    for name in "ab":
        load = world.placer.load(name)
        assert (load.in_flight, load.pending_tokens, load.context_tokens) == (0, 0, 0)
    for i in range(3):
        world.placer.forget_session(f"s{i}")
    assert [world.placer.load(name).live_tokens for name in "ab"] == [0, 0]


def test_place_is_given_back_when_the_block_breaks() -> None:
    world = World("a")
    place = world.take(world.ask("s"))
    assert world.placer.load("a").in_flight == 1
    with pytest.raises(RuntimeError, match="torn"), place:
        raise RuntimeError("torn")
    assert world.placer.load("a") == Load(live_sessions=1, live_tokens=1600)


def test_first_token_ends_the_wait_for_the_prefill_and_nothing_else() -> None:
    world = World("a")
    place = world.take(world.ask("s", 100))
    assert world.placer.load("a").pending_tokens == 1600
    place.first_token()
    place.grew(30)
    load = world.placer.load("a")
    assert (load.pending_tokens, load.in_flight, load.context_tokens) == (0, 1, 1630)


def test_cached_tokens_do_not_wait_for_a_prefill() -> None:
    world = World("a")
    world.turn("s", 100)
    world.take(world.ask("s", 110))
    assert world.placer.load("a").pending_tokens == 160


def test_what_a_scrape_counts_beyond_our_own_is_other_peoples() -> None:
    lane = Lane("a")
    shares = [Share(lane, 10, 10) for _ in range(3)]
    lane.scraped(0.0, running=4, waiting=2)
    assert (lane.foreign, lane.foreign_waiting) == (3.0, 2.0)
    for share in shares:
        share.close()
    assert lane.foreign == 3.0  # ours that ended since were never in it
    lane.scraped(1.0, running=0, waiting=None)
    assert lane.foreign == 0.0


def test_old_scrape_fades_and_an_unknown_one_says_nothing() -> None:
    lane = Lane("a")
    assert lane.believed(100.0, 5.0) == 0.0
    lane.scraped(0.0, running=8, waiting=0)
    believed = [lane.believed(now, 5.0) for now in (0.0, 5.0, 10.0, 60.0)]
    assert believed[:3] == [1.0, 1.0, 0.5]
    assert believed[3] < 0.001
    lane.scraped(61.0, running=None, waiting=3)
    assert lane.believed(61.0, 5.0) == 0.0


def test_counter_that_went_back_is_noticed_once_and_a_missing_one_never() -> None:
    lane = Lane("a")
    assert [lane.counted(value) for value in (None, 100, 200, None, 250, 3, 4)] == [False] * 5 + [True, False]
