"""Hosts, leases and what becomes of work whose host is gone, on both databases: workers come back too late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.errors import DaemonError, StaleClaimError
from swarm.scheduling.facts import HostFacts
from swarm.store.hosts import Member
from swarm.store.leases import AT_ONCE, Peer
from swarm.store.rows import Claim, Plan, Settlement
from swarm.store.schema import attempts, steps, tasks
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, Conclusion, TaskRequest, TaskState

A, B = HostFacts("a", slots=9, lease=30.0), HostFacts("b", slots=9, lease=30.0)
PLAN = Plan(budget=Budget(), tier="small", strategy="auto")
END = Settlement(TaskState.NO_CHANGE, "done", AttemptResult(conclusion=Conclusion(ending="no_change")))


def member(facts: HostFacts, life: str = "1", home: str = "") -> Member:
    return Member(facts, home=home or facts.name, life=life, patience=60.0)


@pytest.fixture
async def store(where: Path | Address) -> AsyncIterator[Store]:
    async with Store(where) as opened:
        yield opened


async def claimed(store: Store, host: HostFacts = A, task: str = "t1") -> Claim:
    await store.add(TaskRequest(repository="demo", instructions="fix it", task=task), PLAN)
    claim = await store.queue.claim(host)
    assert claim is not None
    return claim


async def peer(store: Store, host: HostFacts = B) -> Peer:
    (found,) = await store.leases.peers(host.name)
    return found


async def test_a_host_that_starts_again_queues_what_its_earlier_life_had_with_the_attempt_open(store: Store) -> None:
    await store.hosts.register(member(A))
    before = await claimed(store)
    assert await store.hosts.register(member(A, "2")) == ()
    assert await store.state("t1") is TaskState.QUEUED
    with pytest.raises(StaleClaimError):
        await store.record(before, "note", {})
    after = await store.queue.claim(A)
    assert after is not None
    assert after.resumed
    assert after.attempt.id == before.attempt.id
    assert after.fence > before.fence


async def test_what_was_being_delivered_is_taken_over_as_it_is(store: Store) -> None:
    await store.hosts.register(member(A))
    before = await claimed(store)
    await store.deliver(before, "the checks pass")
    (after,) = await store.hosts.register(member(A, "2"))
    assert after.delivering
    assert await store.state("t1") is TaskState.DELIVERING
    with pytest.raises(StaleClaimError):
        await store.leases.check(before)
    receipt = {"kind": "receipt", "pull_request": "demo#1", "url": ""}
    assert await store.settle(after, Settlement(TaskState.DELIVERED, "there", END.result, verdict=receipt))


async def test_two_daemons_cannot_be_the_same_host(store: Store) -> None:
    await store.hosts.register(member(A, home="one"))
    with pytest.raises(DaemonError, match="another daemon"):
        await store.hosts.register(member(A, "2", home="two"))


async def test_a_heartbeat_of_a_life_that_was_replaced_renews_nothing(store: Store) -> None:
    await store.hosts.register(member(A))
    await store.hosts.register(member(A, "2"))
    assert await store.hosts.beat(member(A)) is None
    assert await store.hosts.beat(member(A, "2")) == ()


async def test_the_heartbeat_brings_what_people_want(store: Store) -> None:
    await store.hosts.register(member(A))
    claim = await claimed(store)
    await store.verbs.cancel("t1")
    (order,) = await store.hosts.beat(member(A)) or ()
    assert (order.task, order.fence, order.cancelling, order.pausing) == ("t1", claim.fence, True, False)


async def test_a_dead_hosts_task_goes_on_elsewhere_and_its_return_changes_nothing(store: Store) -> None:
    """Stablyai/orca#18368: the late worker's writes are refused, one by one."""
    await store.hosts.register(member(A))
    stale = await claimed(store)
    assert await store.leases.take_over(await peer(store), B) == ()
    after = await store.queue.claim(B)
    assert after is not None
    assert after.attempt.id == stale.attempt.id
    for late in (
        store.record(stale, "note", {}),
        store.settle(stale, END),
        store.leases.give_back(stale, "late"),
        store.deliver(stale, "late"),
    ):
        with pytest.raises(StaleClaimError):
            await late
    assert await store.settle(after, END)
    assert not await store.settle(stale, END)  # final: the first report won
    assert (await store.view("t1")).state is TaskState.NO_CHANGE


async def test_a_host_that_gave_a_sign_since_it_was_seen_keeps_its_tasks(store: Store) -> None:
    await store.hosts.register(member(A))
    claim = await claimed(store)
    seen = await peer(store)
    await store.hosts.beat(member(A))
    await store.leases.take_over(seen, B)
    await store.leases.check(claim)
    assert await store.state("t1") is TaskState.RUNNING


@pytest.mark.slow
async def test_whoever_holds_much_hides_nobody_and_is_taken_over_whole(store: Store) -> None:
    """More tasks than one transaction takes; the few of the other host are seen beside them."""
    await store.hosts.register(replace(member(A), patience=330.0))
    first = await claimed(store)
    await store._do(lambda connection: _held_by(connection, "t1", "a", AT_ONCE + 10))
    await store._do(lambda connection: _held_by(connection, "t1", "z", 3))
    seen = {one.host: one for one in await store.leases.peers("b")}
    assert set(seen) == {"a", "z"}
    assert (seen["a"].patience, seen["z"].patience) == (330.0, None)
    assert seen["a"].progress > AT_ONCE
    await store.leases.take_over(seen["a"], B)
    assert [one.host for one in await store.leases.peers("b")] == ["z"]
    with pytest.raises(StaleClaimError):
        await store.leases.check(first)


def _held_by(connection: sa.Connection, like: str, host: str, count: int) -> None:
    """Further tasks that a host is at work on, as one is that is there."""
    for table, key in ((tasks, tasks.c.id), (attempts, attempts.c.task), (steps, steps.c.task)):
        found = [dict(row._mapping) for row in connection.execute(sa.select(table).where(key == like))]
        for number in range(count):
            for row in found:
                name = f"{host}{number}"
                mine = {"host": host} if "host" in row else {}
                ids = {"id": name, "task": name} if "task" in row and "id" in row else {key.name: name}
                connection.execute(table.insert().values(row | mine | ids))


async def test_two_hosts_that_take_over_at_once_do_it_once(store: Store) -> None:
    await store.hosts.register(member(A))
    claim = await claimed(store)
    await store.deliver(claim, "the checks pass")
    seen = await peer(store)
    first = await store.leases.take_over(seen, B)
    second = await store.leases.take_over(seen, HostFacts("c"))
    assert [len(first), len(second)] == [1, 0]


async def test_the_journal_of_its_attempts_is_a_sign_of_life_as_well(store: Store) -> None:
    await store.hosts.register(member(A))
    claim = await claimed(store)
    before = await peer(store)
    await store.record(claim, "note", {"text": "still at it"})
    assert (await peer(store)).progress > before.progress
    after = await peer(store)
    await store.remark("t1", "somebody else wrote", "")
    assert await peer(store) == after


@pytest.mark.parametrize(("verb", "state"), [("cancel", TaskState.CANCELLED), ("pause", TaskState.PAUSED)])
async def test_what_a_person_wanted_of_a_lost_task_is_done_when_it_is_taken_over(
    store: Store, verb: str, state: TaskState
) -> None:
    await store.hosts.register(member(A))
    await claimed(store)
    await getattr(store.verbs, verb)("t1")
    await store.leases.take_over(await peer(store), B)
    view = await store.view("t1")
    assert view.state is state
    assert (view.attempts[-1].ended is not None) is (state is TaskState.CANCELLED)


async def test_given_back_work_is_claimed_before_anything_new(store: Store) -> None:
    await store.hosts.register(member(A))
    first = await claimed(store)
    await store.add(TaskRequest(repository="demo", instructions="x", task="t2", priority=50), PLAN)
    await store.leases.give_back(first, "parked")
    claim = await store.queue.claim(B)
    assert claim is not None
    assert claim.task.id == "t1"
    assert claim.resumed


async def test_a_daemon_that_leaves_in_order_is_no_host_any_more(store: Store) -> None:
    await store.hosts.register(member(A))
    claim = await claimed(store)
    (host,) = await store.hosts.all()
    assert (host.name, host.tasks, host.draining) == ("a", ("t1",), False)
    await store.hosts.drain(member(A))
    assert (await store.hosts.all())[0].draining
    await store.leases.give_back(claim, "parked")
    await store.hosts.leave(member(A))
    assert await store.hosts.all() == ()


async def test_a_host_silent_for_longer_than_its_own_patience_is_shown_as_gone_and_its_workers_count_no_more(
    tmp_path: Path,
) -> None:
    now = 1000.0
    async with Store(tmp_path / "swarm.db", clock=lambda: now) as store:
        await store.hosts.register(replace(member(A), patience=13.0))
        await store.hosts.register(replace(member(B), patience=130.0))
        now += 100
        gone = {one.name: one.gone for one in await store.hosts.all()}
        assert gone == {"a": True, "b": False}
        assert (await store.line.shown(10)).slots == B.slots
        now += 100
        assert [one.gone for one in await store.hosts.all()] == [True, True]
        assert (await store.line.shown(10)).slots == 0


async def test_what_nobody_works_on_is_let_go_of_by_its_own_host(store: Store) -> None:
    """Saltbo/agent-kanban#229: running without a live attempt is no state that lasts."""
    await store.hosts.register(member(A))
    claim = await claimed(store)
    assert await store.leases.disown("t1", claim.fence + 1, A) is None
    assert await store.state("t1") is TaskState.RUNNING
    await store.leases.disown("t1", claim.fence, A)
    assert await store.state("t1") is TaskState.QUEUED
