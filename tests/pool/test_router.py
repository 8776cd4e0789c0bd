"""The pool against faults: failover, one budget, stickiness, counts that never leak. Over real HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.errors import (
    ContextOverflowError,
    NoEndpointError,
    OverloadError,
    PermanentError,
    PoolConfigError,
    TransientError,
)
from pool.router import Pool
from pool.testing import (
    PretendServer,
    Scripted,
    Slow,
    call,
    cut,
    engine_dead,
    error,
    hang,
    overflow,
    overload,
    pretend_vllm,
    reset,
    server_error,
)
from pool.types import ChatRequest, CompletionRequest, EndpointStatus, Message, ToolSpec

TOOL = ToolSpec(name="shell", description="run", parameters={"type": "object", "properties": {"c": {"type": "string"}}})


def turn(session: str = "s", said: str = "hi", **more: Any) -> ChatRequest:
    messages = (Message(role="user", content=said),)
    return ChatRequest.model_validate({"tier": "small", "session": session, "messages": messages, **more})


def long_turn(session: str) -> ChatRequest:
    """A turn of a conversation that is dear to read anew."""
    return turn(session, " ".join(f"{session} {i}" for i in range(2000)))


def settings(*servers: PretendServer, **more: Any) -> PoolConfig:
    endpoints = tuple(
        EndpointConfig(name=name, url=server.url, tier="small")
        for name, server in zip("abcdefgh", servers, strict=False)
    )
    patience = {"probe_interval": 0.1, "connect_timeout": 2.0, "first_byte_timeout": 10.0, "canaries": False}
    return PoolConfig.model_validate({"endpoints": endpoints, **patience, **more})


@asynccontextmanager
async def two(**more: Any) -> AsyncIterator[tuple[Pool, PretendServer, PretendServer]]:
    """A pool over two servers that are up."""
    async with pretend_vllm() as a, pretend_vllm() as b, Pool(settings(a, b, **more)) as pool:
        await up(pool, 2)
        yield pool, a, b


@asynccontextmanager
async def one(*script: Scripted, **more: Any) -> AsyncIterator[tuple[Pool, PretendServer]]:
    """A pool over one server that is up and plays a script."""
    async with pretend_vllm(script or None) as server, Pool(settings(server, **more)) as pool:
        await pool.ready("small", 30)
        yield pool, server


async def up(pool: Pool, count: int) -> None:
    await until(lambda: sum(status.state == "up" for status in pool.status()) == count)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  the server under test has no event for it
            await asyncio.sleep(0.01)


def status(pool: Pool, name: str) -> EndpointStatus:
    return next(status for status in pool.status() if status.name == name)


async def test_first_request_needs_no_waiting() -> None:
    async with pretend_vllm(["hello"]) as server, Pool(settings(server)) as pool:
        reply = await pool.chat(turn())
    assert (reply.choices[0].content, reply.endpoint, reply.model, reply.attempts) == ("hello", "a", "pretend", 1)


async def test_unknown_tier_is_refused_and_the_tiers_are_named() -> None:
    async with one() as (pool, _):
        with pytest.raises(PoolConfigError, match=r"'huge'.*small"):
            await pool.chat(turn(tier="huge"))


@pytest.mark.parametrize(
    "fault", [reset(), cut(), server_error(), engine_dead(), overload(), error(502, "bad gateway")]
)
async def test_fault_is_met_by_the_other_endpoint(fault: Scripted) -> None:
    async with two() as (pool, a, b):
        a.queue(fault)
        reply = await pool.chat(turn())
        assert (reply.endpoint, reply.attempts) == ("b", 2)
        assert (len(a.requests), len(b.requests)) == (1, 1)


async def test_endpoint_that_dies_mid_run_is_replaced_and_no_request_is_lost() -> None:
    async with two() as (pool, a, b):
        a.hold()
        b.hold()
        running = [asyncio.create_task(pool.chat(turn(f"s{i}"))) for i in range(20)]
        await until(lambda: a.running == b.running == 10)
        await a.stop()
        b.release()
        replies = await asyncio.gather(*running)
        assert {reply.endpoint for reply in replies} == {"b"}
        assert sum(reply.attempts > 1 for reply in replies) == 10
        assert all(s.in_flight == 0 for s in pool.status())
        await until(lambda: status(pool, "a").state == "down")
        await until(lambda: "nobody listens" in status(pool, "a").last_error)


@pytest.mark.slow
async def test_other_tier_is_never_reached_in_secret() -> None:
    async with pretend_vllm(lambda _: server_error()) as small, pretend_vllm() as large:
        config = settings(small, retries=3)
        big = EndpointConfig(name="big", url=large.url, tier="large")
        async with Pool(config.model_copy(update={"endpoints": (*config.endpoints, big)})) as pool:
            with pytest.raises(TransientError):
                await pool.chat(turn())
            await small.stop()
            with pytest.raises(NoEndpointError):
                await pool.chat(turn(deadline=3))
        assert large.requests == []


async def test_budget_is_spent_once_not_multiplied() -> None:
    async with pretend_vllm(lambda _: server_error()) as a, pretend_vllm(lambda _: server_error()) as b:
        async with Pool(settings(a, b, retries=3)) as pool:
            await up(pool, 2)
            with pytest.raises(TransientError):
                await pool.chat(turn())
        assert len(a.requests) + len(b.requests) == 4


async def test_zero_retries_means_one_try() -> None:
    async with one(server_error(), "never", retries=0) as (pool, server):
        with pytest.raises(TransientError):
            await pool.chat(turn())
        assert len(server.requests) == 1


@pytest.mark.parametrize("status_code", [400, 404, 405, 422, 501])
async def test_refusal_is_never_retried_nor_held_against_the_endpoint(status_code: int) -> None:
    async with two() as (pool, a, b):
        a.queue(error(status_code, "no"))
        with pytest.raises(PermanentError, match="endpoint a"):
            await pool.chat(turn())
        assert (len(a.requests), len(b.requests)) == (1, 0)
        assert status(pool, "a").state == "up"


async def test_overflow_tells_the_window_and_is_not_retried() -> None:
    async with one(overflow(4096), "never") as (pool, server):
        with pytest.raises(ContextOverflowError) as caught:
            await pool.chat(turn())
        assert caught.value.window == 4096
        assert len(server.requests) == 1


async def test_retry_after_is_waited_for() -> None:
    async with one(overload(0.6), "later") as (pool, server):
        started = time.monotonic()
        reply = await pool.chat(turn())
        assert 0.6 <= time.monotonic() - started < 20
        assert (reply.attempts, len(server.requests)) == (2, 2)


async def test_cooling_endpoint_is_left_alone_by_other_requests_too() -> None:
    async with two() as (pool, a, b):
        a.queue(overload(30))
        await pool.chat(turn("x"))
        assert status(pool, "a").cooling > 25
        await asyncio.gather(*(pool.chat(turn(f"y{i}")) for i in range(6)))
        assert (len(a.requests), len(b.requests)) == (1, 7)


async def test_retry_after_past_the_deadline_fails_at_once_and_says_when() -> None:
    async with one(overload(60)) as (pool, server):
        started = time.monotonic()
        with pytest.raises(OverloadError) as caught:
            await pool.chat(turn(deadline=40))
        assert caught.value.retry_after == pytest.approx(60, abs=20)
        with pytest.raises(OverloadError) as again:
            await pool.chat(turn(deadline=40))
        assert again.value.retry_after is not None
        assert time.monotonic() - started < 20
        assert len(server.requests) == 1


async def test_lasting_overload_ends_as_overload() -> None:
    async with one(*[overload(0.01)] * 9, retries=2) as (pool, server):
        with pytest.raises(OverloadError):
            await pool.chat(turn())
        assert len(server.requests) == 3


async def test_hanging_server_is_given_up_at_the_deadline_and_the_request_is_dropped_there() -> None:
    async with one(hang(), "free") as (pool, server):
        started = time.monotonic()
        with pytest.raises(TransientError, match="deadline"):
            await pool.chat(turn(deadline=0.4))
        assert time.monotonic() - started < 8  # and not what the first byte may take
        assert status(pool, "a").in_flight == 0
        await until(lambda: server.dropped)
        assert (await pool.chat(turn())).choices[0].content == "free"


async def test_wedged_engine_is_left_though_its_health_is_good() -> None:
    async with two(first_byte_timeout=0.5) as (pool, a, _):
        a.queue(hang())
        reply = await pool.chat(turn())
        assert (reply.endpoint, a.health) == ("b", 200)
        assert "stands still" in status(pool, "a").last_error or status(pool, "a").state == "up"


@pytest.mark.slow
async def test_slow_answer_is_waited_for_while_the_engine_moves() -> None:
    async with one(Slow(3.5, "slow but sure"), first_byte_timeout=1.2) as (pool, server):

        async def work() -> None:
            while True:
                server.steps += 1
                await asyncio.sleep(0.02)

        engine = asyncio.create_task(work())
        reply = await pool.chat(turn())
        engine.cancel()
        assert (reply.choices[0].content, reply.attempts) == ("slow but sure", 1)


async def test_cancelled_request_gives_its_place_back_and_ends_at_the_server() -> None:
    async with one(hang(), "next") as (pool, server):
        task = asyncio.create_task(pool.chat(turn()))
        await until(lambda: server.running)
        assert status(pool, "a").in_flight == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert status(pool, "a").in_flight == 0
        await until(lambda: not server.running)
        assert (await pool.chat(turn())).choices[0].content == "next"


async def test_cancelled_waiter_does_not_swallow_the_place() -> None:
    async with pretend_vllm() as server:
        server.hold()
        config = settings(server)
        narrow = config.endpoints[0].model_copy(update={"max_in_flight": 1})
        async with Pool(config.model_copy(update={"endpoints": (narrow,)})) as pool:
            await pool.ready("small", 30)
            tasks = [asyncio.create_task(pool.chat(turn(f"s{i}"))) for i in range(4)]
            await until(lambda: server.running == 1)
            tasks[1].cancel()
            tasks[2].cancel()
            server.release()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(d, asyncio.CancelledError) for d in done] == [False, True, True, False]
            assert server.peak == 1
            assert status(pool, "a").in_flight == 0


@pytest.mark.slow
async def test_client_is_never_the_cap() -> None:
    async with pretend_vllm() as server:
        server.hold()
        config = settings(server)
        wide = config.endpoints[0].model_copy(update={"max_in_flight": 500})
        async with Pool(config.model_copy(update={"endpoints": (wide,)})) as pool:
            await pool.ready("small", 30)
            tasks = [asyncio.create_task(pool.chat(turn(f"s{i}"))) for i in range(200)]
            await until(lambda: server.running == 200)
            server.release()
            await asyncio.gather(*tasks)


async def test_session_sticks_to_its_endpoint() -> None:
    async with two() as (pool, _, __):
        homes = {s: {(await pool.chat(long_turn(s))).endpoint for _ in range(5)} for s in ("x", "y", "z", "w")}
        assert all(len(home) == 1 for home in homes.values())


@pytest.mark.slow
async def test_session_moves_when_its_endpoint_dies_and_then_stays() -> None:
    async with two() as (pool, a, _):
        assert (await pool.chat(long_turn("s"))).endpoint == "a"
        await a.stop()
        assert [(await pool.chat(long_turn("s"))).endpoint for _ in range(3)] == ["b"] * 3
        await a.start()
        await up(pool, 2)
        assert (await pool.chat(long_turn("s"))).endpoint == "b"


async def test_new_sessions_go_where_the_fewest_of_ours_are() -> None:
    async with two() as (pool, a, b):
        a.hold()
        b.hold()
        tasks = [asyncio.create_task(pool.chat(turn(f"s{i}"))) for i in range(10)]
        await until(lambda: a.running == b.running == 5)
        a.release()
        b.release()
        await asyncio.gather(*tasks)


async def test_requests_of_one_new_session_go_together() -> None:
    async with two() as (pool, a, b):
        await asyncio.gather(*(pool.chat(long_turn("same")) for _ in range(4)))
        assert sorted((len(a.requests), len(b.requests))) == [0, 4]


async def test_model_that_went_away_is_looked_for_anew() -> None:
    async with one(probe_interval=30) as (pool, server):
        await pool.chat(turn())
        server.model = "another"
        reply = await pool.chat(turn())
        assert (reply.model, reply.attempts) == ("another", 2)


async def test_model_that_stays_away_is_a_refusal_after_one_more_try() -> None:
    async with one(*[error(404, "The model `pretend` does not exist.")] * 9) as (pool, server):
        with pytest.raises(PermanentError):
            await pool.chat(turn())
        assert len(server.requests) == 2


async def test_server_that_starts_late_is_joined() -> None:
    async with pretend_vllm() as server, Pool(settings(server, probe_interval=30)) as pool:
        await server.stop()
        later = asyncio.create_task(asyncio.sleep(0.6))
        waiting = asyncio.create_task(pool.ready("small", 10))
        await later
        await server.start()
        await waiting
        assert (await pool.chat(turn())).endpoint == "a"


async def test_not_ready_in_time_says_which_endpoint_and_why() -> None:
    async with pretend_vllm() as server:
        await server.stop()
        async with Pool(settings(server)) as pool:
            with pytest.raises(NoEndpointError, match=r"'small'.*endpoint a: nobody listens at http://127"):
                await pool.ready("small", 0.4)


async def test_null_cached_tokens_are_unknown_not_zero() -> None:
    async with pretend_vllm(details=False) as server, Pool(settings(server)) as pool:
        assert (await pool.chat(turn())).usage.cached_tokens is None
        server.details = True
        assert (await pool.chat(turn())).usage.cached_tokens == 0


@pytest.mark.parametrize(("tools", "native"), [("native", True), ("text", False), ("refused", False)])
async def test_tool_calls_are_believed_when_seen(tools: str, native: bool) -> None:
    async with pretend_vllm(tools=tools) as server, Pool(settings(server)) as pool:
        assert await pool.native_tools("small") is native
        assert await pool.native_tools("small") is native
        assert len(server.probes) == 1
        assert status(pool, "a").native_tools is native
        if not native:
            with pytest.raises(PermanentError, match="as text"):
                await pool.chat(turn(tools=(TOOL,)))
            assert server.requests == []


async def test_mixed_tier_speaks_text_and_tool_turns_go_only_where_they_work() -> None:
    async with pretend_vllm(tools="text") as a, pretend_vllm(tools="native") as b, Pool(settings(a, b)) as pool:
        await up(pool, 2)
        assert await pool.native_tools("small") is False
        replies = [await pool.chat(turn(f"s{i}", tools=(TOOL,))) for i in range(4)]
        assert {reply.endpoint for reply in replies} == {"b"}
        assert replies[0].choices[0].tool_calls[0].name == "shell"
        assert replies[0].choices[0].finish_reason == "tool_calls"
        known = pool._dispatch._presence.sessions.get("s0")
        assert known is not None
        assert known.doing == "tool shell"  # nobody told: the answer shows it


async def test_tool_canary_that_failed_is_asked_again() -> None:
    async with pretend_vllm() as server, Pool(settings(server)) as pool:
        await pool.ready("small", 30)
        server.window = 1
        assert await pool.native_tools("small") is False
        assert status(pool, "a").native_tools is None
        server.window = 8192
        assert await pool.native_tools("small") is True


async def test_a_server_that_dies_before_it_was_asked_for_a_tool_call_is_not_taken_for_one_that_cannot() -> None:
    """A conversation that began in that moment went on in text for ever, with a model that only makes native calls."""
    async with pretend_vllm() as server, Pool(settings(server)) as pool:
        await pool.ready("small", 30)
        await server.stop()
        with pytest.raises(NoEndpointError):
            await pool.native_tools("small")
        await server.start()
        await pool.ready("small", 30)
        assert await pool.native_tools("small") is True


async def test_server_restarted_with_other_flags_is_asked_for_a_tool_call_again() -> None:
    async with pretend_vllm(tools="refused") as server, Pool(settings(server)) as pool:
        assert await pool.native_tools("small") is False
        await server.stop()
        await until(lambda: status(pool, "a").state == "down")
        server.tools = "native"
        await server.start()
        await pool.ready("small", 30)
        assert await pool.native_tools("small") is True


async def test_the_traits_of_a_tier_are_what_all_of_its_living_endpoints_were_seen_to_do() -> None:
    async with (
        pretend_vllm(window=8192) as a,
        pretend_vllm(window=4096, tools="text") as b,
        Pool(settings(a, b)) as pool,
    ):
        await up(pool, 2)
        found = await pool.traits("small")
        assert (found.window, found.longest, found.native, found.structured) == (4096, 8192, False, True)
        assert not found.forced
        await b.stop()
        await until(lambda: status(pool, "b").state == "down")
        assert await pool.traits("small") == found.model_copy(update={"window": 8192, "native": True, "forced": True})


async def test_a_call_is_demanded_of_endpoints_that_were_seen_to_make_one_then() -> None:
    async with pretend_vllm(tools="native") as server, Pool(settings(server)) as pool:
        assert (await pool.traits("small")).forced
        reply = await pool.chat(turn(tools=(TOOL,), tool_choice="required"))
        assert reply.choices[0].tool_calls
        assert server.requests[-1].body["tool_choice"] == "required"


async def test_a_schema_that_is_taken_and_not_kept_to_is_no_trait() -> None:
    async with pretend_vllm(schemas=False) as server, Pool(settings(server)) as pool:
        assert not (await pool.traits("small")).structured


async def test_traits_of_a_tier_with_nobody_up_are_unknown_even_where_its_calls_are_configured_as_text() -> None:
    async with pretend_vllm() as server:
        await server.stop()
        made = EndpointConfig(name="a", url=server.url, tier="small", tools="text")
        async with Pool(PoolConfig(endpoints=(made,))) as pool:
            with pytest.raises(NoEndpointError):
                await pool.traits("small")


async def test_tools_answer_is_parsed_whole() -> None:
    async with one(call("shell", c="ls -l")) as (pool, _):
        reply = await pool.chat(turn(tools=(TOOL,)))
    assert reply.choices[0].tool_calls[0].arguments == '{"c": "ls -l"}'


async def test_samples_of_a_completion_come_back_and_are_counted() -> None:
    async with one("x y z") as (pool, server):
        reply = await pool.complete(CompletionRequest(tier="small", session="s", prompt="a b", n=8, stop=("\n",)))
    assert [choice.content for choice in reply.choices] == ["x y z"] * 8
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (2, 24)
    assert server.requests[0].body["stop"] == ["\n"]


async def test_leaving_the_pool_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(pretend_vllm())
        pool = await stack.enter_async_context(Pool(settings(server)))
        await pool.chat(turn())
    assert asyncio.all_tasks() == before
