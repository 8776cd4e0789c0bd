"""What is known of one endpoint: alive, busy, wedged, asleep or another than before, and what it can do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.errors import TransientError
from pool.member import COLD, RAMP, Member
from pool.testing import PretendServer, pretend_vllm
from pool.types import CANARY_TOOL
from pool.wire.metrics import Snapshot


class Clock:
    """Time that a test turns by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def member(server: PretendServer, clock: Clock | None = None, **more: Any) -> Member:
    returned = more.pop("returned", None)
    config = EndpointConfig.model_validate({"name": "a", "url": server.url, **more})
    settings = PoolConfig(endpoints=(config,), first_byte_timeout=10)
    return Member(config, settings, clock or Clock(), returned=returned)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  the background has no event for us
            await asyncio.sleep(0.005)


async def test_discovery_tells_version_models_and_cache() -> None:
    async with pretend_vllm(window=4096) as server:
        seen = member(server)
        async with seen.endpoint:
            await seen.probe()
        record = seen.record
        assert record is not None
        assert (record.kind, record.version, record.window) == ("vllm", "0.32.0+pretend", 4096)
        assert [card.id for card in record.cards] == ["pretend"]
        assert "vllm:num_requests_running" in record.families
        assert "load" in record.routes
        assert "is_sleeping" not in record.routes


async def test_busy_wedged_and_dead_are_three_things() -> None:
    """vllm-project/vllm#11996, #36960, gonka#1421: health says 200 in the first two; only the second is ill."""
    clock = Clock()
    async with pretend_vllm() as server:
        seen = member(server, clock)
        async with seen.endpoint:
            await seen.probe()
            assert seen.phase == "idle"
            server.running = 1
            for step in range(6):
                server.steps, clock.now = step + 1, clock.now + 9
                await seen.probe()
                assert (seen.phase, seen.state) == ("busy", "up")
            clock.now += 11
            await seen.probe()
            assert (seen.phase, seen.state) == ("wedged", "suspect")
            server.running = 0
            await server.stop()
            await seen.probe()
            await seen.probe()
            assert (seen.phase, seen.state) == ("dead", "down")


async def test_silent_probe_of_a_server_whose_streams_move_is_load() -> None:
    """llm-d/llm-d-router#1734: a slow probe ejects a busy server."""
    async with pretend_vllm() as server:
        clock = Clock()
        seen = member(server, clock)
        async with seen.endpoint:
            await seen.probe()
            with seen.hold():
                seen.moved()
                clock.now += 2
                seen._silent(TransientError("late"))
                assert seen.state == "up"
                clock.now += 60
                seen._silent(TransientError("late"))
                assert seen.phase == "silent"


async def test_restart_is_noticed_by_its_counters_and_everything_is_asked_anew() -> None:
    """sgl-project/sglang#39750: a server that came back cold is taken for warm."""
    clock, told = Clock(), list[str]()
    async with pretend_vllm() as server:
        seen = member(server, clock, returned=told.append)
        async with seen.endpoint:
            await seen.probe()
            assert await seen.find("tools") is True
            server.prompt_tokens = server.steps = 100
            await seen.probe()
            assert (seen.restarts, told) == (0, [])
            server.prompt_tokens = server.steps = 3
            server.tools = "refused"
            await seen.probe()
            assert (seen.restarts, told) == (1, ["a"])
            assert seen.native_tools is None
            assert await seen.find("tools") is False
            assert seen.site().warmth == pytest.approx(COLD)
            clock.now += RAMP / 2
            assert COLD < seen.site().warmth < 1
            clock.now += RAMP
            assert seen.site().warmth == 1


async def test_server_that_sleeps_is_not_asked() -> None:
    async with pretend_vllm() as server:
        seen = member(server)
        async with seen.endpoint:
            await seen.probe()
        seen._snapshot = Snapshot(asleep=True)
        assert (seen.phase, seen.state, seen.site().state) == ("asleep", "down", "down")


async def test_what_is_not_told_is_unknown_to_placement_and_never_full() -> None:
    async with pretend_vllm() as server:
        seen = member(server, max_in_flight=3, share_group="g", transfer_rate=5.0, role="decode")
        site = seen.site()
        assert (site.state, site.age, site.window, site.kv_usage, site.running) == ("unknown", None, None, None, None)
        assert (site.room, site.group, site.transfer_rate, site.role) == (3, "g", 5.0, "decode")


async def test_room_is_counted_by_whoever_reserves_and_never_below_none() -> None:
    async with pretend_vllm() as server:
        seen = member(server, max_in_flight=2)
        with seen.hold():
            assert seen.site().room == 1
            assert seen.site(in_flight=0).room == 2
            assert seen.site(in_flight=9).room == 0


async def test_view_for_placement_changes_at_once_with_what_it_shows() -> None:
    async with pretend_vllm() as server:
        clock = Clock()
        seen = member(server, clock)
        async with seen.endpoint:
            await seen.probe()
            first = seen.site()
            assert seen.site() is first
            seen.cooling_until = clock.now + 5
            assert seen.site().cooling == 5
            seen.draining = True
            assert seen.site().draining
            clock.now += 3
            assert (seen.site().cooling, seen.site().age) == (2, 3)
            assert seen.site(cooling=4, warmth=0.5).cooling == 4


async def test_tools_and_priority_must_be_seen_and_the_rest_may_be_tried() -> None:
    async with pretend_vllm() as server:
        seen = member(server)
        async with seen.endpoint:
            await seen.probe()
            assert seen.site().capabilities == {"reasoning", "json_schema", "stream_usage", "cached_tokens", "logprobs"}
            await seen.find("tools")
            assert "tools" in seen.site().capabilities
        trusted = member(server, scheduling="priority", tools="text")
        async with trusted.endpoint:
            await trusted.probe()
            assert "priority" in trusted.site().capabilities
            assert "tools" not in trusted.site().capabilities


async def test_examination_fills_the_record_and_is_made_once() -> None:
    async with pretend_vllm() as server:
        seen = member(server)
        async with seen.endpoint:
            await seen.probe()
            await seen.examine()
            asked = len(server.probes)
            await seen.examine()
            await seen.probe()
        assert len(server.probes) == asked > 0
        assert server.requests == []
        traits = seen.status().traits
        assert {name: trait.verdict for name, trait in traits.items()} == {
            "tools": "yes",
            "forced_tools": "yes",
            "reasoning": "unknown",
            "json_schema": "yes",
            "stream_usage": "yes",
            "cached_tokens": "yes",
            "priority": "unknown",
            "logprobs": traits["logprobs"].verdict,
        }
        assert "--scheduling-policy priority" in traits["priority"].mend
        assert seen.record is not None
        assert seen.record.verdict("json_schema") == "yes"
        assert all(probe.headers["x-session-id"] == CANARY_TOOL for probe in server.probes)


async def test_cached_tokens_that_are_not_told_name_the_flag() -> None:
    """vllm-project/vllm#16162."""
    async with pretend_vllm(details=False) as server:
        seen = member(server)
        async with seen.endpoint:
            await seen.probe()
            await seen.examine()
        trait = seen.status().traits["cached_tokens"]
        assert trait.verdict == "no"
        assert "--enable-prompt-tokens-details" in trait.mend


async def test_canaries_wait_for_quiet_and_give_way_to_the_request_that_needs_their_place() -> None:
    clock = Clock()
    async with pretend_vllm() as server:
        seen = member(server, clock, max_in_flight=1)
        async with seen.endpoint:
            await seen.probe()
            seen.ask_canaries()
            await asyncio.sleep(0.02)
            assert server.probes == []
            clock.now += 2
            server.hold()
            seen.ask_canaries()
            await until(lambda: bool(server.probes))
            assert seen._canaries.asking
            with seen.hold():
                assert not seen._canaries.asking
                clock.now += 2
                seen.ask_canaries()
                assert not seen._canaries.asking
            server.release()
            clock.now += 2
            seen.ask_canaries()
            await until(lambda: not seen._canaries.asking)
            assert seen.native_tools is True
            await seen.close()


async def test_request_that_needs_the_answer_does_not_wait_behind_the_background() -> None:
    clock = Clock()
    async with pretend_vllm() as server:
        seen = member(server, clock)
        async with seen.endpoint:
            await seen.probe()
            clock.now += 2
            server.hold()
            seen.ask_canaries()
            await asyncio.sleep(0.05)
            asking = asyncio.create_task(seen.find("tools"))
            await asyncio.sleep(0.05)
            server.release()
            async with asyncio.timeout(5):
                assert await asking is True
            await seen.close()


async def test_keys_are_in_no_status() -> None:
    async with pretend_vllm() as server:
        seen = member(server, api_key="s3cret")
        async with seen.endpoint:
            await seen.probe()
            await seen.examine()
        assert "s3cret" not in seen.status().model_dump_json() + repr(seen.record) + repr(seen.site())
