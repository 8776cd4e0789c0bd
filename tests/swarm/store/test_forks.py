"""Where a fork, and a task that was resumed, go on: at one line of a journal and the tree of that time, every time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.errors import TaskError
from swarm.scheduling.facts import HostFacts
from swarm.store.journal import surviving
from swarm.store.rows import Claim, Kept, Plan, Settlement
from swarm.store.schema import steps
from swarm.store.snapshots import Beginning
from swarm.store.store import Store
from swarm.store.verbs import Stand
from swarm.types import AttemptResult, Budget, Conclusion, Failure, Fault, ForkRequest, TaskRequest, TaskState, TaskView

HOST = HostFacts("here", slots=10)
FORK = ForkRequest(task="f1", capability="c")
BASE = "0" * 40


@pytest.fixture
async def store(where: Path | Address) -> AsyncIterator[Store]:
    async with Store(where) as opened:
        yield opened


async def claimed(store: Store) -> Claim:
    claim = await store.queue.claim(HOST)
    assert claim is not None
    return claim


async def worked(store: Store, task: str = "p1") -> Claim:
    """A task whose attempt has made a first edit and saved it."""
    request = TaskRequest(repository="demo", instructions="fix it", task=task)
    await store.add(request, Plan(budget=Budget(), tier="small", strategy="auto"))
    claim = await claimed(store)
    await store.record(claim, "phase_started", {"phase": "work"})
    await edited(store, claim, "first")
    return claim


async def edited(store: Store, claim: Claim, text: str) -> None:
    await store.record(claim, "edit", {"text": text, "changed": True})
    await store.salvaged(claim, Kept(f"refs/salvage/{claim.attempt.id}", f"tree-{text}", "box"))


async def test_a_line_that_the_journal_does_not_have_is_refused(store: Store) -> None:
    claim = await worked(store)
    last = (await store.steps("p1"))[-1].seq
    stand = await store.verbs.source("p1", FORK.model_copy(update={"step": last}))
    assert isinstance(stand, Stand)
    with pytest.raises(TaskError, match=f"attempt {claim.attempt.id} ends with line {last}; there is no line 9999"):
        await store.verbs.source("p1", FORK.model_copy(update={"step": 9999}))


async def fork(store: Store, stand: Stand, wanted: ForkRequest = FORK) -> TaskView:
    work = Beginning(f"refs/forks/{wanted.task}", BASE, stand.tree or "", b"PACK")
    return (await store.verbs.fork(stand, wanted, work, "ann"))[0]


async def stood(store: Store, task: str = "p1", wanted: ForkRequest = FORK) -> Stand:
    found = await store.verbs.source(task, wanted)
    assert isinstance(found, Stand)
    return found


async def ended(store: Store, claim: Claim, to: TaskState = TaskState.GAVE_UP) -> None:
    """``to`` QUEUED is a fault that passes."""
    fault = Fault(kind="passing", failure=Failure(what="no model", why="it is away", mend="wait"), whose="model")
    if to is TaskState.QUEUED:
        result = AttemptResult(conclusion=Conclusion(ending="infra_failed"), fault=fault)
    else:
        result = AttemptResult(conclusion=Conclusion(ending="gave_up"))
    await store.settle(claim, Settlement(to, "because", result))


async def texts(store: Store, attempt: str) -> list[str]:
    """The edits that an attempt knows of and finds in its workspace."""
    lines = surviving(await store.leases.past(attempt))
    return [step.data["text"] for step in lines if step.kind == "edit"]


async def test_a_fork_knows_nothing_of_what_its_parent_did_after_the_tree_was_kept(store: Store) -> None:
    parent = await worked(store)
    stand = await stood(store)
    assert stand.tree == "tree-first"
    await edited(store, parent, "while it was kept")
    forked = await fork(store, stand)
    await edited(store, parent, "later")
    assert await texts(store, forked.attempts[0].id) == ["first"]
    assert await texts(store, parent.attempt.id) == ["first", "while it was kept", "later"]


async def test_a_fork_goes_on_from_the_attempt_that_was_kept_also_where_a_later_one_has_work_by_then(
    store: Store,
) -> None:
    parent = await worked(store)
    stand = await stood(store)
    await ended(store, parent)
    await store.verbs.retry("p1")
    later = await claimed(store)
    await edited(store, later, "of another attempt")
    forked = await fork(store, stand)
    assert await texts(store, forked.attempts[0].id) == ["first"]


async def test_a_step_before_the_first_save_has_no_tree(store: Store) -> None:
    await worked(store)
    stand = await stood(store, wanted=FORK.model_copy(update={"step": 1}))
    assert (stand.tree, stand.point, stand.named) == (None, 1, True)


async def test_a_taken_id_is_refused_before_anything_is_kept(store: Store) -> None:
    await worked(store, "p1")
    await worked(store, "p2")
    made = await fork(store, await stood(store, "p1"))
    again = await store.verbs.source("p1", FORK)
    assert isinstance(again, TaskView)
    assert again.task.id == made.task.id
    for task, wanted in (
        ("p2", FORK),  # asks for the very same, and goes on from another task's work
        ("p2", FORK.model_copy(update={"title": "other"})),
        ("p1", FORK.model_copy(update={"step": 1})),
        ("p1", FORK.model_copy(update={"task": "p2"})),
    ):
        with pytest.raises(TaskError, match="there already"):
            await store.verbs.source(task, wanted)


async def test_a_passing_fault_takes_nothing_of_what_a_fork_goes_on_from(store: Store) -> None:
    await ended(store, await worked(store))
    await fork(store, await stood(store))
    first = await claimed(store)
    await ended(store, first, TaskState.QUEUED)
    second = await claimed(store)
    assert second.attempt.id != first.attempt.id
    assert second.source == first.source
    assert second.source is not None
    assert await texts(store, second.attempt.id) == ["first"]


async def test_a_passing_fault_takes_nothing_of_what_a_resumed_task_goes_on_from(store: Store) -> None:
    first = await worked(store)
    await ended(store, first)
    await store.verbs.resume("p1")
    await ended(store, await claimed(store), TaskState.QUEUED)
    again = await claimed(store)
    assert again.source is not None
    assert again.source.attempt == first.attempt.id
    assert await texts(store, again.attempt.id) == ["first"]


@pytest.mark.parametrize("verb", ["retry", "resume"])
async def test_a_fork_that_was_cancelled_before_it_kept_anything_begins_where_it_was_forked(
    store: Store, verb: str
) -> None:
    await ended(store, await worked(store))
    await fork(store, await stood(store))
    await store.verbs.cancel("f1")
    await getattr(store.verbs, verb)("f1")
    again = await claimed(store)
    assert again.source is not None
    assert again.source.task == "p1"
    assert await texts(store, again.attempt.id) == ["first"]


async def test_a_retry_of_a_resumed_task_begins_from_the_start(store: Store) -> None:
    await ended(store, await worked(store))
    await store.verbs.resume("p1")
    await ended(store, await claimed(store))
    await store.verbs.retry("p1")
    anew = await claimed(store)
    assert anew.source is None
    assert await texts(store, anew.attempt.id) == []


async def test_a_retry_of_a_fork_that_was_resumed_begins_where_it_was_forked(store: Store) -> None:
    await ended(store, await worked(store))
    await fork(store, await stood(store))
    first = await claimed(store)
    await edited(store, first, "own")
    await ended(store, first)
    await store.verbs.resume("f1")
    on = await claimed(store)
    assert await texts(store, on.attempt.id) == ["first", "own"]
    await ended(store, on)
    await store.verbs.retry("f1")
    assert await texts(store, (await claimed(store)).attempt.id) == ["first"]


async def test_an_attempt_of_a_hundred_thousand_lines_keeps_nobody_from_the_store(tmp_path: Path) -> None:
    async with Store(tmp_path / "swarm.db") as store:
        claim = await worked(store)
        data = json.dumps({"tool": "view", "text": "x" * 200})
        line = {"task": "p1", "attempt": claim.attempt.id, "at": 1.0, "kind": "note", "data": data}

        def fill(connection: sa.Connection) -> None:
            connection.execute(steps.insert(), [{**line, "seq": 1000 + number} for number in range(30_000)])

        await store._db.do(fill)  # more than a test could record
        reading = asyncio.create_task(store.leases.past(claim.attempt.id))
        answered = 0
        while not reading.done():
            await store.state("p1")
            answered += 1
        assert len(await reading) > 30_000
    assert answered > 6  # at least one call between two pages


@pytest.mark.postgres
async def test_another_host_finds_what_a_fork_begins_with(postgres: Address) -> None:
    async with Store(postgres) as store, Store(postgres) as other:
        parent = await worked(store)
        stand = await stood(store)
        await edited(store, parent, "later")
        forked = await fork(store, stand)
        found = await other.snapshots.of("refs/forks/f1", "demo")
        assert found is not None
        assert (found.pack, found.entry.tree, found.entry.base) == (b"PACK", "tree-first", BASE)
        assert (found.entry.task, found.entry.attempt) == ("f1", forked.attempts[0].id)
