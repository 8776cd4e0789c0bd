"""Nobody waits for ever, whatever others send: through choice, reservation and live set, on a clock of the test's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pool.config import AdmissionConfig, PoolConfig
from pool.dispatch import Dispatch
from pool.errors import OverloadError
from pool.lease import Lease
from pool.placement.placer import Placer
from pool.placement.view import Ask, Prompt, Site
from pool.types import RequestClass, Usage


class Place:
    """One endpoint with room for ``room`` requests, on a clock that the test turns."""

    def __init__(self, room: int = 1, **admission: Any) -> None:
        self.time = 100.0
        self.site = Site(name="a", tier="t", state="up", room=room)
        config = PoolConfig(admission=AdmissionConfig.model_validate(admission))
        self.dispatch = Dispatch(config, self.clock, Placer(clock=self.clock))
        self.number = 0

    def clock(self) -> float:
        return self.time

    def send(self, session: str, request_class: RequestClass = "default", program: str = "") -> asyncio.Task[Lease]:
        self.number += 1
        ask = Ask(
            request=f"r{self.number}",
            tier="t",
            session=session,
            prompt=Prompt(100),
            arrived=self.time,
            deadline=self.time + 3600,
            program=program or session,
            request_class=request_class,
        )
        sites = lambda: [replace(self.site, room=self.site.room - self.dispatch.in_flight("a"))]  # noqa: E731
        return asyncio.create_task(self.dispatch.place(ask, sites))

    async def pass_time(self, seconds: float) -> None:
        self.time += seconds
        self.dispatch.news()
        for _ in range(4):
            await asyncio.sleep(0)


def end(lease: Lease) -> None:
    lease.finish(Usage(prompt_tokens=100, completion_tokens=10))


async def over(tasks: list[asyncio.Task[Lease]]) -> None:
    for task in tasks:
        task.cancel()
    for told in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(told, Lease):
            told.fail()


@pytest.mark.parametrize(("victim", "live"), [("bulk", None), ("default", None), ("default", 1), ("bulk", 1)])
async def test_a_flood_of_the_best_class_keeps_no_lower_one_out_for_ever(
    victim: RequestClass, live: int | None
) -> None:
    place, flood = Place(max_live_sessions=live), list[asyncio.Task[Lease]]()
    running: asyncio.Task[Lease] | None = place.send("first", "interactive")
    await place.pass_time(0)
    waiting = place.send("victim", victim)
    for second in range(200):
        flood += [place.send(f"s{second}-{i}", "interactive") for i in range(3)]
        await place.pass_time(1)
        if running is not None:
            end(running.result())
        await place.pass_time(0)
        if waiting.done():
            break
        done = [task for task in flood if task.done()]
        flood = [task for task in flood if not task.done()]
        running = next((task for task in done if task.exception() is None), None)
        assert all(isinstance(task.exception(), OverloadError) for task in done if task is not running)
    assert waiting.done(), "it starved"
    assert second <= (106 if live is None else 240)  # the ageing of its class and of those above, then turns of others
    end(waiting.result())
    await over(flood)


async def test_a_session_that_is_never_between_turns_gives_its_place_to_another_in_time() -> None:
    place = Place(4, max_live_sessions=1)
    mine = [place.send("greedy"), place.send("greedy")]
    await place.pass_time(0)
    waiting = place.send("victim")
    began = place.time
    for _ in range(240):
        await place.pass_time(1)
        if waiting.done():
            break
        end(mine.pop(0).result())  # the other one still runs
        mine.append(place.send("greedy"))
        await place.pass_time(0)
        if not mine[-1].done():  # it has to wait now, as everybody has
            ready = [task for task in mine if task.done()]
            for task in ready:
                end(task.result())
                mine.remove(task)
            await place.pass_time(0)
    assert waiting.done(), "it starved"
    assert place.time - began <= 130
    end(waiting.result())
    await over(mine)
