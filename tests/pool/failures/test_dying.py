"""Endpoints that die, hang, drain or answer late: public reports 1 to 11, each with the right value."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from pool.errors import NoEndpointError, OverloadError, PermanentError, TransientError
from pool.testing import Slow, error, hang, overload, pretend_vllm, server_error


async def test_wedged_engine_is_called_wedged_though_health_is_good(world: Any, turn: Any) -> None:
    """1: vllm-project/vllm#11996, #36960: /health says 200 while the engine is dead."""
    async with pretend_vllm() as a, world(a, first_byte_timeout=0.3, retries=0) as w:
        a.wedge()
        with pytest.raises(TransientError, match="stands still"):
            await w.pool.chat(turn(deadline=3))
        assert a.health == 200
        assert w.status("a").state in ("suspect", "down")
        a.unwedge()
        await w.until(lambda: w.status("a").state == "up")


async def test_busy_engine_that_steps_is_never_called_dead(world: Any, turn: Any) -> None:
    """2: gonka#1421: busy nodes were restarted as dead, 8 times a day and more."""
    async with pretend_vllm(lambda _: Slow(0.8)) as a, world(a, first_byte_timeout=0.2) as w:
        seen = set()

        async def work() -> None:
            while True:
                a.steps += 1
                seen.add(w.status("a").state)
                await asyncio.sleep(0.02)

        engine = asyncio.create_task(work())
        replies = await asyncio.gather(*(w.pool.chat(turn(f"s{i}")) for i in range(8)))
        engine.cancel()
        assert seen == {"up"}
        assert all(reply.attempts == 1 for reply in replies)


async def test_draining_endpoint_gets_nothing_new_and_ends_what_it_has(world: Any, turn: Any) -> None:
    """4: vllm-project/production-stack#601; 10: sgl-project/sglang#39016: new work stops first, then it drains."""
    async with pretend_vllm(lambda _: Slow(0.4)) as a, pretend_vllm() as b, world(a, b) as w:
        running = asyncio.create_task(w.pool.chat(turn("x")))
        await w.until(lambda: a.running or b.running)
        name = "a" if a.running else "b"
        draining = asyncio.create_task(w.pool.drain(name))
        await asyncio.sleep(0)
        others = await asyncio.gather(*(w.pool.chat(turn(f"y{i}")) for i in range(4)))
        assert name not in {reply.endpoint for reply in others}
        assert (await running).endpoint == name
        assert await draining


async def test_removed_endpoint_breaks_nobodys_request(world: Any, turn: Any) -> None:
    async with pretend_vllm() as a, pretend_vllm() as b, world(a, b) as w:
        a.hold()
        b.hold()
        running = [asyncio.create_task(w.pool.chat(turn(f"s{i}"))) for i in range(6)]
        await w.until(lambda: a.running and a.running + b.running == 6)
        b.release()
        await w.pool.remove("a")
        assert {reply.endpoint for reply in await asyncio.gather(*running)} == {"b"}


async def test_dead_backend_hangs_nobody(world: Any, turn: Any) -> None:
    """5: vllm-project/production-stack#749."""
    async with pretend_vllm() as a, world(a, retries=1) as w:
        await a.stop()
        started = time.monotonic()
        with pytest.raises((TransientError, NoEndpointError)):
            await w.pool.chat(turn(deadline=30))
        assert time.monotonic() - started < 20


async def test_request_that_nobody_answered_goes_to_another(world: Any, turn: Any) -> None:
    """6: vllm-project/production-stack#382, #939: no failover to another backend."""
    async with pretend_vllm([server_error()]) as a, pretend_vllm() as b, world(a, b) as w:
        assert (await w.pool.chat(turn())).endpoint == "b"


async def test_one_dead_worker_does_not_hide_the_models_of_the_others(world: Any, turn: Any) -> None:
    """7: vllm-project/router#135."""
    async with pretend_vllm() as a, pretend_vllm(model="second") as b, world(a, b) as w:
        await a.stop()
        await w.until(lambda: w.status("a").state == "down")
        assert w.status("b").model == "second"
        assert (await w.pool.chat(turn())).model == "second"


async def test_failure_names_the_endpoint_and_the_stage(world: Any, turn: Any) -> None:
    """8: vllm-project/router#158: healthy workers, and a 502 that says nothing."""
    async with pretend_vllm(lambda _: server_error()) as a, world(a, retries=0) as w:
        with pytest.raises(TransientError, match=r"endpoint a: 500"):
            await w.pool.chat(turn())
    async with pretend_vllm(lambda _: hang()) as a, world(a, endpoint={"max_in_flight": 1}) as w:
        first = asyncio.create_task(w.pool.chat(turn("x", deadline=1.5)))
        await w.until(lambda: a.running)
        with pytest.raises(OverloadError) as caught:
            await w.pool.chat(turn("y", deadline=0.3))
        assert caught.value.stage == "deadline"
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_worker_that_failed_it_is_not_asked_again_while_another_lives(world: Any, turn: Any) -> None:
    """9: AMD Infera #82."""
    async with (
        pretend_vllm(lambda _: server_error()) as a,
        pretend_vllm(lambda _: server_error()) as b,
        pretend_vllm() as c,
        world(a, b, c) as w,
    ):
        reply = await w.pool.chat(turn())
        assert reply.endpoint == "c"
        assert len(a.requests) <= 1
        assert len(b.requests) <= 1


async def test_metrics_that_grow_old_are_unknown_and_stop_nobody(world: Any, turn: Any) -> None:
    """11: llm-d/llm-d-router#2408, #2547: stale metrics counted as full, and a pool of one stood still for 9.7 s."""
    async with pretend_vllm() as a, world(a, probe_interval=30) as w:
        w.pool._roster.members["a"]._scraped_at -= 3600
        started = time.monotonic()
        await w.pool.chat(turn())
        assert time.monotonic() - started < 8


async def test_last_endpoint_is_asked_though_its_breaker_is_open(world: Any, turn: Any) -> None:
    """15: BerriAI/litellm#3646: all cooled down, and every request failed instead of being tried."""
    async with pretend_vllm([*[server_error()] * 5, "back"]) as a, world(a, retries=0, probe_interval=0.05) as w:
        for i in range(5):
            with pytest.raises(TransientError):
                await w.pool.chat(turn(f"s{i}"))
        assert w.pool._sender.standings.state("a") == "open"
        await w.until(lambda: w.status("a").state == "up")
        assert (await w.pool.chat(turn(deadline=1))).choices[0].content == "back"


@pytest.mark.parametrize("fault", [error(402, "budget exceeded"), overload(20)])
async def test_exhausted_quota_is_left_alone_for_a_while(world: Any, turn: Any, fault: Any) -> None:
    """17: BerriAI/litellm#37592: 402 was never cooled."""
    async with pretend_vllm([fault]) as a, pretend_vllm() as b, world(a, b) as w:
        assert (await w.pool.chat(turn())).endpoint == "b"
        assert w.status("a").cooling > 10
        assert w.status("a").state == "up"


async def test_refusals_leave_the_endpoint_as_good_as_it_was(world: Any, turn: Any) -> None:
    """12: vllm-project/router#60, sgl-project/sglang#25811, #26713: 4xx opened the breaker."""
    async with pretend_vllm(lambda _: error(400, "no")) as a, world(a) as w:
        for i in range(20):
            with pytest.raises(PermanentError):
                await w.pool.chat(turn(f"s{i}"))
        assert w.pool._sender.standings.state("a") == "closed"
        assert (w.status("a").state, w.status("a").cooling) == ("up", 0)


async def test_lasting_5xx_opens_the_breaker_at_once_and_no_cycle_is_awaited(world: Any, turn: Any) -> None:
    """16: BerriAI/litellm#34836: 25 errors in a row cooled nothing; 13: it comes back by itself."""
    sick = [True]
    async with (
        pretend_vllm(lambda _: server_error() if sick[0] else None) as a,
        pretend_vllm() as b,
        world(a, b, probe_interval=0.1) as w,
    ):
        await asyncio.gather(*(w.pool.chat(turn(f"s{i}")) for i in range(24)))
        assert w.pool._sender.standings.state("a") == "open"
        asked = len(a.requests)
        await w.pool.chat(turn("later"))
        assert len(a.requests) == asked
        sick[0] = False
        await w.until(lambda: w.pool._sender.standings.state("a") == "half-open")
        await asyncio.gather(*(w.pool.chat(turn(f"t{i}")) for i in range(24)))
        assert w.pool._sender.standings.state("a") == "closed"


async def test_breaker_opens_and_cooling_begins_with_all_logging_off(world: Any, turn: Any) -> None:
    """18: BerriAI/litellm#32574: a cooldown was skipped since the log's de-duplicator had swallowed its line."""
    logging.disable(logging.CRITICAL)
    try:
        async with pretend_vllm([overload(20), *[server_error()] * 9]) as a, world(a, retries=0) as w:
            with pytest.raises(OverloadError):
                await w.pool.chat(turn(deadline=2))
            assert w.status("a").cooling > 10
            w.pool._roster.members["a"].cooling_until = 0.0
            for i in range(5):
                with pytest.raises(TransientError):
                    await w.pool.chat(turn(f"s{i}"))
            assert w.pool._sender.standings.state("a") == "open"
    finally:
        logging.disable(logging.NOTSET)
