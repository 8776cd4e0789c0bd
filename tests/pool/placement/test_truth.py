"""Returned cached tokens correct what an endpoint is believed to hold: evictions, restarts, caches that do not work."""

from __future__ import annotations

from pool.types import Usage
from tests.pool.placement.world import World


def known(world: World, session: str, blocks: int) -> int:
    """Tokens that a next turn of the session would be expected to find at its home."""
    return world.choose(world.ask(session, blocks)).expected_hit


def test_unknown_is_not_zero_and_corrects_nothing() -> None:
    """No cached-token details: vllm-project/vllm#16162, vllm-project/aibrix#1607."""
    world = World("a")
    for blocks in (100, 110, 120):
        decision = world.turn("s", blocks, cached=None)
    assert decision.expected_hit == 1760
    assert known(world, "s", 130) == 1920


def test_fewer_than_foreseen_forgets_who_was_unused_for_longer() -> None:
    world = World("a")
    for session in ("old", "ours"):
        world.turn(session, 100, cached=0)
    world.now += 200
    world.turn("fresh", 100, cached=0)
    world.turn("ours", 110, cached=320)  # evicted but for 20 blocks
    assert known(world, "old", 110) == 0
    assert known(world, "fresh", 110) > 1400


def test_prompt_is_resident_after_its_answer_whatever_was_evicted_before() -> None:
    world = World("a")
    world.turn("s", 100)
    world.turn("s", 110, cached=320)
    assert known(world, "s", 120) > 1500


def test_one_answer_without_a_hit_is_no_proof_of_a_restart() -> None:
    world = World("a")
    for session in ("s1", "s2", "s3"):
        world.turn(session, 100)
    world.turn("s1", 110, cached=0)
    assert known(world, "s2", 110) > 1400


def test_second_answer_without_a_hit_in_a_row_takes_the_endpoint_for_cold() -> None:
    world = World("a")
    for session in ("s1", "s2", "s3"):
        world.turn(session, 100)
    world.turn("s1", 110, cached=0)
    world.turn("s2", 110, cached=0)
    assert known(world, "s3", 110) == 0
    assert known(world, "s1", 120) > 1200
    assert known(world, "s2", 120) > 1200


def test_counters_back_at_zero_are_a_restart() -> None:
    world = World("a", "b")
    home = world.turn("s", 100).endpoint
    assert home is not None
    world.placer.observe(home, running=0, waiting=0, prompt_tokens=5_000)
    assert known(world, "s", 110) == 1600
    world.placer.observe(home, running=0, waiting=0, prompt_tokens=12)
    assert world.placer.resident(home) == 0
    assert known(world, "s", 110) == 0


def test_server_that_never_caches_is_not_stayed_at() -> None:
    world = World("a")
    for turn in range(40):
        decision = world.turn("s", 100 + turn, cached=0)
    assert decision.expected_hit < 200


def test_trust_comes_back_with_the_hits() -> None:
    world = World("a")
    for turn in range(20):
        world.turn("s", 100 + turn, cached=0)
    for turn in range(60):
        decision = world.turn("s", 120 + turn, cached=(119 + turn) * 16)
    assert decision.expected_hit > 0.95 * 179 * 16


def test_fresh_pool_learns_from_answers_what_was_cached_before_its_time() -> None:
    """A fresh router does not know old KV: sgl-project/sglang#39750."""
    world = World("a", "b")
    first = world.turn("s", 100, cached=1584)
    assert first.expected_hit == 0
    again = world.turn("s", 110)
    assert (again.endpoint, again.expected_hit) == (first.endpoint, 1600)


def test_estimate_of_the_length_that_is_off_is_not_taken_for_an_eviction() -> None:
    world = World("a")
    world.turn("s", 100)
    ask = world.ask("s", 110)
    place = world.take(ask)
    place.first_token()
    place.finish(Usage(prompt_tokens=1320, completion_tokens=10, cached_tokens=1200))
    assert known(world, "s", 120) > 1600
