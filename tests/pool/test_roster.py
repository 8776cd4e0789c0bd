"""What is known of an endpoint, and how it is learnt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.errors import NoEndpointError, PoolConfigError
from pool.member import Member
from pool.roster import Roster
from pool.router import Pool
from pool.testing import PretendServer, pretend_vllm
from pool.types import CompletionRequest
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
                assert await seen.find("tools") is known
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


@asynccontextmanager
async def roster(*servers: PretendServer, **more: object) -> AsyncIterator[Roster]:
    endpoints = tuple(EndpointConfig(name=name, url=one.url) for name, one in zip("abc", servers, strict=False))
    settings = PoolConfig.model_validate({"endpoints": endpoints, "probe_interval": 0.05, "connect_timeout": 1, **more})
    made = Roster(settings, clock=time.monotonic, changed=lambda: None)
    async with made.running():
        yield made


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  a probe loop has no event for us
            await asyncio.sleep(0.01)


async def test_endpoint_joins_while_the_pool_runs_and_is_probed() -> None:
    async with pretend_vllm() as first, pretend_vllm() as second, roster(first) as made:
        made.add(EndpointConfig(name="late", url=second.url, tier="other"))
        await until(lambda: made.members["late"].state == "up")
        assert made.tiers == ("default", "other")
        with pytest.raises(PoolConfigError, match="'late' already"):
            made.add(EndpointConfig(name="late", url=second.url))


async def test_drained_endpoint_gets_nothing_new_and_its_requests_end() -> None:
    """vllm-project/production-stack#601: traffic still sent to a server that is being shut down."""
    async with pretend_vllm() as server, roster(server) as made:
        member = made.members["a"]
        held = member.hold()
        held.__enter__()
        draining = asyncio.create_task(made.drain("a"))
        await asyncio.sleep(0)
        assert member.site().draining
        assert not draining.done()
        assert await made.drain("a", within=0.01) is False
        held.__exit__(None, None, None)
        async with asyncio.timeout(1):
            assert await draining is True
        assert "a" in made.members
        made.admit("a")
        assert not member.site().draining


async def test_removed_endpoint_is_probed_no_more() -> None:
    async with pretend_vllm() as server, roster(server) as made:
        await until(lambda: server.probed > 0)
        await made.remove("a")
        assert made.members == {}
        seen = server.probed
        await asyncio.sleep(0.15)
        assert server.probed == seen
        for gone in (made.drain("a"), made.remove("a")):
            with pytest.raises(PoolConfigError, match="no endpoint 'a'"):
                await gone


async def test_new_configuration_touches_only_what_differs() -> None:
    async with pretend_vllm() as one, pretend_vllm() as two, roster(one, two) as made:
        await until(lambda: all(member.state == "up" for member in made.members.values()))
        kept = made.members["a"]
        changed = EndpointConfig(name="b", url=two.url, tier="other")
        new = EndpointConfig(name="d", url=one.url)
        assert await made.reload([kept.config, changed, new]) == ("b", "d")
        assert made.members["a"] is kept
        assert kept.state == "up"
        assert made.members["b"].config.tier == "other"
        assert await made.reload([new]) == ("a", "b")
        assert list(made.members) == ["d"]


@pytest.mark.slow
async def test_canaries_are_asked_in_the_background_after_joining_and_once() -> None:
    async with pretend_vllm() as server, roster(server) as made:
        await until(lambda: made.members["a"].native_tools is True)
        await until(lambda: not made.members["a"]._canaries.missing())
        asked = len(server.probes)
        await asyncio.sleep(0.2)
        assert len(server.probes) == asked
        assert server.requests == []
    async with pretend_vllm() as server, roster(server, canaries=False) as made:
        await until(lambda: made.members["a"].state == "up")
        await asyncio.sleep(1.2)
        assert server.probes == []


async def test_loop_survives_a_server_that_dies_and_comes_back() -> None:
    told: list[str] = []
    async with pretend_vllm() as server:
        settings = PoolConfig(
            endpoints=(EndpointConfig(name="a", url=server.url),),
            probe_interval=0.05,
            connect_timeout=1,
            canaries=False,
        )
        made = Roster(settings, clock=time.monotonic, changed=lambda: None, returned=told.append)
        async with made.running():
            member = made.members["a"]
            await until(lambda: member.state == "up")
            await server.stop()
            await until(lambda: member.state == "down")
            await server.start()
            await until(lambda: member.state == "up")
            assert member.site().warmth < 1


async def test_a_member_that_drains_says_so_as_its_trouble() -> None:
    async with pretend_vllm() as server:
        seen = member(server, Clock())
        async with seen.endpoint:
            await seen.probe()
        assert seen.trouble == "endpoint a: idle"
        seen.draining = True
        assert "draining" in seen.trouble
        assert "swarm pool admit a" in seen.trouble


async def test_a_tier_that_drains_wholly_says_so_to_whoever_asks_it() -> None:
    async with pretend_vllm() as server:
        config = PoolConfig(endpoints=(EndpointConfig(name="a", url=server.url),), retries=0)
        async with Pool(config) as pool:
            await pool.ready("default")
            assert await pool.drain("a", 1)
            with pytest.raises(NoEndpointError, match="endpoint a: draining"):
                await pool.complete(CompletionRequest(tier="default", session="s", prompt="x", deadline=1))
