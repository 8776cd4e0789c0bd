"""Where the time went, as the database keeps it: with each line, once, and never read from the lines again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.errors import TaskNotFoundError
from swarm.scheduling.facts import HostFacts
from swarm.shown import TaskTimes
from swarm.store.hosts import Member
from swarm.store.rows import Claim, Plan, Settlement
from swarm.store.schema import clocks, fleet_times, times
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, Conclusion, TaskRequest, TaskState

NOON = 1_764_504_000.0  # 2025-11-30 12:00 UTC
DAY = 86_400.0
PLAN = Plan(budget=Budget(), tier="small", strategy="auto")
CALL = {"seconds": 9.0, "waited": 2.0, "prefill": 3.0, "prompt_tokens": 100, "completion_tokens": 7}


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(where: Path | Address, clock: Clock) -> AsyncIterator[Store]:
    async with Store(where, clock=clock) as opened:
        yield opened


async def claimed(store: Store, clock: Clock, task: str = "t1", repository: str = "web", host: str = "one") -> Claim:
    await store.add(TaskRequest(repository=repository, instructions="fix it", task=task), PLAN)
    clock.now += 5
    claim = await store.queue.claim(HostFacts(host, slots=10))
    assert claim is not None
    return claim


async def worked(store: Store, clock: Clock, claim: Claim) -> None:
    """Nine seconds of a model and one of the daemon, then the end."""
    clock.now += 10
    await store.record(claim, "model_call", CALL | {"cached_tokens": 60, "recomputed": 10})
    end = Settlement(TaskState.GAVE_UP, "no", AttemptResult(conclusion=Conclusion(ending="gave_up")))
    assert await store.settle(claim, end)


def seconds(found: TaskTimes) -> dict[str, float]:
    return {part.part: part.seconds for part in found.times.parts if part.seconds}


async def test_a_task_knows_where_its_time_went(store: Store, clock: Clock) -> None:
    await worked(store, clock, await claimed(store, clock))
    found = await store.times.task("t1")
    assert seconds(found) == {"queued": 5, "pool": 2, "prefill": 3, "decode": 4, "other": 1}
    assert found.times.seconds == found.until - NOON == 15
    assert (found.times.cached_share, found.times.recomputed_tokens) == (0.6, 10)
    assert (await store.view("t1")).timings == seconds(found)


async def test_the_time_that_a_daemon_was_down_is_nobodys_work(store: Store, clock: Clock) -> None:
    one = Member(HostFacts("one", slots=10), home="h", life="1", patience=60.0)
    await store.hosts.register(one)
    await claimed(store, clock)
    clock.now += 4
    await store.hosts.beat(one)
    clock.now += 100
    await store.hosts.register(replace(one, life="2"))
    clock.now += 3
    assert await store.queue.claim(one.facts) is not None
    clock.now += 2
    assert seconds(await store.times.task("t1")) == {"queued": 8, "away": 100, "other": 6}


async def test_a_task_under_way_counts_until_now(store: Store, clock: Clock) -> None:
    await claimed(store, clock)
    clock.now += 60
    assert seconds(await store.times.task("t1")) == {"queued": 5, "other": 60}


async def test_nothing_is_counted_of_a_line_that_was_not_written(store: Store, clock: Clock) -> None:
    claim = await claimed(store, clock)
    await worked(store, clock, claim)
    with pytest.raises(Exception, match="replaced"):
        await store.record(claim, "model_call", CALL)
    assert (await store.times.task("t1")).times.seconds == 15


async def test_the_fleet_is_told_by_day_and_by_repository(store: Store, clock: Clock) -> None:
    await worked(store, clock, await claimed(store, clock, "t1", "web", "one"))
    clock.now += DAY
    await worked(store, clock, await claimed(store, clock, "t2", "api", "two"))
    await worked(store, clock, await claimed(store, clock, "t3", "api", "three"))
    found = await store.times.fleet(7)
    assert [(day.day, day.times.seconds) for day in found.by_day] == [("2025-11-30", 15), ("2025-12-01", 30)]
    assert found.total.seconds == 45
    assert found.total.cached_share == 0.6
    assert (await store.times.fleet(7, "web")).total.seconds == 15
    assert [day.day for day in (await store.times.fleet(1)).by_day] == ["2025-12-01"]
    assert (await store.times.fleet(7, "nobody")).by_day == ()


async def test_two_hosts_at_once_count_all_of_both(where: Path | Address, clock: Clock) -> None:
    async with Store(where, clock=clock) as one, Store(where, clock=clock) as two:
        claims = [await claimed(one, clock, "t1"), await claimed(two, clock, "t2", host="two")]
        clock.now += 10
        for _ in range(10):
            for store, claim in zip((one, two), claims, strict=True):
                await store.record(claim, "model_call", CALL)
        found = await one.times.fleet(1)
    tokens = {part.part: part.tokens for part in found.total.parts}
    assert tokens["prefill"] == 2 * 10 * 100


async def test_a_task_of_an_earlier_version_is_summed_up_once(store: Store, clock: Clock) -> None:
    """An old database holds lines and no sums: they are made when its next line comes, or it is asked for."""
    claim = await claimed(store, clock)
    clock.now += 10
    await store.record(claim, "model_call", CALL)
    await forget(store)
    assert await store.times.catch_up() == 1
    assert await store.times.catch_up() == 0
    assert seconds(await store.times.task("t1")) == {"queued": 5, "pool": 2, "prefill": 3, "decode": 4, "other": 1}
    await forget(store)
    clock.now += 3
    await store.record(claim, "command", {"seconds": 2.0})
    found = await store.times.task("t1")
    assert seconds(found) == {"queued": 5, "pool": 2, "prefill": 3, "decode": 4, "other": 2, "tools": 2}
    assert (await store.times.fleet(1)).total.seconds == found.times.seconds == 18


async def test_two_hosts_that_catch_up_at_once_count_a_task_once(where: Path | Address, clock: Clock) -> None:
    async with Store(where, clock=clock) as one, Store(where, clock=clock) as two:
        for number in range(8):
            await claimed(one, clock, f"t{number}")
        before = (await one.times.fleet(1)).total.seconds
        await forget(one)
        await asyncio.gather(*(each.times.catch_up() for each in (one, two, one, two)))
        assert (await one.times.fleet(1)).total.seconds == before == 8 * 5


async def test_the_answer_reads_no_line_of_the_journal(store: Store, clock: Clock) -> None:
    """It must be there at once however many steps there are."""
    await worked(store, clock, await claimed(store, clock))
    asked: list[str] = []
    engine = store._db._made.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    await store.times.task("t1")
    await store.times.fleet(7)
    await store.view("t1")
    assert asked
    assert not [query for query in asked if "FROM steps" in query or "JOIN steps" in query]


async def test_nobody_has_the_times_of_a_task_that_is_not_there(store: Store) -> None:
    with pytest.raises(TaskNotFoundError):
        await store.times.task("nothing")


async def forget(store: Store) -> None:
    """As if an earlier version had written the lines."""

    def act(connection: sa.Connection) -> None:
        for table in (clocks, times, fleet_times):
            connection.execute(table.delete())

    await store._db.do(act)
