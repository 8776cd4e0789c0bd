"""Schedules in a database: each run once over many hosts, once after downtime, never beyond what a person allowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.errors import StoreError, TaskError, TaskNotFoundError
from swarm.planner import Planner
from swarm.scheduling.facts import HostFacts
from swarm.scheduling.shown import SAME_RIGHT, ScheduleRequest, ScheduleRight
from swarm.store.rows import Plan, Settlement
from swarm.store.schema import schedules
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, Conclusion, TaskRequest, TaskState, TaskView

PLAN = Plan(budget=Budget(), tier="small", strategy="auto")
START = 1_000_000_000.0  # 2001-09-09 01:46:40 UTC
REQUEST = TaskRequest(repository="web", instructions="tidy", capability="standing-right")


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(where: Path | Address, clock: Clock) -> AsyncIterator[Store]:
    async with Store(where, clock=clock) as opened:
        yield opened


def hourly(**more: object) -> ScheduleRequest:
    return ScheduleRequest.model_validate({"name": "tidy", "cron": "0 * * * *", "request": REQUEST, **more})


def planner(store: Store, clock: Clock) -> Planner:
    async def plan(_: TaskRequest) -> Plan:
        return PLAN

    return Planner(store.schedules, plan, lambda: None, clock)


async def made(store: Store) -> list[TaskView]:
    return [view for view in await store.views(None, 100) if view.task.id.startswith("stidy-")]


async def finish(store: Store) -> None:
    held = await store.queue.claim(HostFacts("here", slots=9))
    assert held is not None
    result = AttemptResult(conclusion=Conclusion(ending="no_change"))
    await store.settle(held, Settlement(TaskState.NO_CHANGE, "done", result))


async def test_a_run_makes_one_task_at_its_time_and_not_before(store: Store, clock: Clock) -> None:
    await store.schedules.add(hourly(), "ann")
    await planner(store, clock).once()
    assert await made(store) == []
    clock.now = START + 3600
    await planner(store, clock).once()
    await planner(store, clock).once()
    (view,) = await made(store)
    assert view.user == "ann"
    held = await store.queue.claim(HostFacts("here"))
    assert held is not None
    assert (held.task.request.capability, held.task.request.standing) == ("standing-right", True)


async def test_of_many_hosts_that_look_at_once_one_makes_the_run(tmp_path: Path, clock: Clock) -> None:
    stores = [Store(tmp_path / "swarm.db", clock=clock) for _ in range(4)]
    try:
        await stores[0].schedules.add(hourly(), "ann")
        clock.now = START + 3600
        await asyncio.gather(*(planner(each, clock).once() for each in stores * 3))
        assert len(await made(stores[0])) == 1
        assert (await stores[0].schedules.show("tidy")).fired == 1
    finally:
        for each in stores:
            await each.__aexit__()


@pytest.mark.parametrize(("missed", "count"), [("once", 1), ("skip", 0)])
async def test_a_week_of_downtime_is_made_up_for_once_or_not_at_all(
    store: Store, clock: Clock, missed: str, count: int
) -> None:
    await store.schedules.add(hourly(missed=missed), "ann")
    clock.now = START + 7 * 86_400 + 1800
    for _ in range(5):
        await planner(store, clock).once()
    assert len(await made(store)) == count
    following = (await store.schedules.show("tidy")).next
    assert following is not None
    assert clock.now < following <= clock.now + 3600


@pytest.mark.parametrize(("overlap", "count"), [("skip", 1), ("allow", 2)])
async def test_a_run_while_the_last_one_goes_on(store: Store, clock: Clock, overlap: str, count: int) -> None:
    await store.schedules.add(hourly(overlap=overlap), "ann")
    for hour in (1, 2):
        clock.now = START + 3600 * hour
        await planner(store, clock).once()
    assert len(await made(store)) == count
    if overlap == "skip":
        assert "of the last run is queued" in (await store.schedules.show("tidy")).reason
        await finish(store)
        clock.now += 3600
        await planner(store, clock).once()
        assert len(await made(store)) == 2


async def test_it_stops_when_what_the_person_allowed_is_used_up_and_goes_on_with_more(
    store: Store, clock: Clock
) -> None:
    await store.schedules.add(hourly(overlap="allow", uses=2, until=START + 1e6), "ann")
    for hour in range(1, 5):
        clock.now = START + 3600 * hour
        await planner(store, clock).once()
    view = await store.schedules.show("tidy")
    assert (len(await made(store)), view.enabled) == (2, False)
    assert "used up by 2 tasks" in view.reason
    right = ScheduleRight(capability="another", until=clock.now + 1e6, uses=1)
    await store.schedules.resume("tidy", right)
    clock.now += 3600
    await planner(store, clock).once()
    assert len(await made(store)) == 3


async def test_a_run_that_is_asked_for_and_left_out_is_refused_with_what_can_be_done(
    store: Store, clock: Clock
) -> None:
    await store.schedules.add(hourly(uses=1, until=START + 1e6), "ann")
    made_now = await planner(store, clock).run_now("tidy")
    with pytest.raises(TaskError, match="used up by a task") as used_up:
        await planner(store, clock).run_now("tidy")
    assert used_up.value.mend == "give it another: swarm schedule resume tidy"
    await store.schedules.resume("tidy", ScheduleRight(capability="another", until=clock.now + 1e6, uses=5))
    with pytest.raises(TaskError, match="of the last run is queued") as goes_on:
        await planner(store, clock).run_now("tidy")
    assert f"swarm show {made_now.task.id}" in goes_on.value.mend


async def test_it_stops_when_the_right_ended(store: Store, clock: Clock) -> None:
    await store.schedules.add(hourly(until=START + 60), "ann")
    clock.now = START + 3600
    await planner(store, clock).once()
    view = await store.schedules.show("tidy")
    assert (await made(store), view.enabled) == ([], False)
    assert "has ended" in view.reason


async def test_a_paused_one_makes_nothing_and_is_not_made_up_for(store: Store, clock: Clock) -> None:
    await store.schedules.add(hourly(), "ann")
    await store.schedules.pause("tidy")
    clock.now = START + 86_400
    await planner(store, clock).once()
    await store.schedules.resume("tidy")
    await planner(store, clock).once()
    assert await made(store) == []
    run = await planner(store, clock).run_now("tidy")
    assert run.state is TaskState.QUEUED


async def test_a_task_that_cannot_be_accepted_leaves_that_run_out_and_says_why(store: Store, clock: Clock) -> None:
    async def refuse(_: TaskRequest) -> Plan:
        raise TaskError('no endpoint serves the tier "x"')

    await store.schedules.add(hourly(), "ann")
    clock.now = START + 3600
    await Planner(store.schedules, refuse, lambda: None, clock).once()
    view = await store.schedules.show("tidy")
    assert (view.enabled, await made(store)) == (True, [])
    assert 'no endpoint serves the tier "x"' in view.reason


async def test_the_same_twice_is_one_another_of_its_name_is_refused_and_none_shows_the_right(store: Store) -> None:
    first = await store.schedules.add(hourly(), "ann")
    assert await store.schedules.add(hourly(), "ann") == first
    with pytest.raises(TaskError, match="something else"):
        await store.schedules.add(hourly(cron="5 * * * *"), "ann")
    with pytest.raises(TaskError, match="no cron expression"):
        await store.schedules.add(hourly(name="odd", cron="99 * * * *"), "ann")
    assert "standing-right" not in str(await store.schedules.listed())
    await store.schedules.remove("tidy")
    with pytest.raises(TaskNotFoundError):
        await store.schedules.show("tidy")


async def test_the_id_of_a_run_cannot_be_foretold_and_two_in_one_instant_are_two_tasks(
    store: Store, clock: Clock
) -> None:
    await store.schedules.add(hourly(overlap="allow"), "ann")
    first, second = [await planner(store, clock).run_now("tidy") for _ in range(2)]
    assert first.task.id != second.task.id
    assert all(view.task.id.startswith("stidy-") for view in (first, second))
    clock.now = START + 3600
    (one,), _ = await store.schedules.due()
    (two,), _ = await store.schedules.due()
    assert one.request.task != two.request.task


async def test_a_run_whose_id_is_taken_is_left_out_and_the_schedules_after_it_run(store: Store, clock: Clock) -> None:
    for name in ("aaa", "tidy"):
        await store.schedules.add(hourly(name=name), "ann")
    clock.now = START + 3600

    async def plan(wanted: TaskRequest) -> Plan:
        if str(wanted.task).startswith("saaa-"):
            squat = REQUEST.model_copy(update={"task": wanted.task, "instructions": "mine"})
            await store.add(squat, PLAN)
        return PLAN

    await Planner(store.schedules, plan, lambda: None, clock).once()
    view = await store.schedules.show("aaa")
    assert "is there already" in view.reason
    assert view.next == START + 7200 - START % 3600
    assert len(await made(store)) == 1


@pytest.mark.parametrize("fault", ["removed", "broken", "away from the database"])
async def test_one_schedule_that_fails_ends_none_of_the_others(store: Store, clock: Clock, fault: str) -> None:
    for name in ("aaa", "tidy"):
        await store.schedules.add(hourly(name=name), "ann")
    clock.now = START + 3600

    async def plan(wanted: TaskRequest) -> Plan:
        if str(wanted.task).startswith("saaa-"):
            if fault == "removed":
                await store.schedules.remove("aaa")
            elif fault == "broken":
                raise KeyError("a fault of ours")
            else:
                raise StoreError("this row cannot be written")
        return PLAN

    woken = asyncio.Event()
    looking = asyncio.create_task(Planner(store.schedules, plan, woken.set, clock).run())
    async with asyncio.timeout(5):
        await woken.wait()
    assert not looking.done()
    assert len(await made(store)) == 1
    looking.cancel()


async def test_a_schedule_that_cannot_be_read_is_stopped_and_the_others_run(store: Store, clock: Clock) -> None:
    for name in ("aaa", "tidy"):
        await store.schedules.add(hourly(name=name), "ann")

    def spoil(connection: sa.Connection) -> None:
        connection.execute(schedules.update().where(schedules.c.name == "aaa").values(request='{"of": "another"}'))

    await store.schedules._db.do(spoil)
    clock.now = START + 3600
    await planner(store, clock).once()
    assert len(await made(store)) == 1
    rows = await store.schedules._db.do(
        lambda connection: connection.execute(sa.select(schedules.c.name, schedules.c.enabled)).all()
    )
    assert dict(map(tuple, rows)) == {"aaa": False, "tidy": True}


@pytest.mark.parametrize("more", [{"until": START + 9}, {"uses": 3}, {"request": {"capability": "another"}}])
async def test_the_same_again_under_another_right_is_not_taken_for_the_same(
    store: Store, more: dict[str, object]
) -> None:
    await store.schedules.add(hourly(uses=5), "ann")
    if "request" in more:
        more = {"uses": 5, "request": REQUEST.model_copy(update=more["request"])}  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="another right") as error:
        await store.schedules.add(hourly(**({"uses": 5} | more)), "ann")
    assert "swarm schedule resume tidy" in error.value.mend
    kept = REQUEST.model_copy(update={"capability": SAME_RIGHT})
    assert (await store.schedules.add(hourly(request=kept), "ann")).uses == 5
    with pytest.raises(TaskNotFoundError):
        await store.schedules.add(hourly(name="gone", request=kept), "ann")


async def test_what_a_schedules_budget_leaves_open_is_open_at_each_run(store: Store, clock: Clock) -> None:
    request = TaskRequest.model_validate(REQUEST.model_dump(exclude_unset=True) | {"budget": {"steps": 3}})
    await store.schedules.add(hourly(request=request), "ann")
    clock.now = START + 3600
    (run,), _ = await store.schedules.due()
    assert run.request.budget is not None
    assert run.request.budget.model_fields_set == {"steps"}
