"""What a reply tells of its time: waiting, the first token, and the seconds of GPUs. Over real HTTP."""

from __future__ import annotations

import asyncio

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.router import Pool
from pool.testing import Slow, pretend_vllm
from pool.tiers.run import shares
from pool.types import ChatRequest, Message, Part

PATIENCE = {"probe_interval": 0.1, "connect_timeout": 2.0, "first_byte_timeout": 10.0, "canaries": False}


def turn(session: str) -> ChatRequest:
    return ChatRequest(tier="small", session=session, messages=(Message(role="user", content="hi"),))


async def test_what_waits_for_a_place_is_told_apart_from_what_the_engine_took() -> None:
    async with pretend_vllm([Slow(0.3, "one"), Slow(0.3, "two")]) as server:
        endpoint = EndpointConfig(name="a", url=server.url, tier="small", max_in_flight=1, gpus=4)
        async with Pool(PoolConfig.model_validate({"endpoints": (endpoint,), **PATIENCE})) as pool:
            await pool.ready("small", 30)
            first, second = await asyncio.gather(pool.chat(turn("s")), pool.chat(turn("t")))
    for reply in (first, second):
        assert reply.prefill is not None
        assert 0 <= reply.waited <= reply.seconds
        assert reply.waited + reply.prefill <= reply.seconds + 1e-6
        assert reply.gpu_seconds == pytest.approx(4 * (reply.seconds - reply.waited), rel=0.01)
    assert second.waited > first.waited + 0.2
    assert second.gpu_seconds < 4 * second.seconds - 0.8


def test_parts_that_ran_beside_one_another_share_the_time_of_the_answer() -> None:
    parts = [Part(role="draft", tier="t", seconds=10, waited=2, prefill=3) for _ in range(2)]
    assert shares(parts, 10) == (pytest.approx(2), pytest.approx(3))
    assert shares([*parts, Part(role="judge", tier="t", seconds=1)], 10)[1] is None
    assert shares([Part(role="draft", tier="t", failed="broke")], 10)[0] == 0
