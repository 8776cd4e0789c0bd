"""The queue in a database: order, fairness, caps, needs, expiry, breakers and estimates, over many hosts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.errors import IllegalMoveError, TaskError
from swarm.scheduling import preflight
from swarm.scheduling.breaker import PAUSE, THRESHOLD
from swarm.scheduling.facts import Caps, Hold, HostFacts, Rules
from swarm.store import queue
from swarm.store.hosts import Member
from swarm.store.queue import LANES
from swarm.store.rows import Claim, Kept, Plan, Settlement
from swarm.store.schema import tasks
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, Conclusion, FailureKind, TaskRequest, TaskState, TaskView

HOST = HostFacts("here", slots=1000)
PLAN = Plan(budget=Budget(), tier="small", strategy="auto")
S = TaskState


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(where: Path | Address, clock: Clock) -> AsyncIterator[Store]:
    async with Store(where, clock=clock) as opened:
        yield opened


async def add(store: Store, task: str, *, user: str = "ann", repository: str = "web", **more: object) -> TaskView:
    request = TaskRequest(repository=repository, instructions="fix it", task=task, **more)
    return (await store.add(request, replace(PLAN, user=user)))[0]


async def claim(store: Store, host: HostFacts = HOST) -> Claim:
    found = await store.queue.claim(host)
    assert found is not None
    return found


async def claimed(store: Store, count: int) -> list[str]:
    return [(await claim(store)).task.id for _ in range(count)]


async def end(store: Store, held: Claim, to: TaskState, failure: FailureKind | None = None, wait: float = 0.0) -> None:
    ending = "no_change" if to is S.NO_CHANGE else "gave_up"
    result = AttemptResult(conclusion=Conclusion(ending=ending))
    assert await store.settle(held, Settlement(to, "because", result, failure=failure, wait=wait))


class TestOrder:
    async def test_priority_goes_first_until_waiting_has_made_up_for_it(self, store: Store, clock: Clock) -> None:
        await add(store, "old", priority=50)
        clock.now += 60 * 11
        await add(store, "soon", priority=60)
        await add(store, "urgent", priority=90)
        assert await claimed(store, 3) == ["urgent", "old", "soon"]

    async def test_another_priority_moves_a_queued_task_and_that_is_told_once(self, store: Store, clock: Clock) -> None:
        for task in ("first", "second", "third"):
            await add(store, task)
            clock.now += 1
        for _ in range(2):
            assert (await store.verbs.prioritise("third", 51, "ann")).state is S.QUEUED
        lines = [step.data for step in await store.steps("third") if step.kind == "note"]
        assert lines == [{"text": "priority 50 became 51", "author": "ann"}]
        assert {entry.task: entry.priority for entry in (await store.line.shown(10)).entries}["third"] == 51
        await store.verbs.prioritise("first", 49)
        assert await claimed(store, 3) == ["third", "second", "first"]
        with pytest.raises(IllegalMoveError, match="task third is running; only one that waits"):
            await store.verbs.prioritise("third", 90)

    async def test_work_that_was_stopped_in_the_middle_keeps_its_place_before_the_rest_whatever_its_priority(
        self, store: Store, clock: Clock
    ) -> None:
        await add(store, "begun")
        held = await claim(store)
        await store.leases.give_back(held, "its daemon was stopped")
        await store.verbs.prioritise("begun", 0)
        clock.now += 1
        await add(store, "urgent", priority=100)
        assert await claimed(store, 2) == ["begun", "urgent"]

    async def test_a_retry_takes_its_place_by_the_time_that_it_is_queued_again(
        self, store: Store, clock: Clock
    ) -> None:
        await add(store, "first")
        held = await claim(store)
        clock.now += 100
        await add(store, "second")
        clock.now += 100
        await end(store, held, S.QUEUED, "infrastructure")
        assert await claimed(store, 2) == ["second", "first"]

    async def test_a_thousand_tasks_of_one_starve_nobody_with_a_single_worker(self, store: Store, clock: Clock) -> None:
        for number in range(60):
            await add(store, f"a{number}", user="ann", repository="a")
        clock.now += 86_400 * 7
        for number in range(5):
            await add(store, f"b{number}", user="bob", repository="b")
        served = []
        for _ in range(12):
            held = await claim(store)
            served.append(held.task.id[0])
            await end(store, held, S.NO_CHANGE)
        assert Counter(served)["b"] == 5

    async def test_what_is_blocked_at_the_head_holds_nobody_behind_it(self, store: Store) -> None:
        store.queue.rules = Rules(Caps(repositories={"full": 1}))
        for number in range(30):
            await add(store, f"f{number}", repository="full")
        await add(store, "needs-gpu", requires=("gpu",))
        await add(store, "plain")
        found = await claimed(store, 2)
        assert {found[0][0], found[1]} == {"f", "plain"} or {found[1][0], found[0]} == {"f", "plain"}
        assert await store.queue.claim(HOST) is None
        assert (await claim(store, HostFacts("big", frozenset({"gpu"})))).task.id == "needs-gpu"

    @pytest.mark.slow
    @pytest.mark.slow
    async def test_what_may_start_is_found_behind_any_number_of_lanes_that_may_not(
        self, tmp_path: Path, clock: Clock
    ) -> None:
        async with Store(tmp_path / "swarm.db", clock=clock) as store:
            for number in range(LANES + 2):
                await add(store, f"t{number:03}", mutex=f"m{number:03}", requires=("gpu",))
            await add(store, "last", repository="zzz")
            assert (await claim(store)).task.id == "last"
            assert await store.queue.claim(HOST) is None
            await add(store, "first", repository="aaa")
            assert (await claim(store)).task.id == "first"

    @pytest.mark.slow
    async def test_a_claim_looks_at_the_heads_of_lanes_alone_with_a_hundred_thousand_in_the_queue(
        self, store: Store
    ) -> None:
        for number in range(100):
            await add(store, f"t{number}", repository=f"r{number % 10}", user=f"u{number % 7}")
        assert await store._do(_multiply) > 100_000
        for query in (queue._LANES, queue._FIRSTS):
            assert await store._do(lambda connection, query=query: _most_looked_at(connection, query)) <= 200
        assert (await claim(store)).task.id == "t0"


def _most_looked_at(connection: sa.Connection, query: sa.Select[Any]) -> float:
    """Rows that the busiest step of a query reads; without end where SQLite would read the whole table."""
    compiled = query.compile(connection)
    values = {**compiled.params, "start": "", "limit": 500, "now": time.time() + 10}
    if connection.dialect.name == "sqlite":
        names = compiled.positiontup or ()
        told = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", tuple(values[name] for name in names))
        plan = [row[3] for row in told]
        whole = [step for step in plan if step.startswith("SCAN") and "tasks" in step]
        return float("inf") if whole or any("TEMP B-TREE FOR ORDER" in step for step in plan) else 0.0
    told = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {compiled}", values)
    return _busiest(told.scalar_one()[0]["Plan"])


def _busiest(step: dict[str, Any]) -> float:
    own = step["Actual Rows"] * step["Actual Loops"] + step.get("Rows Removed by Filter", 0)
    return max([own, *(_busiest(below) for below in step.get("Plans", ()))])


def _multiply(connection: sa.Connection) -> int:
    """Copies of what is queued, until there are more than a hundred thousand."""
    names = [column.name for column in tasks.columns if column.name not in {"id", "rank", "key"}]
    columns = [tasks.c[name] for name in names]
    count = 0
    for times in range(20):
        copied = sa.select(tasks.c.id + f"-{times}", tasks.c.rank + 1.0 + times, *columns).where(
            tasks.c.state == "queued"
        )
        connection.execute(tasks.insert().from_select(["id", "rank", *names], copied.limit(60_000)))
        query = sa.select(sa.func.count()).select_from(tasks).where(tasks.c.state == "queued")
        count = connection.execute(query).scalar_one()
        if count > 100_000:
            break
    return count


class TestMutex:
    async def test_no_two_with_the_same_word_run_at_a_time(self, store: Store) -> None:
        await add(store, "one", mutex="m", repository="a")
        await add(store, "two", mutex="m", repository="b", user="bob")
        held = await claim(store)
        assert await store.queue.claim(HOST) is None
        await end(store, held, S.NO_CHANGE)
        assert (await claim(store)).task.id != held.task.id

    async def test_nobody_works_twice_at_once_on_the_same_pull_request(self, store: Store) -> None:
        await add(store, "root")
        await end(store, await claim(store), S.NO_CHANGE)
        await add(store, "f1", follows="root")
        await add(store, "f2", follows="root")
        await add(store, "f3", follows="root")
        assert (await claim(store)).task.id == "f1"
        assert await store.queue.claim(HOST) is None

    async def test_many_hosts_that_ask_at_once_pass_no_cap(self, tmp_path: Path) -> None:
        stores = [Store(tmp_path / "swarm.db") for _ in range(3)]
        try:
            for each in stores:
                each.queue.rules = Rules(Caps(per_repository=2))
            for number in range(9):
                await add(stores[0], f"t{number}", mutex="m" if number % 3 == 0 else None)
            asked = [each.queue.claim(HostFacts(f"h{number}", slots=9)) for number, each in enumerate(stores * 4)]
            found = [one for one in await asyncio.gather(*asked) if one]
            assert len(found) == 2
            assert sum(one.task.request.mutex == "m" for one in found) <= 1
        finally:
            for each in stores:
                await each.__aexit__()


class TestNeeds:
    async def test_it_starts_once_all_that_it_needs_is_done_and_is_told_of_it(self, store: Store) -> None:
        await add(store, "a", title="First")
        await add(store, "b", needs=("a",))
        assert "waits for task a, queued" in (await store.view("b")).waits_for
        held = await claim(store)
        assert held.task.id == "a"
        assert await store.queue.claim(HOST) is None
        await end(store, held, S.NO_CHANGE)
        assert (await claim(store)).task.id == "b"
        (told,) = await store.needs.results("b")
        assert (told.task, told.title, told.state) == ("a", "First", S.NO_CHANGE)

    async def test_a_bad_end_ends_all_that_hang_on_it_with_the_reason_and_they_can_be_retried(
        self, store: Store
    ) -> None:
        await add(store, "a")
        await add(store, "b", needs=("a",))
        await add(store, "c", needs=("b",))
        await end(store, await claim(store), S.GAVE_UP)
        b, c = await store.view("b"), await store.view("c")
        assert (b.state, c.state) == (S.NEEDS_PERSON, S.NEEDS_PERSON)
        assert "needs task a, which ended as gave_up" in b.reason
        assert "needs task b, which ended as needs_person" in c.reason
        assert (await store.verbs.retry("b")).state is S.NEEDS_PERSON
        await store.verbs.retry("a")
        await store.verbs.retry("b")
        await end(store, await claim(store), S.NO_CHANGE)
        assert (await claim(store)).task.id == "b"

    async def test_what_is_not_there_or_the_task_itself_cannot_be_needed(self, store: Store) -> None:
        with pytest.raises(TaskError, match="nowhere"):
            await add(store, "a", needs=("nowhere",))
        with pytest.raises(TaskError, match="needs itself"):
            await add(store, "b", needs=("b",))
        assert await store.queue.claim(HOST) is None

    async def test_a_finish_that_nobody_told_of_is_found_by_the_sweep(self, store: Store) -> None:
        """sample-autonomous-cloud-coding-agents#303, multica#1326: a lost finish event blocked dependents for ever."""
        await add(store, "a")
        await add(store, "b", needs=("a",))
        held = await claim(store)
        lost = tasks.update().where(tasks.c.id == "a").values(state="delivered")
        await store._do(lambda connection: connection.execute(lost))
        assert await store.queue.claim(HOST) is None
        assert await store.queue.sweep() == ()
        assert (await claim(store)).task.id == "b"
        assert held.task.id == "a"

    async def test_a_bad_end_that_nobody_told_of_is_found_too_and_twice_is_once(self, store: Store) -> None:
        await add(store, "a")
        await add(store, "b", needs=("a",))
        await add(store, "c", needs=("b",))
        lost = tasks.update().where(tasks.c.id == "a").values(state="cancelled")
        await store._do(lambda connection: connection.execute(lost))
        await store.queue.sweep()
        assert await store.queue.sweep() == ()
        assert {(await store.view(name)).state for name in "bc"} == {S.NEEDS_PERSON}

    async def test_work_that_waits_for_its_worker_ends_with_its_task_and_no_other_is_begun(self, store: Store) -> None:
        await add(store, "a")
        await end(store, await claim(store), S.NO_CHANGE)
        await add(store, "b", needs=("a",))
        held = await claim(store)
        await store.salvaged(held, Kept("refs/salvage/b", "tree", "sandbox"))
        await store.verbs.retry("a")
        await end(store, await claim(store), S.GAVE_UP)
        await store.leases.give_back(held, "its daemon was stopped")
        for _ in range(2):
            view = await store.view("b")
            assert (view.state, [one.ended is None for one in view.attempts]) == (S.NEEDS_PERSON, [False])
            await store.verbs.resume("b")
        await store.verbs.retry("a")
        await end(store, await claim(store), S.NO_CHANGE)
        await store.verbs.resume("b")
        again = await claim(store)
        assert again.source is not None
        assert again.source.attempt == held.attempt.id


class TestExpiry:
    async def test_a_pause_takes_nothing_of_the_time_that_it_may_wait(self, store: Store, clock: Clock) -> None:
        await add(store, "a", expires=60.0)
        await store.verbs.pause("a")
        clock.now += 600
        await store.verbs.resume("a")
        clock.now += 59
        assert await store.queue.sweep() == ()
        clock.now += 2
        assert await store.queue.sweep() == ("a",)
        assert (await store.view("a")).reason == "nobody claimed it within 60 s"

    async def test_what_nobody_claimed_in_time_leaves_the_queue_and_can_be_retried(
        self, store: Store, clock: Clock
    ) -> None:
        await add(store, "a", expires=60.0)
        assert await store.queue.due() == clock.now + 60
        clock.now += 61
        assert await store.queue.claim(HOST) is None
        assert await store.queue.sweep() == ()
        view = await store.view("a")
        assert (view.state, view.reason) == (S.EXPIRED, "nobody claimed it within 60 s")
        await store.verbs.retry("a")
        assert (await claim(store)).task.id == "a"

    async def test_what_was_begun_in_time_is_tried_again_however_long_it_takes(
        self, store: Store, clock: Clock
    ) -> None:
        await add(store, "a", expires=60.0)
        held = await claim(store)
        clock.now += 600
        await end(store, held, S.QUEUED, "infrastructure")
        assert await store.queue.sweep() == ()
        assert (await claim(store)).task.id == "a"


class TestBreakers:
    async def fail(self, store: Store, count: int = THRESHOLD) -> None:
        for _ in range(count):
            await end(store, await claim(store), S.INFRA_FAILED, "infrastructure")

    async def test_it_opens_lets_one_through_and_closes(self, store: Store, clock: Clock) -> None:
        await store.hosts.register(Member(HOST, "home", "life"))
        for number in range(8):
            await add(store, f"t{number}")
        await add(store, "other", repository="other", priority=0)
        await self.fail(store)
        assert (await claim(store)).task.id == "other"
        assert await store.queue.claim(HOST) is None
        assert "the machinery failed 3 times" in (await store.view("t7")).waits_for
        clock.now += PAUSE
        trial = await claim(store)
        assert await store.queue.claim(HOST) is None
        await end(store, trial, S.GAVE_UP, "agent")
        assert len(await claimed(store, 2)) == 2
        assert await store.breakers.listed() == ()

    @pytest.mark.parametrize(
        "how", ["its host starts again", "parked", "paused", "cancelled", "cancelled in the queue"]
    )
    async def test_a_trial_that_ends_without_a_word_is_made_anew(self, store: Store, clock: Clock, how: str) -> None:
        await store.hosts.register(Member(HOST, "home", "life"))
        for number in range(THRESHOLD + 2):
            await add(store, f"t{number}")
        await self.fail(store)
        clock.now += PAUSE
        trial = await claim(store)
        if how == "its host starts again":
            await store.hosts.register(Member(HOST, "home", "another life"))
        else:
            if how in {"paused", "cancelled"}:
                await (store.verbs.pause if how == "paused" else store.verbs.cancel)(trial.task.id)
            await store.leases.give_back(trial, "stopped")
            if how == "cancelled in the queue":
                await store.verbs.cancel(trial.task.id)
        again = await claim(store)
        assert (again.task.id == trial.task.id) is (how in {"its host starts again", "parked"})
        assert await store.queue.claim(HOST) is None
        await end(store, again, S.NO_CHANGE)
        assert await store.breakers.listed() == ()

    async def test_an_image_that_breaks_holds_back_every_repository_that_stands_on_it(self, store: Store) -> None:
        store.queue.rules = Rules(images={"web": "py", "api": "py", "own": "go"})
        for number in range(5):
            await add(store, f"w{number}")
        await self.fail(store)
        await add(store, "sister", repository="api")
        await add(store, "stranger", repository="own")
        assert (await claim(store)).task.id == "stranger"
        assert await store.queue.claim(HOST) is None
        assert await store.breakers.reset("image:py")
        assert (await claim(store)).task.id == "sister"

    @pytest.mark.parametrize("whose", ["agent", "policy", "person", "model", None])
    async def test_nobody_elses_failure_opens_it(self, store: Store, whose: FailureKind | None) -> None:
        for number in range(THRESHOLD + 1):
            await add(store, f"t{number}")
        for _ in range(THRESHOLD):
            await end(store, await claim(store), S.GAVE_UP, whose)
        assert await claimed(store, 1)


class TestForPeople:
    async def test_place_estimate_and_reason(self, store: Store, clock: Clock) -> None:
        await store.hosts.register(Member(replace(HOST, slots=1), "home", "life"))
        for number in range(7):
            clock.now += 1
            await add(store, f"t{number}")
        assert (await store.view("t6")).eta is None
        for _ in range(4):
            held = await claim(store)
            clock.now += 10
            await end(store, held, S.NO_CHANGE)
        await store.hosts.register(Member(replace(HOST, slots=1), "home", "life"))
        view = await store.view("t6")
        assert (view.place, view.waits_for) == (3, "")
        assert view.eta is not None
        assert (view.eta.low, view.eta.high) == (30.0, 30.0)
        await claim(store)
        assert "all 1 of here are busy" in (await store.view("t6")).waits_for

    async def test_saved_work_goes_on_at_its_host_while_the_broker_is_away_and_nothing_else_begins(
        self, store: Store, clock: Clock
    ) -> None:
        await store.hosts.register(Member(HOST, "home", "life"))
        for task in ("unsaved", "saved", "fresh"):
            await add(store, task)
            clock.now += 1
        unsaved, saved = await claim(store), await claim(store)
        await store.salvaged(saved, Kept("refs/salvage/saved", "tree", "sandbox"))
        for held in (unsaved, saved):
            await store.leases.give_back(held, "its daemon was stopped")
        store.queue.holds = preflight.broker("refused")
        assert await store.queue.claim(HostFacts("other", slots=1000)) is None
        goes_on = await claim(store)
        assert (goes_on.task.id, goes_on.attempt.id, goes_on.resumed) == ("saved", saved.attempt.id, True)
        assert await store.queue.claim(HOST) is None
        waiting = {entry.task: entry.waits_for for entry in (await store.line.shown(10)).entries}
        assert waiting == dict.fromkeys(("unsaved", "fresh"), "waits for the broker: refused")
        store.queue.holds = ()
        assert await claimed(store, 2) == ["unsaved", "fresh"]

    async def test_what_holds_everything_back_is_shown_and_nothing_starts(self, store: Store) -> None:
        """AO#2652, aimee PR#1951, gh-aw-firewall#361: the disk is looked at before anything begins."""
        await add(store, "a")
        store.queue.holds = (Hold("fleet", "waits for disk space: /state has 0.1 GiB free"),)
        assert await store.queue.claim(HOST) is None
        shown = await store.line.shown(10)
        assert shown.holds == ("waits for disk space: /state has 0.1 GiB free",)
        store.queue.holds = ()
        assert (await claim(store)).task.id == "a"


async def test_the_same_issue_handed_in_by_many_at_once_is_one_task(tmp_path: Path) -> None:
    """multica#6947, detent#193: an issue dispatched twice. gabrielkoerich/orch#1662: eleven identical ones filed."""
    stores = [Store(tmp_path / "swarm.db") for _ in range(3)]
    try:
        wanted = TaskRequest(repository="web", instructions="fix it", idempotency_key="forge:web:7:t7", task="t7")
        made = await asyncio.gather(*(each.add(wanted, PLAN) for each in stores * 4))
        assert sum(new for _, new in made) == 1
        found = [await each.queue.claim(HOST) for each in stores]
        assert sum(one is not None for one in found) == 1
    finally:
        for each in stores:
            await each.__aexit__()
