"""A task whose proposal the broker holds ends as waiting there, and as delivered once the broker has delivered it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.client import Client
from broker.person_wire import Approval, StopRequest
from broker.wire import Refusal
from swarm.awaiting import LONGEST, LOOK, Awaiting, pause
from swarm.delivery import BrokerClient
from swarm.errors import BrokerError, BrokerUnreachableError
from swarm.types import TaskState, TaskView
from tests.swarm.conftest import BrokerProcess

pytestmark = pytest.mark.slow

S = TaskState


def approve(broker: BrokerProcess, proposal: str) -> Any:
    with Client(broker.people) as person:
        return person.approve(proposal, Approval(digest=person.kept(proposal).digest))


async def look(bench: Any, seconds: float = 45.0) -> TaskView:
    """The daemon's own loop, until it moved a task."""
    found: asyncio.Future[TaskView] = asyncio.get_running_loop().create_future()

    def heard(view: TaskView) -> None:
        if not found.done():
            found.set_result(view)

    async with BrokerClient(bench.broker.socket, patience=0.5) as client:
        looking = asyncio.create_task(Awaiting(bench.store, client, bench.coordinator, heard).run())
        try:
            return await asyncio.wait_for(found, seconds)
        finally:
            looking.cancel()
            await asyncio.wait({looking})


@pytest.fixture
def held_bench(bench: Any, own_broker: BrokerProcess) -> Any:
    """A bench whose broker may be stopped."""
    own_broker.start()
    bench.broker = own_broker
    return bench


async def offered_into_a_stop(bench: Any, fixing: Any, name: str) -> TaskView:
    """A task that was granted while all was well, and whose work was done after a person's stop."""
    gate = asyncio.Event()
    bench.strategies["auto"] = fixing(gate=gate)
    await bench.submit(name)
    await bench.until_step(name, "salvage")
    with Client(bench.broker.people) as person:
        person.stop(StopRequest(repository="demo", stopped=True, reason="holidays"))
    gate.set()
    view: TaskView = await bench.until(name)
    return view


def go(bench: Any) -> None:
    with Client(bench.broker.people) as person:
        person.stop(StopRequest(repository="demo", stopped=False))


async def test_a_stop_ends_in_waiting_and_go_in_delivered_without_another_attempt(
    held_bench: Any, fixing: Any, name: str
) -> None:
    async with held_bench.open():
        view = await offered_into_a_stop(held_bench, fixing, name)
        assert view.state is S.NEEDS_PERSON
        assert "holidays" in view.reason
        assert "by itself" in view.reason
        assert "waiting" in await held_bench.kinds(name)
        assert "fault" not in await held_bench.kinds(name)
        go(held_bench)
        moved = await look(held_bench)
        view = await held_bench.store.view(name)
    assert (view.state, moved) == (S.DELIVERED, view)
    assert view.pull_request == "demo#1"
    assert len(view.attempts) == len(held_bench.strategies["auto"].saw) == 1
    assert held_bench.broker.pulls(name) == 1
    assert view.reason == "pull request demo#1"


async def test_it_survives_a_restart_of_the_daemon_and_of_the_broker(held_bench: Any, fixing: Any, name: str) -> None:
    async with held_bench.open():
        await offered_into_a_stop(held_bench, fixing, name)
    held_bench.broker.stop()
    held_bench.broker.start()
    async with held_bench.open():
        assert (await held_bench.store.view(name)).state is S.NEEDS_PERSON
        go(held_bench)
        view = await look(held_bench)
        assert "receipt" in await held_bench.kinds(name)
    assert view.state is S.DELIVERED
    assert held_bench.broker.pulls(name) == 1


class Both:
    """Does the work, and touches what policy protects."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def work(self, work: Any) -> Any:
        await work.sandbox.write("secret/key.txt", b"x\n")
        return await self.inner.work(work)


async def test_a_refusal_that_a_person_approves_later_ends_in_delivered(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = Both(fixing())
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
        assert view.state is S.REFUSED
        await asyncio.to_thread(approve, bench.broker, name)
        view = await look(bench)
    assert view.state is S.DELIVERED
    assert len(view.attempts) == 1
    assert view.branch == f"swarm/{name}"
    assert bench.broker.pulls(name) == 1


async def test_a_retry_that_was_first_keeps_its_own_end(held_bench: Any, fixing: Any, name: str) -> None:
    """What the broker says later about the first attempt moves no task that has another."""
    async with held_bench.open():
        await offered_into_a_stop(held_bench, fixing, name)
        (held,) = await held_bench.store.held(0.0, 10)
        go(held_bench)
        await held_bench.coordinator.retry(name)
        view = await held_bench.until(name, S.DELIVERED)
        word = {"kind": "refusal", "proposal": name, "findings": []}
        assert await held_bench.coordinator.redeem(held, word) is None
        assert await held_bench.store.view(name) == view
        assert await held_bench.store.held(0.0, 10) == ()
    assert held_bench.broker.pulls(name) == 1


async def test_what_waits_and_is_refused_then_is_called_refused(held_bench: Any, fixing: Any, name: str) -> None:
    async with held_bench.open():
        await offered_into_a_stop(held_bench, fixing, name)
        with Client(held_bench.broker.people) as person:
            assert isinstance(person.discard(name).verdict, Refusal)
        view = await look(held_bench)
        assert view.state is S.REFUSED
        assert "discarded" in view.reason
        assert await held_bench.store.held(0.0, 10) == ()  # nobody can approve it any more


class Counting(BrokerClient):
    """A broker that knows nothing and counts who asks."""

    def __init__(self, folder: Any, errors: list[BrokerError]) -> None:
        super().__init__(folder / "none.sock")
        self.asked: list[str] = []
        self.errors = errors

    async def proposal(self, name: str) -> None:
        self.asked.append(name)
        if self.errors:
            raise self.errors.pop(0)


async def test_looks_are_few_and_grow_rarer(held_bench: Any, fixing: Any, name: str) -> None:
    async with held_bench.open():
        view = await offered_into_a_stop(held_bench, fixing, name)
        now = [view.updated]
        errors = [BrokerError("odd"), BrokerUnreachableError("away")]
        broker = Counting(held_bench.folder, errors)
        awaiting = Awaiting(held_bench.store, broker, held_bench.coordinator, clock=lambda: now[0])
        await awaiting.once()
        await awaiting.once()
        assert broker.asked == [name]  # an odd answer is no reason to ask at once
        now[0] += LOOK
        with pytest.raises(BrokerUnreachableError):
            await awaiting.once()
        await awaiting.once()
        assert len(broker.asked) == 3  # nobody was asked, so the next round asks
        for _ in range(24 * 60):
            now[0] += 60.0
            await awaiting.once()
        assert len(broker.asked) < 24 * 3600 / LONGEST + 60
        now[0] += 31 * 86400.0
        before = len(broker.asked)
        await awaiting.once()
        assert len(broker.asked) == before


@pytest.mark.parametrize(("age", "seconds"), [(-5.0, LOOK), (0.0, LOOK), (600.0, 60.0), (1e9, LONGEST)])
def test_the_pause_is_a_tenth_of_the_age_within_bounds(age: float, seconds: float) -> None:
    assert pause(age) == seconds
