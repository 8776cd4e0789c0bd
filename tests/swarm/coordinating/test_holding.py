"""What holds a task while nobody looks: the watchdog, the sweep, the wait for a broker, the clean-up at a start.

Each test from a public report is named after what must happen instead.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from swarm.coordinating.pace import Pace
from swarm.errors import DaemonError
from swarm.store.rows import Plan
from swarm.types import Budget, TaskRequest, TaskState

pytestmark = pytest.mark.slow

QUICK = Pace(beat=0.2, lease=30.0, grace=30.0, sweep=0.5)


async def test_an_attempt_that_stands_still_is_ended_and_tried_again_on_the_one_budget(
    bench: Any, fixing: Any, name: str
) -> None:
    """stubbi/paperclip-operator#97: runs shown as running for 50 h; elizaOS#14104: retry budgets that multiply."""
    bench.pace, bench.stall = QUICK, 4.0
    bench.strategies["auto"] = fixing(gate=asyncio.Event())
    async with bench.open():
        await bench.submit(name)
        await bench.until_step(name, "state", to="queued", seconds=30, **{"from": "running"})
        bench.strategies["auto"] = fixing()
        bench.offset = 60.0
        bench.coordinator.wake()
        view = await bench.until(name)
    assert view.state is TaskState.DELIVERED
    assert [attempt.ending for attempt in view.attempts] == ["infra_failed", "finished"]
    assert "stood still" in view.attempts[0].detail
    assert view.attempts[0].salvage  # and its work was kept


async def test_a_command_that_runs_is_a_sign_of_life(bench: Any, fixing: Any, name: str) -> None:
    """jwbron/egg#2411: sandboxes that lived were judged dead."""
    bench.pace, bench.stall = QUICK, 4.0
    bench.test_command = f"sleep 5; {bench.test_command}"
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name, seconds=40)
    assert view.state is TaskState.DELIVERED
    assert len(view.attempts) == 1


async def test_what_the_database_calls_running_and_nobody_works_on_goes_back_to_the_queue(
    bench: Any, fixing: Any, name: str
) -> None:
    """saltbo/agent-kanban#229, eltmon/overdeck#3563: in progress for ever, and the unstick tool sees nothing wrong."""
    bench.pace = QUICK
    async with bench.open():
        await bench.submit(f"{name}-1")
        await bench.until(f"{name}-1")
        await bench.store.add(*await asked(bench, name))  # nobody is woken
        assert await bench.store.queue.claim(bench.coordinator.host) is not None
        step = await bench.until_step(name, "state", **{"from": "running", "to": "queued"})
        assert "nothing worked on it" in step.data["reason"]
        assert (await bench.until(name)).state is TaskState.DELIVERED
    assert bench.broker.pulls(name) == 1


async def test_a_finish_that_nobody_heard_of_is_found_by_the_sweep(bench: Any, name: str) -> None:
    """aws-samples/sample-autonomous-cloud-coding-agents#303: a lost event left dependents blocked for ever."""
    bench.pace = QUICK
    async with bench.open():
        await bench.submit(f"{name}-a")
        await bench.until(f"{name}-a")
        await bench.submit(f"{name}-b")
        await bench.until(f"{name}-b")
        with sqlite3.connect(bench.folder / "swarm.db") as database:
            database.execute("INSERT INTO needs VALUES (?, ?)", (f"{name}-b", f"{name}-a"))
            database.execute("UPDATE tasks SET state = 'queued', waiting = 1 WHERE id = ?", (f"{name}-b",))
        assert (await bench.until(f"{name}-b")).state is TaskState.DELIVERED


async def test_a_broker_that_is_away_is_waited_for_across_a_restart(bench: Any, own_broker: Any, name: str) -> None:
    """aws-samples/sample-autonomous-cloud-coding-agents#802: delivered is only what the forge shows."""
    own_broker.start()
    bench.broker, bench.delivery, bench.workers = own_broker, 600.0, 1
    bench.test_command = f"sleep 1; {bench.test_command}"
    async with bench.open():
        await bench.submit(name)
        await bench.until_step(name, "sealed")
        await asyncio.to_thread(own_broker.stop)
        await bench.until_step(name, "fault", seconds=40)
        await asyncio.sleep(0.2)
        assert await bench.store.state(name) is TaskState.DELIVERING
    async with bench.open():
        await asyncio.sleep(0.5)
        assert await bench.store.state(name) is TaskState.DELIVERING
        await asyncio.to_thread(own_broker.start)
        view = await bench.until(name, seconds=60)
    assert view.state is TaskState.DELIVERED
    assert len(view.attempts) == 1
    assert own_broker.pulls(name) == 1


async def test_a_run_of_the_engine_without_an_attempt_is_ended_at_the_next_start(
    bench: Any, fixing: Any, name: str
) -> None:
    """bborn/taskyou PR#552, multica#4336: after a restart the task shows as running, and nothing runs."""
    bench.strategies["auto"] = fixing(gate=asyncio.Event())
    async with bench.open():
        await bench.submit(name)
        await bench.until_step(name, "salvage")
    await cancelled(bench, name)
    async with bench.open():
        bench.strategies["auto"].gate.set()
        await bench.submit(f"{name}-2")
        await bench.until(f"{name}-2")
        assert await bench.engine.runs() == ()
        assert await bench.store.state(name) is TaskState.CANCELLED


async def asked(bench: Any, name: str) -> tuple[TaskRequest, Plan]:
    grant = await asyncio.to_thread(bench.broker.grant, name)
    right = {"capability": grant.capability, "base_commit": grant.base_commit}
    request = TaskRequest(repository="demo", instructions="make clamp right", task=name, **right)
    return request, Plan(budget=Budget(), tier="small", strategy="auto")


async def cancelled(bench: Any, name: str) -> None:
    """A task that is over in the database, behind the engine's back."""
    with sqlite3.connect(bench.folder / "swarm.db") as database:
        database.execute("UPDATE attempts SET ended = 1, ending = 'cancelled' WHERE task = ?", (name,))
        database.execute("UPDATE tasks SET state = 'cancelled' WHERE id = ?", (name,))


async def test_the_daemon_ends_where_another_one_has_its_name(bench: Any, name: str) -> None:
    bench.pace = QUICK
    with pytest.raises(ExceptionGroup) as told:  # noqa: PT012 - the error arrives where the bench is closed
        async with bench.open():
            await bench.submit(name)
            await bench.until(name)
            with sqlite3.connect(bench.folder / "swarm.db") as database:
                database.execute("UPDATE hosts SET life = 'another'")
            await asyncio.sleep(1)
    assert told.group_contains(DaemonError, match="another daemon")
