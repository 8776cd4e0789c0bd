"""An attempt that went on from another one comes to its tree again: a fork's, and one that a person had go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pool.testing import ScriptedPool
from swarm.replay.verdict import told
from swarm.types import Budget, ForkRequest, TaskState
from tests.swarm.replay.conftest import MEND, call, finish

pytestmark = pytest.mark.slow

ONE, TWO = call("write", path="one.txt", content="1\n"), call("write", path="two.txt", content="2\n")
GAVE_UP = ["no call"] * 5
GOES_ON = [call("view", path="one.txt"), call("shell", command=MEND), call("run_tests"), finish(), finish()]


async def gave_up(bench: Any, name: str) -> Any:
    """A task whose one attempt wrote two files and gave up; its first line that a save wrote."""
    await bench.submit(name, strategy="agent", budget=Budget(attempts=1))
    await bench.until(name, TaskState.GAVE_UP)
    return await bench.until_step(name, "salvage")


async def forked(bench: Any, name: str, **more: Any) -> str:
    grant = await asyncio.to_thread(bench.broker.grant, f"{name}-f")
    wanted = ForkRequest(task=f"{name}-f", capability=grant.capability, **more)
    await bench.coordinator.fork(name, wanted, "ann")
    await bench.until(wanted.task, TaskState.DELIVERED)
    return wanted.task


async def require_same(replay: Any, recorded: Any, objects: bytes) -> None:
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.first, verdict.lines) == (True, None, verdict.of), "\n".join(told(verdict))
    assert verdict.replayed == recorded.sealed


async def test_a_fork_replays_on_the_work_of_the_other_task(bench: Any, name: str, record: Any, replay: Any) -> None:
    bench.pool = ScriptedPool([ONE, TWO, *GAVE_UP, *GOES_ON])
    async with bench.open():
        await gave_up(bench, name)
        fork = await forked(bench, name, instructions="mind the upper bound")
        recorded, objects = await record(fork)
    assert {step.task for step in recorded.past} == {name}
    assert "message" in [step.kind for step in recorded.steps]
    await require_same(replay, recorded, objects)


async def test_a_fork_at_a_step_replays_on_the_work_of_that_time(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    bench.pool = ScriptedPool([ONE, TWO, *GAVE_UP, *GOES_ON])
    async with bench.open():
        first = await gave_up(bench, name)
        fork = await forked(bench, name, step=first.seq)
        recorded, objects = await record(fork)
        paths = await bench.workspace.paths(recorded.sealed)
    assert max(step.seq for step in recorded.past) == first.seq
    assert b"one.txt" in paths
    assert b"two.txt" not in paths
    await require_same(replay, recorded, objects)


@pytest.mark.parametrize("named", [True, False])
async def test_a_task_that_was_resumed_from_an_earlier_attempt_replays(
    bench: Any, name: str, record: Any, replay: Any, named: bool
) -> None:
    bench.pool = ScriptedPool([ONE, TWO, *GAVE_UP, *GOES_ON])
    async with bench.open() as coordinator:
        first = await gave_up(bench, name)
        await coordinator.resume(name, first.attempt if named else None)
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    assert {step.attempt for step in recorded.past} == {first.attempt}
    assert recorded.attempt.id != first.attempt
    await require_same(replay, recorded, objects)
