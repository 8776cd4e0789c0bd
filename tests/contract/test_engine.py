"""What any durable engine must do, shown on the one that is used, on both of its databases."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.engine import SCHEMA, DbosEngine
from swarm.errors import StoreError
from swarm.runs import Ended, Flow
from swarm.store import postgres
from tests.contract.engine_stage import Where, counting, opened, reached

pytestmark = pytest.mark.slow


async def test_a_run_that_ended_is_answered_from_disk(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen)) as engine:
        assert await engine.run("a") == Ended("done", "12")
        assert await engine.run("a") == Ended("done", "12")
    async with opened(engine_at, counting(seen)) as engine:
        assert await engine.runs() == ()
        await engine.adopt("a")
        assert await engine.run("a") == Ended("done", "12")
    assert seen == ["a first", "a second"]


async def test_two_who_start_the_same_run_share_it(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen)) as engine:
        await engine.start("a")
        both = await asyncio.gather(engine.run("a"), engine.run("a"))
    assert both == [Ended("done", "12")] * 2
    assert seen == ["a first", "a second"]


async def test_a_cancelled_run_stays_cancelled(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen, asyncio.Event())) as engine:
        run = asyncio.create_task(engine.run("a"))
        await reached(lambda: "a second" in seen)
        await engine.cancel("a")
        assert (await run).how == "cancelled"
    async with opened(engine_at, counting(seen)) as engine:
        assert await engine.runs() == ()
        await engine.adopt("a")
        assert (await engine.run("a")).how == "cancelled"
    assert seen == ["a first", "a second"]


async def test_a_parked_run_goes_on_in_the_next_life(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen, asyncio.Event())) as engine:
        run = asyncio.create_task(engine.run("a"))
        await reached(lambda: "a second" in seen)
        await engine.park("a")
        assert (await run).how == "parked"
        assert [each.name for each in await engine.runs()] == ["a"]
    async with opened(engine_at, counting(seen)) as engine:
        await engine.adopt("a")
        assert await engine.run("a") == Ended("done", "12")
    assert seen == ["a first", "a second", "a second"]


async def test_a_parked_run_goes_on_in_the_same_life_once_it_is_adopted(engine_at: Where) -> None:
    seen: list[str] = []
    gate = asyncio.Event()
    async with opened(engine_at, counting(seen, gate)) as engine:
        run = asyncio.create_task(engine.run("a"))
        await reached(lambda: "a second" in seen)
        await engine.park("a")
        assert (await run).how == "parked"
        assert (await engine.run("a")).how == "parked"
        gate.set()
        await engine.adopt("a")
        assert await engine.run("a") == Ended("done", "12")
    assert seen == ["a first", "a second", "a second"]


async def test_parking_ends_the_count_of_lives(engine_at: Where) -> None:
    seen: list[str] = []
    for _ in range(4):
        async with opened(engine_at, counting(seen, asyncio.Event()), lives=2) as engine:
            await engine.adopt("a")
            run = asyncio.create_task(engine.run("a"))
            await reached(lambda: seen.count("a second") > 0)
        assert (await run).how == "parked"
        seen.remove("a second")


async def test_a_run_that_gets_on_is_not_given_up_for_what_ends_its_process(tmp_path: Path) -> None:
    """One that ended its process each time took with it all that ran beside it."""
    where, steps = tmp_path / "engine.db", [0]
    async with opened(where, counting([], asyncio.Event())) as engine:
        await engine.start("a")
    for life in range(6):
        engine = DbosEngine(where, lives=3)
        await engine.open(counting([], asyncio.Event())(engine), None, lambda _: sum(steps))
        await engine.adopt("a")
        (run,) = await engine.runs()
        steps.append(int(life < 4))
        with sqlite3.connect(where) as database:  # as a process leaves it that was killed
            ((left,),) = database.execute("SELECT attributes FROM workflow_status").fetchall()
        await engine.close()
        with sqlite3.connect(where) as database:
            database.execute("UPDATE workflow_status SET attributes = ?", (left,))
    assert run.lives == 3


async def test_parking_what_was_adopted_and_has_not_begun_leaves_it_to_others(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen, asyncio.Event())) as engine:
        await engine.start("a")
        await reached(lambda: "a second" in seen)
    async with opened(engine_at, counting(seen)) as engine:
        await engine.adopt("a")
        await engine.park("a")
        await asyncio.sleep(2.5)  # by then it was taken from the queue
        assert seen == ["a first", "a second"]
        await engine.adopt("a")
        await engine.adopt("a")
        assert await engine.run("a") == Ended("done", "12")
    assert seen == ["a first", "a second", "a second"]


async def test_closing_parks_what_still_runs(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen, asyncio.Event())) as engine:
        run = asyncio.create_task(engine.run("a"))
        await reached(lambda: "a second" in seen)
    assert (await run).how == "parked"


async def test_what_an_earlier_life_left_stands_still_until_it_is_adopted(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen, asyncio.Event())) as engine:
        await engine.start("a")
        await reached(lambda: "a second" in seen)
    async with opened(engine_at, counting(seen)) as engine:
        await asyncio.sleep(2.5)
        assert seen == ["a first", "a second"]
        assert (await engine.run("a")).how == "lost"
        (left,) = await engine.runs()
        assert (left.name, left.state, left.lives) == ("a", "running", 1)


async def test_the_flow_sees_the_cancellation_and_may_tidy_up(engine_at: Where) -> None:
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

    async with opened(engine_at, make) as engine:
        run = asyncio.create_task(engine.run("a"))
        await asyncio.wait_for(begun.wait(), 30)
        await engine.cancel("a")
        assert (await run).how == "cancelled"
    assert tidied == ["a"]


async def test_a_flow_that_raises_fails_once_and_for_all(engine_at: Where) -> None:
    tries: list[str] = []

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            tries.append(name)
            raise ZeroDivisionError("no such luck")

        return flow

    for _ in range(2):
        async with opened(engine_at, make) as engine:
            assert await engine.runs() == ()
            await engine.adopt("a")
            ended = await engine.run("a")
            assert ended.how == "failed"
            assert "no such luck" in ended.value
    assert tries == ["a"]


async def test_what_a_phase_raised_is_not_remembered_by_a_run_that_parked_itself(engine_at: Where) -> None:
    """The store's database may be away in the middle of a phase; that is no result of it."""
    tries: list[str] = []

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            async def act() -> str:
                tries.append(name)
                if len(tries) == 1:
                    raise StoreError("it is away")
                return "worked"

            try:
                return await engine.phase("only", act)
            except StoreError:
                await engine.park(name)
                await asyncio.sleep(0)
                raise

        return flow

    async with opened(engine_at, make) as engine:
        assert await engine.run("a") == Ended("parked")
    async with opened(engine_at, make) as engine:
        await engine.adopt("a")
        assert await engine.run("a") == Ended("done", "worked")


async def test_many_runs_at_once_keep_their_values_apart(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen)) as engine:
        ended = await asyncio.gather(*(engine.run(f"run-{number}") for number in range(20)))
    assert {each.value for each in ended} == {"12"}
    assert len(seen) == len(set(seen)) == 40


async def test_runs_are_listed_by_how_they_stand(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, counting(seen, asyncio.Event())) as engine:
        for name in ("a", "b"):
            await engine.start(name)
        await reached(lambda: {"a second", "b second"} <= set(seen))
        await engine.cancel("a")
        assert [(each.name, each.state) for each in await engine.runs()] == [("b", "running")]
        assert [each.name for each in await engine.runs("cancelled")] == ["a"]
        assert [each.name for each in await engine.runs("running", "cancelled", limit=1)] == ["a"]
        assert await engine.runs("done", "failed", "waiting") == ()


def rows_of(where: Where) -> dict[str, int]:
    """How many rows each table of the engine's database has."""
    url = f"sqlite:///{where}" if isinstance(where, Path) else postgres.url_of(where)
    database = sa.create_engine(url)
    schema = None if isinstance(where, Path) else SCHEMA
    with database.connect() as connection:
        names = sa.inspect(connection).get_table_names(schema)
        tables = {name: sa.table(name, schema=schema) for name in names}
        counts = {
            name: int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
            for name, table in tables.items()
        }
    database.dispose()
    return counts


async def test_what_is_forgotten_leaves_nothing_in_the_database_and_what_goes_on_is_kept(engine_at: Where) -> None:
    seen: list[str] = []
    gate = asyncio.Event()
    gate.set()
    async with opened(engine_at, counting(seen, gate)) as engine:
        before = rows_of(engine_at)
        for name in ("a", "b", "c"):
            assert await engine.run(name) == Ended("done", "12")
            assert await engine.signal(name, "broker", "too late to be heard")
        gate.clear()
        for name in ("cancelled", "parked", "runs"):
            await engine.start(name)
        left = [asyncio.create_task(engine.run(name)) for name in ("cancelled", "parked")]
        await reached(lambda: {"cancelled second", "parked second", "runs second"} <= set(seen))
        await engine.cancel("cancelled")
        await engine.park("parked")
        assert [each.how for each in await asyncio.gather(*left)] == ["cancelled", "parked"]
        await engine.forget("a", "b", "cancelled", "parked", "runs", "never")
        assert [each.name for each in await engine.runs()] == ["parked", "runs"]
        assert [each.name for each in await engine.runs("done", "failed", "cancelled")] == ["c"]
        await engine.forget("c")
        await engine.forget()
        gate.set()
        assert await engine.run("runs") == Ended("done", "12")
        await engine.adopt("parked")
        assert await engine.run("parked") == Ended("done", "12")
        await engine.forget("runs", "parked")
        assert rows_of(engine_at) == before


def waiting(seen: list[str], seconds: float) -> Callable[[DbosEngine], Flow]:
    """A flow that waits for two signals between its phases."""

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            async def first() -> str:
                seen.append("first")
                return "1"

            got = [await engine.phase("first", first)]
            for _ in range(2):
                seen.append("waiting")
                got.append(str(await engine.wait("broker", seconds)))
            return " ".join(got)

        return flow

    return make


async def test_a_signal_wakes_a_waiting_run_once(engine_at: Where) -> None:
    async with opened(engine_at, waiting([], 1.0)) as engine:
        run = asyncio.create_task(engine.run("a"))
        await engine.start("a")
        assert await engine.signal("a", "broker", "back")
        assert await engine.signal("a", "other", "never heard")
        assert await run == Ended("done", "1 back None")


async def test_a_signal_that_came_while_nobody_lived_is_heard_and_the_wait_is_not_begun_anew(engine_at: Where) -> None:
    seen: list[str] = []
    async with opened(engine_at, waiting(seen, 30)) as engine:
        await engine.start("a")
        await reached(lambda: "waiting" in seen)
    async with opened(engine_at, waiting(seen, 30)) as engine:
        assert await engine.signal("a", "broker", "one")
        await engine.adopt("a")
        await reached(lambda: seen.count("waiting") == 3)
    async with opened(engine_at, waiting(seen, 30)) as engine:
        assert await engine.signal("a", "broker", "two")
        await engine.adopt("a")
        assert await engine.run("a") == Ended("done", "1 one two")
    assert seen.count("first") == 1


async def test_a_signal_to_nobody_is_told(engine_at: Where) -> None:
    async with opened(engine_at, counting([])) as engine:
        assert not await engine.signal("nobody", "broker", "back")


async def test_a_timer_counts_from_when_it_was_first_reached(engine_at: Where) -> None:
    at: list[float] = []

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            at.append(time.monotonic())
            await engine.timer(3.0)
            await engine.timer(0)
            at.append(time.monotonic())
            return ""

        return flow

    async with opened(engine_at, make) as engine:
        await engine.start("a")
        await asyncio.sleep(1.0)
    async with opened(engine_at, make) as engine:
        await engine.adopt("a")
        assert (await engine.run("a")).how == "done"
    assert at[2] - at[0] >= 3.0
    assert at[2] - at[1] < 3.0


async def test_what_is_not_ours_any_more_begins_no_phase(engine_at: Where) -> None:
    seen: list[str] = []
    ours = {"a"}

    async def asked(name: str) -> bool:
        return name in ours

    engine = DbosEngine(engine_at)
    gate = asyncio.Event()
    await engine.open(counting(seen, gate)(engine), asked)
    run = asyncio.create_task(engine.run("a"))
    await reached(lambda: "a second" in seen)
    ours.clear()
    gate.set()
    assert await run == Ended("lost")
    assert [each.name for each in await engine.runs()] == ["a"]
    await engine.adopt("a")
    assert await engine.run("a") == Ended("lost")
    assert seen == ["a first", "a second"]
    await engine.close()


async def test_calls_that_a_flow_makes_of_the_engine_are_no_steps_of_it(engine_at: Where) -> None:
    """Else the run could not be replayed once these calls are others."""
    tries: list[str] = []

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            async def act() -> str:
                return "x"

            if not tries:
                await engine.runs()
                await engine.signal("nobody", "t", "v")
                await engine.cancel("nobody")
            tries.append(name)
            value = await engine.phase("only", act)
            if len(tries) == 1:
                await asyncio.Event().wait()
            return value

        return flow

    async with opened(engine_at, make) as engine:
        await engine.start("a")
        await asyncio.sleep(0.7)
    async with opened(engine_at, make) as engine:
        await engine.adopt("a")
        assert await engine.run("a") == Ended("done", "x")


async def test_threads_are_there_for_others_after_it_closed(engine_at: Where) -> None:
    async with opened(engine_at, counting([])) as engine:
        await engine.run("a")
        assert await asyncio.to_thread(lambda: 1) == 1
    assert await asyncio.to_thread(lambda: 2) == 2


async def test_cancelling_a_run_that_never_began_is_harmless(engine_at: Where) -> None:
    async with opened(engine_at, counting([])) as engine:
        await engine.cancel("never")
        await engine.park("never")
        await engine.adopt("never")
        assert await engine.runs() == ()


async def test_a_damaged_file_is_told_with_a_mend(tmp_path: Path) -> None:
    (tmp_path / "e.db").write_bytes(b"this is no database at all" * 400)
    engine = DbosEngine(tmp_path / "e.db")
    with pytest.raises(StoreError, match="cannot be used") as told:
        await engine.open(counting([])(engine))
    assert "mv " in told.value.mend


@pytest.mark.postgres
async def test_a_refused_login_is_told_without_the_password(postgres: Address) -> None:
    engine = DbosEngine(Address(postgres.url, "wrong-password"))
    with pytest.raises(StoreError, match="does not take the password") as told:
        await engine.open(counting([])(engine))
    assert "wrong-password" not in str(told.value) + told.value.mend


async def test_the_file_has_a_write_ahead_log_and_is_private(tmp_path: Path) -> None:
    async with opened(tmp_path / "e.db", counting([])) as engine:
        await engine.run("a")
        with sqlite3.connect(tmp_path / "e.db") as connection:
            mode = connection.execute("PRAGMA journal_mode").fetchone()
        connection.close()
    assert mode == ("wal",)
    assert (tmp_path / "e.db").stat().st_mode & 0o077 == 0


async def test_runs_of_the_released_version_are_taken_over(tmp_path: Path) -> None:
    """The file was made by version 0.1 of this project, killed in the middle of its run's second phase."""
    with sqlite3.connect(tmp_path / "e.db") as connection:
        connection.executescript((Path(__file__).parent / "released" / "engine-attempt-1.sql").read_text())
    connection.close()
    begun: list[str] = []

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            values = []
            for phase in ("prepare", "work", "check", "deliver"):

                async def act(phase: str = phase) -> str:
                    begun.append(phase)
                    return phase

                values.append(await engine.phase(phase, act))
            return " ".join(values)

        return flow

    async with opened(tmp_path / "e.db", make) as engine:
        assert [each.name for each in await engine.runs()] == ["interrupted"]
        await engine.adopt("interrupted", "done")
        assert await engine.run("done") == Ended("done", "PREPARE WORK CHECK DELIVER")
        assert await engine.run("interrupted") == Ended("done", "PREPARE work check deliver")
    assert begun == ["work", "check", "deliver"]


async def test_a_run_whose_phases_changed_places_fails_and_says_which(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "e.db") as connection:
        connection.executescript((Path(__file__).parent / "released" / "engine-attempt-1.sql").read_text())
    connection.close()
    async with opened(tmp_path / "e.db", counting([])) as engine:
        await engine.adopt("interrupted")
        ended = await engine.run("interrupted")
    assert ended.how == "failed"
    assert "prepare" in ended.value
    assert "first" in ended.value
