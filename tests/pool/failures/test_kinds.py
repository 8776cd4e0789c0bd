"""The fifteen kinds of failure, each met in the right way: by another endpoint, a typed error, or patience."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pool.errors import OverloadError, TransientError
from pool.testing import (
    Scripted,
    Slow,
    closed_early,
    engine_dead,
    error_midway,
    overload,
    pretend_vllm,
    queue_full,
    reset,
    reset_midway,
    stalled,
    torn_call,
    unfinished,
    without_done,
)
from pool.types import ToolSpec

TOOL = ToolSpec(name="shell", description="run", parameters={"type": "object", "properties": {"c": {"type": "string"}}})

BROKEN: dict[str, Scripted] = {
    "2 reset before a byte": reset(),
    "3 reset in mid-stream": reset_midway(),
    "4 clean cut without a finish": closed_early(),
    "5 finish without the terminator": without_done(),
    "6 terminator without a finish": unfinished(),
    "7 error in band": error_midway(),
    "10 engine dead": engine_dead(),
    "8 full, 503 without Retry-After": queue_full(),
    "9 full, 429 with Retry-After": overload(5),
    "slow failure": Slow(0.1, reset()),
}


@pytest.mark.parametrize("fault", BROKEN.values(), ids=BROKEN.keys())
async def test_broken_answer_is_replaced_by_another_endpoints_whole_one(world: Any, turn: Any, fault: Scripted) -> None:
    """production-stack#382, #939; Portkey-AI/gateway#1797; vllm-project/vllm#52852; semantic-router#3063."""
    async with pretend_vllm([fault]) as a, pretend_vllm(["whole"]) as b, world(a, b) as w:
        reply = await w.pool.chat(turn())
        assert (reply.choices[0].finish_reason, reply.endpoint, reply.attempts) == ("stop", "b", 2)
        assert reply.choices[0].content.endswith("whole")
        assert (len(a.requests), len(b.requests)) == (1, 1)


async def test_refused_connection_is_replaced_at_once(world: Any, turn: Any) -> None:
    """Kind 1. production-stack#749: a dead backend hangs nobody."""
    async with pretend_vllm() as a, pretend_vllm() as b, world(a, b, probe_interval=30) as w:
        await a.stop()
        async with asyncio.timeout(2):
            assert (await w.pool.chat(turn())).endpoint == "b"
        assert w.status("a").state in ("suspect", "down")


async def test_full_endpoint_is_no_failed_one(world: Any, turn: Any) -> None:
    """Kinds 8 and 9: an admission rejection marks it full for a moment, and its health is not doubted."""
    async with pretend_vllm([queue_full(), overload(30)]) as a, pretend_vllm() as b, world(a, b) as w:
        await w.pool.chat(turn("x"))
        assert 0 < w.status("a").cooling <= 0.25
        assert w.status("a").state == "up"
        await w.until(lambda: w.status("a").cooling == 0)
        await w.pool.chat(turn("y"))
        assert w.status("a").cooling > 25
        assert w.status("a").state == "up"
        assert len(b.requests) == 2


async def test_only_endpoint_that_is_full_is_waited_for(world: Any, turn: Any) -> None:
    """Kind 8. BerriAI/litellm#3646: all cooling is no reason to fail."""
    async with pretend_vllm([queue_full(), queue_full(), "at last"]) as a, world(a) as w:
        reply = await w.pool.chat(turn())
        assert (reply.choices[0].content, reply.attempts) == ("at last", 3)


async def test_wedged_engine_with_good_health_is_left(world: Any, turn: Any) -> None:
    """Kind 11. vllm-project/vllm#11996, #36960: health says 200 and nothing moves."""
    async with pretend_vllm() as a, pretend_vllm() as b, world(a, b, first_byte_timeout=0.4) as w:
        a.wedge()
        reply = await w.pool.chat(turn())
        assert (reply.endpoint, a.health) == ("b", 200)
        await w.until(lambda: a.dropped == 1)
        a.unwedge()


async def test_late_first_byte_is_waited_for_while_the_engine_moves(world: Any, turn: Any) -> None:
    """Kind 12. agentic-api#220; llama-swap#1090; vllm-project/vllm#20520: no second copy of it is sent."""
    async with pretend_vllm([Slow(1.2, "slow but sure")]) as a, world(a, first_byte_timeout=0.3) as w:

        async def work() -> None:
            while True:
                a.steps += 1
                await asyncio.sleep(0.02)

        engine = asyncio.create_task(work())
        reply = await w.pool.chat(turn())
        engine.cancel()
        assert (reply.choices[0].content, reply.attempts, len(a.requests)) == ("slow but sure", 1, 1)


async def test_stream_that_stands_still_is_given_up_and_ended_at_the_server(world: Any, turn: Any) -> None:
    """Kind 11, in mid-stream. maximhq/bifrost#5504: idle timeout between tokens."""
    async with pretend_vllm([stalled()]) as a, pretend_vllm(["whole"]) as b, world(a, b, idle_timeout=0.3) as w:
        assert (await w.pool.chat(turn())).endpoint == "b"
        await w.until(lambda: a.dropped == 1)


async def test_cut_tool_call_is_told_as_cut_and_never_handed_on(world: Any, turn: Any) -> None:
    """Kind 13. vllm-project/vllm#53269, #47761, #47903, #9053, #47963: it came as `tool_calls`."""
    async with pretend_vllm([torn_call("shell", c="rm -rf build")]) as a, world(a, endpoint={"tools": "native"}) as w:
        reply = await w.pool.chat(turn(tools=(TOOL,)))
        assert (reply.choices[0].tool_calls, reply.choices[0].finish_reason) == ((), "length")


async def test_server_that_came_back_cold_is_let_in_slowly(world: Any, turn: Any) -> None:
    """Kind 14. vime#371; design rule: no herd on a returned endpoint."""
    async with pretend_vllm() as a, pretend_vllm() as b, world(a, b) as w:
        await w.pool.chat(turn())
        a.prompt_tokens = 5000
        await w.until(lambda: w.pool._roster.members["a"].snapshot.prompt_tokens == 5000)
        await a.restart_cold()
        await w.until(lambda: w.status("a").restarts == 1)
        assert next(site.warmth for site in w.pool._sender.sites("small") if site.name == "a") < 0.5
        assert next(site.warmth for site in w.pool._sender.sites("small") if site.name == "b") == 1


async def test_slow_probe_of_a_busy_server_is_load_and_not_death(world: Any, turn: Any) -> None:
    """Kind 15. llm-d/llm-d-router#1734: a probe of a second ejected busy servers; gonka#1421: restarted as dead."""
    async with pretend_vllm([Slow(0.5, "done")], probe_delay=0.4) as a, world(a) as w:
        task = asyncio.create_task(w.pool.chat(turn()))
        await w.until(lambda: a.running)
        await asyncio.sleep(0.3)
        assert w.status("a").state == "up"
        assert (await task).attempts == 1


async def test_lasting_failure_ends_in_its_own_class_after_one_budget(world: Any, turn: Any) -> None:
    async with pretend_vllm(lambda _: reset_midway()) as a, world(a, retries=2) as w:
        with pytest.raises(TransientError):
            await w.pool.chat(turn(deadline=5))
        assert len(a.requests) == 3
    async with pretend_vllm(lambda _: overload(0.01)) as a, world(a, retries=2) as w:
        with pytest.raises(OverloadError):
            await w.pool.chat(turn(deadline=5))
        assert len(a.requests) == 3
