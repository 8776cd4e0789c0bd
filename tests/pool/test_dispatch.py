"""The one brain: places are taken with the choice, given back once, and a refusal says why and when to come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pool.config import AdmissionConfig, PoolConfig
from pool.dispatch import Dispatch
from pool.errors import NoEndpointError
from pool.lease import Lease
from pool.placement.placer import Placer
from pool.placement.view import Ask, Prompt, Site
from pool.types import Usage


class Fleet:
    """A dispatch with its placer over sites that a test changes; ``time`` is what the clock shows."""

    def __init__(self, *sites: Site, clock: Callable[[], float] | None = None, **settings: Any) -> None:
        self.time = 100.0
        self.clock = clock or (lambda: self.time)
        self.room = {site.name: site.room for site in sites}
        self.base = {site.name: site for site in sites}
        self.placer = Placer(clock=self.clock)
        admission = AdmissionConfig.model_validate(settings)
        self.dispatch = Dispatch(PoolConfig(admission=admission), self.clock, self.placer)
        self.numbers = iter(range(1_000_000))

    def sites(self) -> list[Site]:
        held = self.dispatch.in_flight
        return [replace(site, room=self.room[name] - held(name)) for name, site in self.base.items()]

    def ask(self, session: str, tokens: int = 100, **more: Any) -> Ask:
        deadline = self.clock() + more.pop("seconds", 600.0)
        return Ask(
            request=f"r{next(self.numbers)}",
            tier="small",
            session=session,
            prompt=more.pop("prompt", Prompt(tokens)),
            arrived=self.clock(),
            deadline=deadline,
            output_tokens=more.pop("output", 10),
            **more,
        )

    async def place(self, session: str, tokens: int = 100, **more: Any) -> Lease:
        tried = more.pop("tried", frozenset())
        return await self.dispatch.place(self.ask(session, tokens, **more), self.sites, tried)

    def change(self, name: str, **more: Any) -> None:
        self.base[name] = replace(self.base[name], **more)
        self.room[name] = self.base[name].room


def real(*sites: Site, **settings: Any) -> Fleet:
    """A fleet on the real clock, for what waits."""
    return Fleet(*sites, clock=time.monotonic, **settings)


def site(name: str = "a", room: int = 1, **more: Any) -> Site:
    return Site(**{"name": name, "tier": "small", "state": "up", "room": room, **more})


def usage(prompt: int = 100, output: int = 10, cached: int | None = None) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=output, cached_tokens=cached)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_burst_takes_each_place_once() -> None:
    """The race between choosing and counting: vllm-project/aibrix#2422."""
    fleet = real(site("a", 3), site("b", 2))
    tasks = [asyncio.create_task(fleet.place(f"s{i}")) for i in range(12)]
    await settled()
    leases = [task.result() for task in tasks if task.done()]
    assert sorted(lease.endpoint for lease in leases) == ["a", "a", "a", "b", "b"]
    assert len(fleet.dispatch.waiting()) == 7
    for lease in leases:
        lease.finish(usage())
    await settled()
    assert sum(task.done() for task in tasks) == 10
    for task in tasks:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    for lease in done:
        if isinstance(lease, Lease):
            lease.fail()
    assert fleet.dispatch.in_flight("a") == fleet.dispatch.in_flight("b") == 0
    assert fleet.dispatch.stats().in_flight == 0


async def test_place_is_given_back_once_however_often_it_ends() -> None:
    fleet = real(site(room=1))
    lease = await fleet.place("s")
    with lease:
        lease.first_token()
        lease.finish(usage())
        lease.finish(usage())
    lease.fail()
    assert fleet.dispatch.in_flight("a") == 0
    broken = await fleet.place("s")
    with pytest.raises(ZeroDivisionError), broken:
        fleet.dispatch.in_flight("a") // 0
    assert fleet.dispatch.in_flight("a") == 0


async def test_cancelled_wait_leaves_nothing_behind() -> None:
    """Counters that leak on a client's disconnect: vllm-project/router#215."""
    fleet = real(site(room=1))
    first = await fleet.place("s0")
    waiting = asyncio.create_task(fleet.place("s1"))
    await settled()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert fleet.dispatch.waiting() == ()
    first.finish(usage())
    assert fleet.dispatch.in_flight("a") == 0


async def test_cancellation_in_the_moment_of_the_grant_gives_the_place_back() -> None:
    fleet = real(site(room=1))
    first = await fleet.place("s0")
    waiting = asyncio.create_task(fleet.place("s1"))
    await settled()
    first.finish(usage())  # granted now, though its task has not run since
    assert fleet.dispatch.in_flight("a") == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert fleet.dispatch.in_flight("a") == 0


async def test_grant_in_the_moment_of_the_cancellation_gives_the_place_back() -> None:
    fleet = real(site(room=1))
    first = await fleet.place("s0")
    waiting = asyncio.create_task(fleet.place("s1"))
    await settled()
    waiting.cancel()
    first.finish(usage())
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert fleet.dispatch.in_flight("a") == 0


async def test_nobody_alive_is_told_at_once() -> None:
    fleet = real(site(state="down"))
    with pytest.raises(NoEndpointError, match="a: down"):
        await fleet.place("s")
