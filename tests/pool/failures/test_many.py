"""Very many sessions that come once and never again: what is kept of each is small, and bounded in number."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from dataclasses import replace

import pytest

from pool.breaker import Breaker
from pool.config import PoolConfig
from pool.dispatch import Dispatch
from pool.placement.blocks import MOST_SESSIONS
from pool.placement.placer import Placer
from pool.placement.settings import Settings
from pool.placement.view import Ask, Prompt, Site
from pool.poison import Failure, Suspects
from pool.types import Usage


@pytest.mark.slow
async def test_a_session_that_came_once_leaves_little_behind() -> None:
    now, numbers = [0.0], itertools.count()
    dispatch = Dispatch(PoolConfig(), lambda: now[0], Placer(clock=lambda: now[0]))
    site = Site(name="a", tier="t", state="up", room=64, kv_tokens=4_000_000, age=0.1)

    async def once() -> None:
        number = next(numbers)
        now[0] += 1.0
        prompt = Prompt(tokens=2000, chain=tuple(range(number * 40, number * 40 + 40)), block_tokens=50)
        ask = Ask(f"r{number}", "t", f"s{number}", prompt, now[0], now[0] + 600, f"p{number}")
        lease = await dispatch.place(ask, lambda: [replace(site, room=64 - dispatch.in_flight("a"))])
        lease.finish(Usage(prompt_tokens=2000, completion_tokens=10))

    for _ in range(100):
        await once()
    gc.collect()
    tracemalloc.start()
    for _ in range(300):
        await once()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] / 300
    tracemalloc.stop()
    # 1.2 KB of it is the table of how long its program stays away between turns; of these 1,000 are kept
    assert grown < 4608, f"{grown:.0f} bytes of each session"
    assert dispatch.in_flight("a") == 0


def test_whatever_is_kept_by_name_has_a_bound() -> None:
    assert MOST_SESSIONS <= 100_000
    assert Settings().most_sessions <= 100_000
    breaker, suspects = Breaker(), Suspects(lambda _: None)
    for number in range(3000):
        breaker.leave(breaker.enter(1.0), "neutral", 1.0, (f"k{number}", "s"))
        suspects.failed((number, ""), Failure(f"e{number % 3}", ("k", "s"), f"r{number}", 0.9, 1.0))
    assert len(breaker._votes) <= 32
    assert len(suspects._known) <= 1024
