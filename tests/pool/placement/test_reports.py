"""Public reports of routers that placed badly: the same situation, and the right value here."""

from __future__ import annotations

from collections import Counter

import pytest

from pool.placement.placer import Placer
from pool.placement.view import Ask, Prompt, Site
from pool.types import Usage
from tests.pool.placement.world import World


def fill(world: World, name: str, sessions: int, blocks: int) -> None:
    """Requests in flight at one endpoint."""
    for i in range(sessions):
        ask = world.ask(f"{name}-{i}", blocks)
        world.placer.reserve(ask, world.placer.choose(ask, [world.sites[name]]))


def test_stale_metrics_never_close_the_last_endpoint() -> None:
    """llm-d/llm-d-router#2408, #2547: stale metrics count as saturated, and a pool of one stalls."""
    world = World("a")
    world.change("a", running=200, waiting=90, kv_usage=1.0, age=3600.0)
    world.placer.observe("a", running=200, waiting=90)
    world.now += 3600
    decision = world.choose(world.ask("s"))
    assert decision.endpoint == "a"
    assert decision.expected_ttft is not None
    assert decision.expected_ttft < 1.0


def test_unknown_load_is_neither_full_nor_empty() -> None:
    """The same reports: what is not told counts as what is usual among the others."""
    world = World("known", "silent")
    world.placer.observe("known", running=10, waiting=0)
    rows = {row.endpoint: row for row in world.choose(world.ask("s")).rows}
    assert rows["silent"].total == pytest.approx(rows["known"].total, rel=0.01)


def test_probe_does_not_touch_the_count_of_what_we_sent() -> None:
    """vllm-project/router#197, #216: a health check zeroes counters."""
    world = World("a")
    world.take(world.ask("s"))
    for running in (0, None, 7):
        world.placer.observe("a", running=running, waiting=0)
    assert world.placer.load("a").in_flight == 1


def test_between_two_scrapes_our_own_requests_count() -> None:
    """vllm-project/router#177, #178: stale polled load makes a herd."""
    world = World("a", "b", "c", "d")
    for name, running in zip("abcd", (0, 3, 3, 3), strict=True):
        world.placer.observe(name, running=running, waiting=0)
    taken = Counter(world.take(world.ask(f"s{i}")).endpoint for i in range(12))
    assert taken["a"] < 12
    assert len(taken) == 4


def test_burst_is_spread_as_it_is_counted() -> None:
    """vllm-project/aibrix#2422: between choice and count a burst lands on one endpoint. #179: 8 engines, 1 busy."""
    world = World(*"abcdefgh")
    taken = Counter(world.take(world.ask(f"s{i}")).endpoint for i in range(64))
    assert set(taken.values()) == {8}


def test_imbalance_breaks_no_affinity_of_others() -> None:
    """vllm-project/router#238, sgl-project/sglang#32195: one hot endpoint switches affinity off for everybody."""
    world = World("a", "b", "c")
    for i in range(9):
        world.turn(f"s{i}", 2000)
    homes = {f"s{i}": world.placer.home(f"s{i}") for i in range(9)}
    fill(world, "a", 40, 200)
    for session, home in homes.items():
        if home != "a":
            assert world.choose(world.ask(session, 2010)).endpoint == home


def test_no_match_goes_by_load_not_to_the_emptiest_cache() -> None:
    """sgl-project/sglang#14305, #14532: without a match the smallest tree is taken, which was just evicted."""
    world = World("busy", "calm", kv_tokens=500_000)
    for i in range(10):
        ask = world.ask(f"s{i}", 300)
        place = world.placer.reserve(ask, world.placer.choose(ask, [world.sites["calm"]]))
        place.first_token()
        place.finish(Usage(prompt_tokens=4_800, completion_tokens=10, cached_tokens=0))
        world.placer.forget_session(f"s{i}")
    fill(world, "busy", 8, 2_000)
    world.placer.restarted("busy")
    assert world.placer.resident("busy") < world.placer.resident("calm")
    assert world.choose(world.ask("new", 300)).endpoint == "calm"


def test_queue_at_the_warm_endpoint_is_compared_with_a_prefill_elsewhere() -> None:
    """sgl-project/sglang#21199: cache-aware waits 1617 ms where round robin waits 627."""
    world = World("a", "b")
    home = str(world.turn("s", 100).endpoint)
    fill(world, home, 20, 3_000)
    decision = world.choose(world.ask("s", 110))
    rows = {row.endpoint: row for row in decision.rows}
    assert decision.endpoint != home
    assert rows[str(decision.endpoint)].ttft < rows[home].ttft


def test_long_contexts_count_by_their_tokens() -> None:
    """smg#1621: long contexts fill the KV cache though counts of requests look equal."""
    world = World("long", "short", kv_tokens=200_000)
    for i in range(4):
        ask = world.ask(f"long-{i}", 3_000)
        place = world.placer.reserve(ask, world.placer.choose(ask, [world.sites["long"]]))
        place.first_token()
        ask = world.ask(f"short-{i}", 50)
        world.placer.reserve(ask, world.placer.choose(ask, [world.sites["short"]])).first_token()
    assert world.placer.load("long").in_flight == world.placer.load("short").in_flight
    assert [world.choose(world.ask(f"new-{i}", 1_000)).endpoint for i in range(3)] == ["short"] * 3


def test_cache_too_full_for_its_sessions_lets_some_go_to_an_empty_one() -> None:
    """prime-rl#3255: too many sessions on one cache thrash it, hit rate 98 to 5 %."""
    world = World("full", "empty", kv_tokens=100_000)
    for i in range(12):
        ask = world.ask(f"s{i}", 1_000)
        place = world.placer.reserve(ask, world.placer.choose(ask, [world.sites["full"]]))
        place.first_token()
        world.now += 1
        place.finish(Usage(prompt_tokens=16_000, completion_tokens=50, cached_tokens=0))
    moved = 0
    for i in range(12):
        decision = world.turn(f"s{i}", 1_010)
        moved += decision.endpoint == "empty"
    loads = [world.placer.load(name).live_tokens for name in ("full", "empty")]
    assert 3 <= moved <= 9
    assert max(loads) < 140_000


def test_fresh_replica_comes_to_the_same_choice() -> None:
    """ai-dynamo/dynamo#11035: affinity kept in one replica only; what answers tell makes another agree with it."""
    world, other = World("a", "b"), World("a", "b")
    home = world.turn("s", 1_000).endpoint
    ask = other.ask("s", 1_000)
    other.placer.learn(ask, str(home), None, Usage(prompt_tokens=16_000, completion_tokens=5, cached_tokens=15_984))
    assert other.choose(other.ask("s", 1_010)).endpoint == world.choose(world.ask("s", 1_010)).endpoint == home


def test_rerouted_session_has_its_new_home_at_once() -> None:
    """vllm-project/aibrix#2772: the pin is not updated after a reroute."""
    world = World("a", "b")
    home = str(world.turn("s", 500).endpoint)
    world.change(home, state="down")
    moved = world.turn("s", 510)
    assert moved.moved_from == home
    world.change(home, state="up")
    assert world.placer.home("s") == moved.endpoint
    assert world.choose(world.ask("s", 520)).endpoint == moved.endpoint


def test_tried_endpoint_is_not_picked_again_by_the_same_request() -> None:
    """AMD Infera #82: the failing worker is picked again."""
    world = World("a", "b", "c")
    ask, tried = world.ask("s"), set[str]()
    for _ in range(3):
        decision = world.choose(ask, tried=frozenset(tried))
        assert decision.endpoint not in tried
        tried.add(str(decision.endpoint))
    assert world.choose(ask, tried=frozenset(tried)).endpoint is None


def test_every_endpoint_cooling_waits_for_the_first_to_return() -> None:
    """BerriAI/litellm#3646: with all deployments cooling the request fails instead of waiting."""
    world = World("a", "b")
    world.change("a", cooling=7.0)
    world.change("b", cooling=2.0)
    decision = world.choose(world.ask("s"))
    assert (decision.endpoint, decision.again) == (None, 2.0)


def test_state_never_grows_with_the_number_of_requests() -> None:
    """vllm-project/production-stack#687: the trie grows until the process is killed."""
    placer, sites = (
        Placer(clock=lambda: 5.0),
        [Site("a", "t", "up", kv_tokens=16_000), Site("b", "t", "up", kv_tokens=16_000)],
    )
    sizes = []
    for i in range(6_000):
        prompt = Prompt(320, tuple(range(i * 40, i * 40 + 20)), 16)
        ask = Ask(f"r{i}", "t", f"s{i}", prompt, 5.0, 600.0)
        placer.reserve(ask, placer.choose(ask, sites)).finish(Usage(prompt_tokens=320))
        if i % 2_000 == 1_999:
            residency = placer._memory.residency
            sizes.append((residency.nodes(), sum(len(s.queue) for s in residency._shelves.values())))
    assert sizes[0] == sizes[1] == sizes[2]
