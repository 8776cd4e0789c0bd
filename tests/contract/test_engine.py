"""What any durable engine must do, shown on the one that is used, with processes that are really killed."""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swarm.engine import DbosEngine, Ended, Flow
from swarm.errors import StoreError

pytestmark = pytest.mark.slow


CHILD = Path(__file__).with_name("engine_child.py")
PHASES = ("prepare", "work", "check", "deliver")


@asynccontextmanager
async def opened(path: Path, flow: Callable[[DbosEngine], Flow]) -> AsyncIterator[tuple[DbosEngine, tuple[str, ...]]]:
    engine = DbosEngine(path)
    left = await engine.recover(flow(engine))
    try:
        yield engine, left
    finally:
        await engine.close()


def counting(seen: list[str], gate: asyncio.Event | None = None) -> Callable[[DbosEngine], Flow]:
    """A flow of two phases that writes down what it runs; the second waits for the gate."""

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            async def first() -> str:
                seen.append(f"{name} first")
                return "1"

            async def second() -> str:
                seen.append(f"{name} second")
                if gate is not None:
                    await gate.wait()
                return "2"

            return await engine.phase("first", first) + await engine.phase("second", second)

        return flow

    return make


async def start_child(folder: Path, hang: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, str(CHILD), str(folder), "run-1", hang)


async def until_logged(folder: Path, line: str) -> None:
    async with asyncio.timeout(30):
        while line not in lines(folder):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)


def lines(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


async def killed_and_started_again(folder: Path, hang: str, line: str) -> list[str]:
    """The lines that the second life wrote."""
    child = await start_child(folder, hang)
    await until_logged(folder, line)
    os.kill(child.pid, signal.SIGKILL)
    await child.wait()
    before = len(lines(folder))
    child = await start_child(folder)
    assert await asyncio.wait_for(child.wait(), 30) == 0
    return lines(folder)[before:]


@pytest.mark.parametrize("phase", ["prepare", "check"])
async def test_kill_inside_a_phase_runs_that_one_again_and_no_earlier_one(tmp_path: Path, phase: str) -> None:
    second = await killed_and_started_again(tmp_path, phase, f"begin {phase}")
    rest = PHASES[PHASES.index(phase) :]
    assert [line for line in second if line.startswith("begin")] == [f"begin {name}" for name in rest]
    assert second[-1] == "done run-1: PREPARE WORK CHECK DELIVER"
    assert "left run-1" in second


@pytest.mark.parametrize("phase", ["work"])
async def test_kill_after_a_phase_does_not_run_it_again(tmp_path: Path, phase: str) -> None:
    second = await killed_and_started_again(tmp_path, f"after {phase}", f"after {phase}")
    assert f"begin {phase}" not in second
    assert second[-1] == "done run-1: PREPARE WORK CHECK DELIVER"


async def test_a_run_that_ended_is_answered_from_disk(tmp_path: Path) -> None:
    seen: list[str] = []
    async with opened(tmp_path / "e.db", counting(seen)) as (engine, _):
        assert await engine.run("a") == Ended("done", "12")
        assert await engine.run("a") == Ended("done", "12")
    async with opened(tmp_path / "e.db", counting(seen)) as (engine, left):
        assert left == ()
        assert await engine.run("a") == Ended("done", "12")
    assert seen == ["a first", "a second"]


async def test_two_who_start_the_same_run_share_it(tmp_path: Path) -> None:
    seen: list[str] = []
    async with opened(tmp_path / "e.db", counting(seen)) as (engine, _):
        both = await asyncio.gather(engine.run("a"), engine.run("a"))
    assert both == [Ended("done", "12")] * 2
    assert seen == ["a first", "a second"]


async def test_a_cancelled_run_stays_cancelled(tmp_path: Path) -> None:
    seen: list[str] = []
    async with opened(tmp_path / "e.db", counting(seen, asyncio.Event())) as (engine, _):
        run = asyncio.create_task(engine.run("a"))
        await reached(seen, "a second")
        await engine.cancel("a")
        assert (await run).how == "cancelled"
    async with opened(tmp_path / "e.db", counting(seen)) as (engine, left):
        assert left == ()
        assert (await engine.run("a")).how == "cancelled"
    assert seen == ["a first", "a second"]


async def test_a_parked_run_goes_on_in_the_next_life(tmp_path: Path) -> None:
    seen: list[str] = []
    async with opened(tmp_path / "e.db", counting(seen, asyncio.Event())) as (engine, _):
        run = asyncio.create_task(engine.run("a"))
        await reached(seen, "a second")
        await engine.park("a")
        assert (await run).how == "parked"
        assert await engine.unfinished() == ("a",)
    async with opened(tmp_path / "e.db", counting(seen)) as (engine, left):
        assert left == ("a",)
        assert await engine.run("a") == Ended("done", "12")
    assert seen == ["a first", "a second", "a second"]


async def test_closing_parks_what_still_runs(tmp_path: Path) -> None:
    seen: list[str] = []
    async with opened(tmp_path / "e.db", counting(seen, asyncio.Event())) as (engine, _):
        run = asyncio.create_task(engine.run("a"))
        await reached(seen, "a second")
    assert (await run).how == "parked"


async def test_the_flow_sees_the_cancellation_and_may_tidy_up(tmp_path: Path) -> None:
    tidied: list[str] = []
    begun = asyncio.Event()

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            async def act() -> str:
                try:
                    begun.set()
                    await asyncio.sleep(60)
                finally:
                    await asyncio.sleep(0.01)
                    tidied.append(name)
                return ""

            return await engine.phase("only", act)

        return flow

    async with opened(tmp_path / "e.db", make) as (engine, _):
        run = asyncio.create_task(engine.run("a"))
        await asyncio.wait_for(begun.wait(), 30)
        await engine.cancel("a")
        assert (await run).how == "cancelled"
    assert tidied == ["a"]


async def test_a_flow_that_raises_fails_once_and_for_all(tmp_path: Path) -> None:
    tries: list[str] = []

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            tries.append(name)
            raise ZeroDivisionError("no such luck")

        return flow

    for _ in range(2):
        async with opened(tmp_path / "e.db", make) as (engine, left):
            ended = await engine.run("a")
            assert ended.how == "failed"
            assert "no such luck" in ended.value
            assert left == ()
    assert tries == ["a"]


async def test_many_runs_at_once_keep_their_values_apart(tmp_path: Path) -> None:
    seen: list[str] = []
    async with opened(tmp_path / "e.db", counting(seen)) as (engine, _):
        ended = await asyncio.gather(*(engine.run(f"run-{number}") for number in range(20)))
    assert {each.value for each in ended} == {"12"}
    assert len(seen) == len(set(seen)) == 40


async def test_a_damaged_file_is_told_with_a_mend(tmp_path: Path) -> None:
    (tmp_path / "e.db").write_bytes(b"this is no database at all" * 400)
    engine = DbosEngine(tmp_path / "e.db")
    with pytest.raises(StoreError, match="cannot be used") as told:
        await engine.recover(counting([])(engine))
    assert "mv " in told.value.mend


async def test_threads_are_there_for_others_after_it_closed(tmp_path: Path) -> None:
    async with opened(tmp_path / "e.db", counting([])) as (engine, _):
        await engine.run("a")
        assert await asyncio.to_thread(lambda: 1) == 1
    assert await asyncio.to_thread(lambda: 2) == 2


async def test_cancelling_a_run_that_never_began_is_harmless(tmp_path: Path) -> None:
    async with opened(tmp_path / "e.db", counting([])) as (engine, _):
        await engine.cancel("never")
        assert await engine.unfinished() == ()


async def test_the_file_has_a_write_ahead_log(tmp_path: Path) -> None:
    async with opened(tmp_path / "e.db", counting([])) as (engine, _):
        await engine.run("a")
        with sqlite3.connect(tmp_path / "e.db") as connection:
            mode = connection.execute("PRAGMA journal_mode").fetchone()
        connection.close()
    assert mode == ("wal",)


async def reached(seen: list[str], line: str) -> None:
    async with asyncio.timeout(10):
        while line not in seen:  # noqa: ASYNC110 - a plain list is enough for a test
            await asyncio.sleep(0.01)
