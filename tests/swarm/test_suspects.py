"""Of those that may be what ends the process one goes on at a time, and none waits for one that is none any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from swarm.suspects import Suspects


class Scene:
    def __init__(self) -> None:
        self.suspects = Suspects(settle=0.0)
        self.on: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.got_on: dict[str, asyncio.Event] = {}

    def come(
        self, name: str, lives: int, getting_on: Callable[[], Awaitable[None]] | None = None
    ) -> asyncio.Task[None]:
        self.ends[name], self.got_on[name] = asyncio.Event(), asyncio.Event()

        async def watched() -> None:
            await self.got_on[name].wait()

        async def run() -> None:
            async with self.suspects.turn(lives, getting_on or watched):
                self.on.append(name)
                try:
                    await self.ends[name].wait()
                finally:
                    self.on.remove(name)

        return asyncio.create_task(run())

    async def settled(self) -> list[str]:
        for _ in range(20):
            await asyncio.sleep(0)
        return self.on


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_one_goes_at_a_time_and_who_took_the_fewest_processes_along_goes_first(scene: Scene) -> None:
    tasks = [scene.come("guilty", 9), scene.come("second", 5), scene.come("first", 4)]
    assert await scene.settled() == ["first"]
    scene.ends["first"].set()
    assert await scene.settled() == ["second"]
    scene.ends["second"].set()
    assert await scene.settled() == ["guilty"]
    scene.ends["guilty"].set()
    await asyncio.gather(*tasks)


async def test_who_gets_on_lets_the_next_one_go_and_goes_on_beside_it(scene: Scene) -> None:
    tasks = [scene.come("a", 4), scene.come("b", 5), scene.come("c", 6)]
    await scene.settled()
    scene.got_on["a"].set()
    assert await scene.settled() == ["a", "b"]
    scene.ends["a"].set()
    assert await scene.settled() == ["b"]
    for name in ("b", "c"):
        scene.ends[name].set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("which", ["a", "b"])
async def test_who_is_stopped_on_its_turn_or_before_keeps_no_other_waiting(scene: Scene, which: str) -> None:
    tasks = {"a": scene.come("a", 4), "b": scene.come("b", 5), "c": scene.come("c", 6)}
    assert await scene.settled() == ["a"]
    tasks[which].cancel()
    scene.ends["a"].set()
    assert await scene.settled() == ["c" if which == "b" else "b"]
    for name in ("b", "c"):
        scene.ends[name].set()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_who_is_stopped_in_the_moment_in_which_its_turn_comes_gives_it_back(scene: Scene) -> None:
    first, second = scene.come("a", 4), scene.come("b", 5)
    assert await scene.settled() == ["a"]
    third = scene.come("c", 6)
    await asyncio.sleep(0)
    scene.ends["a"].set()
    await first
    second.cancel()
    assert await scene.settled() == ["c"]
    scene.ends["c"].set()
    await asyncio.gather(second, third, return_exceptions=True)
