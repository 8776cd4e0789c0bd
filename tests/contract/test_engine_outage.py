"""Flows over a Postgres server that crashes, stays away for seconds, and comes back."""

import asyncio
from collections import Counter

import pytest

from swarm.config_database import Address
from swarm.engine import DbosEngine
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
