"""Pause, resume, fork, message and retry, at every moment: the same attempt goes on, and nothing is paid for twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swarm.errors import IllegalMoveError, TaskError
from swarm.types import Conclusion, ForkRequest, TaskState

pytestmark = pytest.mark.slow


async def begun(bench: Any, fixing: Any, name: str) -> Any:
    """A task whose agent has saved its work and waits; what opens its gate."""
    strategy = bench.strategies["auto"] = fixing(gate=asyncio.Event())
    await bench.submit(name)
    await bench.until_step(name, "salvage")
    return strategy


class TestPause:
    async def test_a_running_task_pauses_with_its_work_and_goes_on_with_the_same_attempt(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        async with bench.open() as coordinator:
            strategy = await begun(bench, fixing, name)
            view = await coordinator.pause(name)
            assert view.state is TaskState.PAUSED
            assert coordinator.running == ()
            strategy.gate.set()
            assert (await coordinator.resume(name)).state in {TaskState.QUEUED, TaskState.RUNNING}
            view = await bench.until(name)
        assert view.state is TaskState.DELIVERED
        assert len(view.attempts) == 1
        assert b"min(x, high)" in strategy.found[1]
        assert [step.kind for step in strategy.saw[1].past if step.kind == "model_call"] == ["model_call"]

    async def test_asked_twice_it_is_the_same_as_once(self, bench: Any, fixing: Any, name: str) -> None:
        async with bench.open() as coordinator:
            await begun(bench, fixing, name)
            await asyncio.gather(coordinator.pause(name), coordinator.pause(name))
            assert (await coordinator.pause(name)).state is TaskState.PAUSED

    async def test_a_waiting_task_pauses_at_once_and_is_claimed_only_after_resume(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        bench.workers = 1
        async with bench.open() as coordinator:
            strategy = await begun(bench, fixing, f"{name}-1")
            await bench.submit(f"{name}-2")
            assert (await coordinator.pause(f"{name}-2")).state is TaskState.PAUSED
            strategy.gate.set()
            await bench.until(f"{name}-1")
            await asyncio.sleep(0.2)
            assert (await bench.store.view(f"{name}-2")).attempts == ()
            await coordinator.resume(f"{name}-2")
            assert (await bench.until(f"{name}-2")).state is TaskState.DELIVERED

    async def test_a_pause_outlives_the_daemon(self, bench: Any, fixing: Any, name: str) -> None:
        async with bench.open() as coordinator:
            await begun(bench, fixing, name)
            await coordinator.pause(name)
        bench.strategies["auto"].gate.set()
        async with bench.open() as coordinator:
            await asyncio.sleep(0.3)
            assert await bench.store.state(name) is TaskState.PAUSED
            await coordinator.resume(name)
            assert (await bench.until(name)).state is TaskState.DELIVERED
        assert bench.broker.pulls(name) == 1

    async def test_a_paused_task_can_be_cancelled(self, bench: Any, fixing: Any, name: str) -> None:
        async with bench.open() as coordinator:
            await begun(bench, fixing, name)
            await coordinator.pause(name)
            view = await coordinator.cancel(name)
            assert view.state is TaskState.CANCELLED
            assert view.attempts[-1].ended is not None
            assert view.attempts[-1].salvage

    async def test_what_is_over_cannot_be_paused(self, bench: Any, name: str) -> None:
        async with bench.open() as coordinator:
            await bench.submit(name)
            await bench.until(name)
            with pytest.raises(IllegalMoveError, match="over"):
                await coordinator.pause(name)
            with pytest.raises(IllegalMoveError, match="nothing to go on"):
                await coordinator.resume(name)

    async def test_resumed_before_it_had_stopped_it_just_goes_on(self, bench: Any, fixing: Any, name: str) -> None:
        async with bench.open() as coordinator:
            strategy = await begun(bench, fixing, name)
            await bench.store.verbs.pause(name)
            assert (await coordinator.resume(name)).state is TaskState.RUNNING
            strategy.gate.set()
            assert (await bench.until(name)).state is TaskState.DELIVERED


class TestResume:
    async def test_a_cancelled_task_goes_on_where_it_stood_and_is_told_why(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        async with bench.open() as coordinator:
            strategy = await begun(bench, fixing, name)
            await coordinator.cancel(name)
            strategy.gate.set()
            await coordinator.resume(name)
            view = await bench.until(name)
            said = await bench.store.messages.of(name)
        assert view.state is TaskState.DELIVERED
        assert [attempt.ending for attempt in view.attempts] == ["cancelled", "finished"]
        assert b"min(x, high)" in strategy.found[1]
        assert "model_call" in [step.kind for step in strategy.saw[1].past]
        assert "was ended" in said[0].text


class TestFork:
    async def test_a_fork_begins_with_the_work_and_the_memory_and_has_a_pull_request_of_its_own(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        async with bench.open() as coordinator:
            await begun(bench, fixing, name)
            await coordinator.pause(name)
            grant = await asyncio.to_thread(bench.broker.grant, f"{name}-f")
            wanted = ForkRequest(task=f"{name}-f", capability=grant.capability, instructions="try it otherwise")
            bench.strategies["auto"] = other = fixing()
            view, new = await coordinator.fork(name, wanted, "ann")
            assert new
            again, new = await coordinator.fork(name, wanted, "ann")
            assert not new
            assert again.task.id == view.task.id
            view = await bench.until(f"{name}-f")
            said = await bench.store.messages.of(f"{name}-f")
            assert await bench.store.state(name) is TaskState.PAUSED
        assert view.state is TaskState.DELIVERED
        assert bench.broker.pulls(f"{name}-f") == 1
        assert bench.broker.pulls(name) == 0
        assert b"min(x, high)" in other.found[0]
        assert "model_call" in [step.kind for step in other.saw[0].past]
        assert [one.text for one in said] == ["try it otherwise"]

    async def test_a_fork_of_a_running_task_has_the_work_and_the_memory_of_one_moment(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        bench.workers = 1
        async with bench.open() as coordinator:
            parent = await begun(bench, fixing, name)
            grant = await asyncio.to_thread(bench.broker.grant, f"{name}-f")
            await coordinator.fork(name, ForkRequest(task=f"{name}-f", capability=grant.capability))
            work = parent.saw[0]
            await work.record("edit", {"path": "clamp.py", "changed": True})
            await work.sandbox.write("clamp.py", b"# later\n")
            await work.save()
            bench.strategies["auto"] = other = fixing()
            parent.gate.set()
            await bench.until(f"{name}-f")
        assert b"min(x, high)" in other.found[0]
        assert "edit" not in [step.kind for step in other.saw[0].past]

    async def test_a_fork_that_is_refused_takes_no_other_ones_work_away(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        bench.workers = 1
        async with bench.open() as coordinator:
            for which in ("a", "b"):
                gave_up = Conclusion(ending="gave_up", summary="no idea")
                bench.strategies["auto"] = fixing(content=f"# {which}\n", conclusion=gave_up)
                await bench.submit(f"{name}-{which}", tier="large")
                await bench.until(f"{name}-{which}")
            blocking = await begun(bench, fixing, name)
            grant = await asyncio.to_thread(bench.broker.grant, f"{name}-f")
            wanted = ForkRequest(task=f"{name}-f", capability=grant.capability)
            await coordinator.fork(f"{name}-a", wanted)
            with pytest.raises(TaskError, match="there already"):
                await coordinator.fork(f"{name}-b", wanted)
            bench.strategies["auto"] = other = fixing()
            blocking.gate.set()
            await bench.until(f"{name}-f")
        assert other.found[0] == b"# a\n"

    async def test_what_left_no_work_cannot_be_forked(self, bench: Any, name: str) -> None:
        async with bench.open() as coordinator:
            await bench.submit(name)
            await coordinator.pause(name)
            with pytest.raises(TaskError, match="no work"):
                await coordinator.fork(name, ForkRequest(task=f"{name}-f", capability="c"))


class TestMessage:
    async def test_it_reaches_the_inbox_and_says_when(self, bench: Any, fixing: Any, name: str) -> None:
        async with bench.open() as coordinator:
            strategy = await begun(bench, fixing, name)
            first = await coordinator.message(name, " mind the tests ", "ann", key="k")
            assert (await coordinator.message(name, "mind the tests", "ann", key="k")).seq == first.seq
            assert first.when
            heard = await strategy.saw[0].inbox(0)
            assert [one.text for one in heard] == ["mind the tests"]
            assert await strategy.saw[0].inbox(first.seq) == ()
            with pytest.raises(TaskError, match="characters"):
                await coordinator.message(name, " ", "ann")
            strategy.gate.set()
            await bench.until(name)
            assert "over" in (await coordinator.message(name, "too late", "ann")).when


class TestRetry:
    async def test_another_capability_takes_the_place_of_one_that_is_used_up(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        async with bench.open() as coordinator:
            bench.strategies["auto"] = fixing(conclusion=Conclusion(ending="gave_up", summary="no idea"))
            await bench.submit(name, capability="none-that-a-broker-gives", tier="large")
            await bench.until(name)
            grant = await asyncio.to_thread(bench.broker.grant, name)
            bench.strategies["auto"] = fixing()
            await coordinator.retry(name, grant.capability)
            assert (await bench.until(name)).state is TaskState.DELIVERED
