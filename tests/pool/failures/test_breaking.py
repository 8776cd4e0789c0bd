"""Requests that break servers, among others that are served well: they stop, and nobody else is denied."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pool.breaker import Breaker
from pool.errors import PermanentError, PoisonError, PoolError, TransientError
from pool.gateway.replies import refusal_of
from pool.testing import pretend_vllm, server_error

BAD = "break yourself"


def brittle(asked: Any) -> Any:
    """A server that one prompt breaks."""
    return server_error() if BAD in str(asked) else "well"


def said(text: str) -> Any:
    return ({"role": "user", "content": text},)


async def test_a_request_that_fails_wherever_others_are_served_stops_and_is_remembered(world: Any, turn: Any) -> None:
    servers = [pretend_vllm(brittle) for _ in range(4)]
    async with servers[0] as a, servers[1] as b, servers[2] as c, servers[3] as d, world(a, b, c, d) as w:
        await asyncio.gather(*(w.pool.chat(turn(f"s{i}")) for i in range(16)))
        with pytest.raises(PoisonError, match="this request broke") as caught:
            await w.pool.chat(turn("evil", messages=said(BAD)))
        refusal = refusal_of(caught.value)
        assert (refusal.status, refusal.code, refusal.retry_after) == (502, "breaks_servers", None)
        hits = sum(BAD in str(one.body) for s in (a, b, c, d) for one in s.requests)
        assert hits == 2
        with pytest.raises(PoisonError, match="not sent for"):  # whatever it calls itself
            await w.pool.chat(turn("evil too", messages=said(BAD)))
        assert sum(BAD in str(one.body) for s in (a, b, c, d) for one in s.requests) == 2
        assert {w.pool._sender.standings.state(name) for name in "abcd"} == {"closed"}
        assert {one.state for one in w.pool.status()} <= {"up", "suspect"}


async def test_many_different_ones_of_one_caller_open_no_breaker(world: Any, turn: Any) -> None:
    async with pretend_vllm(brittle) as a, pretend_vllm(brittle) as b, world(a, b) as w:

        async def honest(number: int) -> None:
            for _ in range(6):
                assert (await w.pool.chat(turn(f"s{number}"))).choices[0].content

        async def evil(number: int) -> None:
            with pytest.raises(PoolError):
                await w.pool.chat(turn("evil", messages=said(f"{BAD} {number}"), deadline=5))

        await asyncio.gather(*(honest(i) for i in range(6)), *(evil(i) for i in range(20)))
        assert {w.pool._sender.standings.state(name) for name in "ab"} == {"closed"}


async def test_a_stream_is_stopped_as_well(world: Any) -> None:
    async with pretend_vllm(brittle) as a, pretend_vllm(brittle) as b, world(a, b) as w:
        await asyncio.gather(*(w.relayed(session=f"s{i}") for i in range(12)))
        for _ in range(2):
            with pytest.raises(PermanentError):
                await w.relayed({"messages": list(said(BAD))}, session="evil")
        assert sum(BAD in str(one.body) for s in (a, b) for one in s.requests) == 2


async def test_servers_that_fail_everybody_are_not_excused(world: Any, turn: Any) -> None:
    sick = [False]
    script = lambda _: server_error() if sick[0] else "well"  # noqa: E731
    async with pretend_vllm(script) as a, pretend_vllm(script) as b, world(a, b, retries=1) as w:
        await asyncio.gather(*(w.pool.chat(turn(f"s{i}")) for i in range(12)))
        await asyncio.sleep(1.05)
        sick[0] = True
        for number in range(6):
            with pytest.raises(TransientError):
                await w.pool.chat(turn(f"s{number}"))
        assert w.pool._sender.standings.state("a") == w.pool._sender.standings.state("b") == "open"


def fail(breaker: Breaker, count: int, who: tuple[str, str], now: float = 1.0, outcome: Any = "failed") -> None:
    for _ in range(count):
        breaker.leave(breaker.enter(now), outcome, now, who)


def test_no_caller_alone_opens_a_breaker_while_others_are_served() -> None:
    breaker = Breaker()
    for number in range(3):
        fail(breaker, 2, (f"key{number}", "s"), outcome="ok")
    for number in range(200):  # many sessions of one key have one vote together
        fail(breaker, 1, ("evil", f"s{number}"))
    assert breaker.state(1.0) == "closed"


def test_no_session_alone_opens_a_breaker_while_others_of_its_caller_are_served() -> None:
    breaker = Breaker()
    for number in range(3):
        fail(breaker, 1, ("key", f"s{number}"), outcome="ok")
    fail(breaker, 200, ("key", "evil"))
    assert breaker.state(1.0) == "closed"
    fail(breaker, 1, ("key", "s0"))
    fail(breaker, 2, ("key", "s1"))
    assert breaker.state(1.0) == "open"


def test_votes_are_bounded() -> None:
    breaker = Breaker()
    for number in range(20_000):
        fail(breaker, 1, (f"key{number % 500}", f"s{number}"), outcome="ok")
    assert sum(len(votes) for sessions in breaker._votes.values() for votes in sessions.values()) <= 32 * 32


def test_what_a_poisoned_request_opened_is_closed_again() -> None:
    breaker = Breaker()
    tickets = [breaker.enter(1.0) for _ in range(5)]
    for ticket in tickets:
        breaker.leave(ticket, "failed", 1.0, ("k", "s"))
    assert breaker.state(1.0) == "open"
    breaker.forgive(tickets[-1], ("k", "s"))
    assert breaker.state(1.0) == "closed"
