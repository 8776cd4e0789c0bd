"""What is known of an endpoint, and how it is learnt."""

from __future__ import annotations

import asyncio

from pool.config import EndpointConfig, PoolConfig
from pool.member import Member
from pool.testing import PretendServer, pretend_vllm
from pool.wire.metrics import Snapshot


class Clock:
    """Time that a test turns by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def member(server: PretendServer, clock: Clock, **more: object) -> Member:
    config = EndpointConfig.model_validate({"name": "a", "url": server.url, **more})
    return Member(config, PoolConfig(endpoints=(config,), first_byte_timeout=10), clock)


async def test_age_of_a_scrape_is_told_and_none_is_no_age() -> None:
    clock = Clock()
    async with pretend_vllm() as server:
        seen = member(server, clock)
        assert seen.status().age is None
        async with seen.endpoint:
            await seen.probe()
        clock.now = 7
        assert seen.status().age == 7


async def test_looks_at_the_same_time_are_one_look() -> None:
    async with pretend_vllm() as server:
        seen = member(server, Clock())
        async with seen.endpoint:
            await asyncio.gather(*(seen.probe() for _ in range(5)))
    assert server.probed == 1


async def test_engine_that_stands_still_with_work_is_suspected_and_an_idle_one_is_not() -> None:
    clock = Clock()
    async with pretend_vllm() as server:
        seen = member(server, clock)
        async with seen.endpoint:
            await seen.probe()
            clock.now = 100
            await seen.probe()
            assert seen.status().state == "up"
            server.running = 1
            for now in (101, 105, 109.9):
                clock.now = now
                await seen.probe()
                assert seen.status().state == "up"
            clock.now = 110
            await seen.probe()
            assert seen.status().state == "suspect"
            assert "stands still" in seen.status().last_error
            server.steps += 1
            await seen.probe()
            assert seen.status().state == "up"
            server.running = 0


async def test_server_that_says_503_is_down_until_it_says_otherwise() -> None:
    async with pretend_vllm() as server:
        seen = member(server, Clock())
        async with seen.endpoint:
            await seen.probe()
            server.health = 503
            await seen.probe()
            assert seen.status().state == "down"
            server.health = 200
            await seen.probe()
            assert seen.status().state == "up"


async def test_tools_that_the_operator_named_are_not_asked_for() -> None:
    async with pretend_vllm() as server:
        for told, known in (("native", True), ("text", False)):
            seen = member(server, Clock(), tools=told)
            async with seen.endpoint:
                await seen.probe()
                assert await seen.find_tools() is known
    assert server.probes == []


async def test_probe_does_not_touch_our_own_count() -> None:
    """A health check that reset the load would send everybody to the busiest server."""
    async with pretend_vllm() as server:
        seen = member(server, Clock())
        async with seen.endpoint:
            with seen.hold(), seen.hold():
                await seen.probe()
                assert seen.status().in_flight == 2
            assert seen.status().in_flight == 0


def test_server_that_tells_nothing_has_unknown_load_and_no_pulse() -> None:
    assert Snapshot().load is None
    assert Snapshot().progress is None
