"""Flows over a Postgres server that crashes, stays away for seconds, and comes back."""

import asyncio
from collections import Counter

import pytest

from swarm.config_database import Address
from swarm.engine import WORD, DbosEngine
from swarm.errors import StoreAwayError
from swarm.runs import Ended, Flow
from tests.contract.engine_stage import Making, counting, opened, reached
from tests.postgres_server import Server, a_server

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(240)]

PHASES = ("prepare", "work", "check", "deliver")
AWAY = 3.0  # seconds


def slowly(begun: Counter[str]) -> Making:
    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            values = []
            for phase in PHASES:

                async def act(phase: str = phase) -> str:
                    begun[f"{name} {phase}"] += 1
                    await asyncio.sleep(0.8)
                    return phase

                values.append(await engine.phase(phase, act))
            values.append(str(await engine.wait("broker", 60)))
            return " ".join(values)

        return flow

    return make


async def away(server: Server, *how: str) -> None:
    """Stop the server, and start it again after a while."""
    await asyncio.to_thread(server.call, "stop", *how)
    await asyncio.sleep(AWAY)
    await asyncio.to_thread(server.call, "start")


async def test_runs_are_parked_side_by_side_and_in_seconds_while_the_server_is_away() -> None:
    """A daemon that was told to end while Postgres was down did not end before it was up again."""
    seen: list[str] = []
    names = [f"r{number}" for number in range(6)]
    with a_server() as server:
        where = await fresh(server, "flows")
        async with opened(where, counting(seen, asyncio.Event())) as engine:
            for name in names:
                await engine.start(name)
            await reached(lambda: len(seen) == 2 * len(names))
        engine = DbosEngine(where, "other")
        await engine.open(counting(seen, asyncio.Event())(engine))
        try:
            await engine.adopt(*names)
            runs = [asyncio.create_task(engine.run(name)) for name in names]
            await reached(lambda: len(seen) == 3 * len(names))
            await asyncio.to_thread(server.call, "stop", "--crash")
            async with asyncio.timeout(4 * WORD):
                await asyncio.gather(*(engine.park(name) for name in names))
                assert set(await asyncio.gather(*runs)) == {Ended("parked")}
            with pytest.raises(StoreAwayError, match="does not answer"):
                await engine.cancel("r0")
        finally:
            await asyncio.to_thread(server.call, "start")
            await engine.close()


async def fresh(server: Server, name: str) -> Address:
    await asyncio.to_thread(server.sql, f"CREATE DATABASE {name}")
    return server.database(name)


async def test_running_flows_go_on_after_a_crash_of_the_server_and_no_phase_runs_twice() -> None:
    """A restart of Postgres stranded workflows: dbos-transact-py 716."""
    begun: Counter[str] = Counter()
    names = [f"r{number}" for number in range(20)]
    with a_server() as server:
        where = await fresh(server, "flows")
        async with opened(where, slowly(begun)) as engine:
            runs = [asyncio.create_task(engine.run(name)) for name in names]
            await reached(lambda: begun["r0 work"] > 0)
            await away(server, "--crash")
            for name in names:
                assert await engine.signal(name, "broker", "back")
            async with asyncio.timeout(100):
                ended = await asyncio.gather(*runs)
    assert set(ended) == {Ended("done", "prepare work check deliver back")}
    assert set(begun.values()) == {1}


async def test_a_takeover_while_the_server_is_away_happens_once_it_is_back() -> None:
    seen: list[str] = []
    with a_server() as server:
        where = await fresh(server, "flows")
        async with opened(where, counting(seen, asyncio.Event())) as engine:
            await engine.start("a")
            await reached(lambda: "a second" in seen)
        async with opened(where, counting(seen), "other") as engine:
            outage = asyncio.create_task(away(server))
            await asyncio.sleep(1.0)
            async with asyncio.timeout(60):
                await engine.adopt("a")
                assert await engine.run("a") == Ended("done", "12")
            await outage
    assert seen == ["a first", "a second", "a second"]
