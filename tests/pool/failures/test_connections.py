"""Connections and time: public reports 32 to 37."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from pool.errors import TransientError
from pool.testing import PretendServer, Slow, hang, pretend_vllm


async def test_client_never_caps_what_the_server_could_take(world: Any, turn: Any) -> None:
    """32, 33: vllm-project/vllm#14513, #7241, production-stack#765, #767, lighteval#1190, verifiers#1811, trl#5861,
    pydantic-ai#3828, BerriAI/litellm#19549: "only 100 at once" was the client's own pool of connections."""
    async with pretend_vllm() as a, world(a, endpoint={"max_in_flight": 400}) as w:
        a.hold()
        tasks = [asyncio.create_task(w.pool.chat(turn(f"s{i}"))) for i in range(300)]
        await w.until(lambda: a.running == 300)
        a.release()
        await asyncio.gather(*tasks)


async def test_idle_connection_is_given_up_before_the_server_does(world: Any, turn: Any) -> None:
    """34: llm-d/llm-d#1564, llm-d-benchmark#1675, NeMo Gym#1555: it was kept longer than the server's."""
    async with pretend_vllm() as a, world(a) as w:
        await w.pool.chat(turn())
        channel = w.pool._roster.members["a"].endpoint._channel
        connector = channel._sessions[False].connector
        assert 0 < connector._keepalive_timeout < 5


def drop_idle(server: PretendServer) -> None:
    """Close the server's side of every connection, as one does that was idle for too long."""
    for transport in tuple(server._door.transports.values()):
        transport.abort()


async def test_connection_that_the_server_closed_costs_no_try(world: Any, turn: Any) -> None:
    """34: llm-d/llm-d#1564: RST on a kept connection became a 502."""
    async with pretend_vllm() as a, world(a, retries=0, probe_interval=30) as w:
        for i in range(3):
            assert (await w.pool.chat(turn(f"s{i}"))).attempts == 1
            drop_idle(a)
            await asyncio.sleep(0.02)
        assert w.status("a").state == "up"


async def test_connections_are_kept_and_used_again(world: Any, turn: Any) -> None:
    """35: NeMo Gym#1669: a new client for each call."""
    async with pretend_vllm() as a, world(a) as w:
        for i in range(5):
            await w.pool.chat(turn(f"s{i}"))
        ports = [recorded.headers["host"] for recorded in a.requests]
        assert len(ports) == 5
        connector = w.pool._roster.members["a"].endpoint._channel._sessions[False].connector
        assert sum(len(waiting) for waiting in connector._conns.values()) == 1


async def test_time_to_begin_and_time_between_pieces_are_two_limits(world: Any, turn: Any) -> None:
    """36: agentic-api#220, llama-swap#1090: one timeout for both cut off long prompts."""
    patience = {"first_byte_timeout": 5, "idle_timeout": 0.2}
    async with pretend_vllm([Slow(0.8, "late but whole")]) as a, world(a, **patience) as w:
        assert (await w.pool.chat(turn())).choices[0].content == "late but whole"


async def test_long_prompt_gets_more_time_to_begin(world: Any, turn: Any) -> None:
    """36: agentic-api#220: 30 s for prompts that need 45 to 250."""
    async with pretend_vllm([Slow(0.8, "read it all")]) as a, world(a, first_byte_timeout=0.3) as w:
        said = ({"role": "user", "content": "word " * 2000},)
        assert (await w.pool.chat(turn(messages=said))).attempts == 1


async def test_request_that_is_given_up_ends_at_the_server_and_is_not_sent_again(world: Any, turn: Any) -> None:
    """37: vllm-project/vllm#20520: the client gave up after 15 minutes, sent again, and doubled the load."""
    async with pretend_vllm(lambda _: hang()) as a, world(a) as w:
        started = time.monotonic()
        with pytest.raises(TransientError, match="deadline"):
            await w.pool.chat(turn(deadline=0.4))
        assert time.monotonic() - started < 20
        await w.until(lambda: a.dropped == 1)
        assert (len(a.requests), a.running) == (1, 0)
