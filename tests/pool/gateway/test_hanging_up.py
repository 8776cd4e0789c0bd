"""Whoever hangs up early pays for what was written until then, and for nothing that never began."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import httpx
import pytest

from pool.testing import hang, paced, pretend_vllm

MOST = 100_000
KEYS = [{"name": "anna", "sha256": hashlib.sha256(b"anna").hexdigest(), "tokens_per_day": MOST}]
AUTH = {"authorization": "Bearer anna"}


def spent(house: Any) -> float:
    """Tokens that the key's budget lacks."""
    (budget,) = (budget for _, budget in house.service.keys.caller("Bearer anna").budgets)
    budget.wait(1)
    return MOST - float(budget._left)


async def cut(house: Any, body: dict[str, Any], seconds: float) -> None:
    """Ask and hang up after a while."""
    try:
        async with asyncio.timeout(seconds):
            await house.chat(body, **AUTH)
    except (TimeoutError, httpx.HTTPError):
        pass
    await house.quiet()


@pytest.mark.parametrize("stream", [True, False])
async def test_what_was_written_is_paid_for(gateway: Any, stream: bool) -> None:
    async with pretend_vllm(lambda _: paced("word " * 2000, 0.001)) as server, gateway(server, keys=KEYS) as house:
        await cut(house, {"stream": stream, "max_tokens": 2000}, 0.6)
        assert spent(house) >= (2000 if stream else 15)  # its own ceiling was reserved


async def test_many_tokens_in_one_piece_are_paid_for(gateway: Any) -> None:
    def slowly(_: Any) -> Any:
        return paced("abcdefgh" * 400 + " x" * 500, 0.01)

    async with pretend_vllm(slowly) as server, gateway(server, keys=KEYS) as house:
        await cut(house, {"stream": True}, 0.5)
        assert spent(house) >= 800


async def test_an_answer_that_nobody_heard_is_paid_for_by_its_time(gateway: Any) -> None:
    async with pretend_vllm(lambda _: hang()) as server, gateway(server, keys=KEYS) as house:
        began = house.service.clock
        ahead = [0.0]
        house.service.clock = lambda: began() + ahead[0]
        task = asyncio.create_task(cut(house, {}, 0.4))
        async with asyncio.timeout(3):
            while not server.running:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.01)
        ahead[0] = 100.0
        await task
        assert 3000 <= spent(house) < 3500


async def test_what_never_left_the_queue_costs_nothing(gateway: Any) -> None:
    async with (
        pretend_vllm(lambda _: hang()) as server,
        gateway(server, keys=KEYS, pool={"admission": {"max_live_sessions": 1}}) as house,
    ):
        first = asyncio.create_task(house.chat({"session_id": "one"}, **AUTH))
        async with asyncio.timeout(3):
            while not server.running:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.01)
        before = spent(house)
        waiting = asyncio.create_task(house.chat({"session_id": "two", "max_tokens": 5000}, **AUTH))
        async with asyncio.timeout(3):
            while not house.service.pool.waiting():  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.01)
        assert spent(house) >= before + 5000
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(3):
            while house.service.pool.waiting() or spent(house) > before + 10:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
