"""The tiers on the real pool and pretend servers over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pool.config import EndpointConfig, PoolConfig, VirtualConfig
from pool.errors import NoEndpointError
from pool.router import Pool
from pool.testing import PretendServer, Slow, pretend_vllm
from pool.tiers.front import Tiers
from pool.types import Message
from tests.pool.tiers.below import chat


@asynccontextmanager
async def house(virtual: dict[str, Any] | None = None, **servers: PretendServer) -> AsyncIterator[tuple[Pool, Tiers]]:
    """A pool with one server for each tier, in order, and the tiers on it."""
    config = PoolConfig(
        endpoints=tuple(EndpointConfig(name=tier, url=server.url, tier=tier) for tier, server in servers.items()),
        virtual={name: VirtualConfig(**settings) for name, settings in (virtual or {}).items()},
        probe_interval=0.1,
        connect_timeout=2.0,
    )
    async with Pool(config) as pool:
        yield pool, Tiers(pool, config)


async def test_an_overflow_told_by_a_server_climbs_to_the_longer_window() -> None:
    """SWE-agent/mini-swe-agent#721, over HTTP: the server's own refusal, not an estimate of ours."""
    text = "a b c d " * 100
    async with (
        pretend_vllm(["never"], window=64) as short,
        pretend_vllm(["done"], window=8192) as long,
        house(small=short, large=long) as (_, tiers),
    ):
        reply = await tiers.chat(chat("auto", text, max_tokens=16))
    assert (reply.choices[0].content, reply.tier, reply.endpoint) == ("done", "large", "large")
    assert "do not fit small" in reply.why


async def test_the_price_of_a_prefill_is_unknown_before_anybody_answered_and_grows_with_the_prompt() -> None:
    async with pretend_vllm(lambda _: Slow(0.02, "ok")) as server, house(small=server) as (pool, tiers):
        assert pool.estimate(chat("small"), "small") is None
        for size in (50, 500, 1000, 1500):
            await tiers.chat(chat("small", "word " * size, session=f"s{size}"))
        short = pool.estimate(chat("small", "other " * 10, session="x"), "small")
        long = pool.estimate(chat("small", "other " * 3000, session="x"), "small")
    assert short is not None
    assert long is not None
    assert 0.0 < short <= long


async def test_a_vote_reaches_the_server_as_one_request_for_several_samples() -> None:
    settings = {"v": {"kind": "vote", "tiers": ("small",), "samples": 5}}
    async with pretend_vllm(lambda _: "42") as server, house(settings, small=server) as (_, tiers):
        reply = await tiers.chat(chat("v"))
    assert reply.choices[0].content == "42"
    assert [recorded.body["n"] for recorded in server.requests] == [3]
    assert reply.report is not None
    assert reply.report.spent == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0


async def test_the_parts_of_one_answer_keep_to_their_sessions() -> None:
    """The brief and the judge have prefixes of their own, which must not push the conversation's out of its place."""
    settings = {"d": {"kind": "draft-verify", "tiers": ("small", "large")}}
    messages = tuple(
        Message(role="user" if number % 2 == 0 else "assistant", content=f"{number} " * 200) for number in range(9)
    )
    async with (
        pretend_vllm(lambda _: "port 80") as small,
        pretend_vllm(lambda _: '{"ruling": "accept"}') as large,
        house(settings, small=small, large=large) as (_, tiers),
    ):
        reply = await tiers.chat(chat("d").model_copy(update={"messages": messages}))
    assert reply.choices[0].content == "port 80"
    asked = {recorded.headers.get("x-session-id") for recorded in (*small.requests, *large.requests)}
    assert asked == {"s", "s~brief", "s~judge"}


@pytest.mark.slow
async def test_a_dead_small_tier_is_climbed_over_and_both_dead_is_an_error() -> None:
    async with (
        pretend_vllm(["x"]) as small,
        pretend_vllm(lambda _: "up") as large,
        house(small=small, large=large) as (_, tiers),
    ):
        await small.stop()
        reply = await tiers.chat(chat("auto", deadline=5))
        assert (reply.tier, reply.choices[0].content) == ("large", "up")
        await large.stop()
        with pytest.raises(NoEndpointError):
            await tiers.chat(chat("auto", deadline=3))
