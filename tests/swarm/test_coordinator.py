"""Tasks from the queue to their end, with a real broker process, a real engine and a sandbox that really runs tests."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from pool.errors import NoEndpointError, PermanentError
from pool.testing import ScriptedPool
from sandbox.errors import SandboxLostError
from sandbox.trees.keeping import Keeping
from sandbox.types import Command
from swarm.agent import Agent
from swarm.budgets.scopes import DayBudget, DayBudgets
from swarm.errors import IllegalMoveError
from swarm.types import Budget, Conclusion, Spent, TaskState
from swarm.work import Work

pytestmark = pytest.mark.slow


async def test_a_task_becomes_one_pull_request_with_evidence(bench: Any, name: str) -> None:
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
        moves = [step.at for step in await bench.store.steps(name) if step.kind == "state"]
    assert view.state is TaskState.DELIVERED
    assert view.branch == f"swarm/{name}"
    assert view.report is not None
    assert view.report.fixed
    assert not view.report.broken
    assert bench.broker.pulls(name) == 1
    assert {"queued", "prepare", "checks", "broker", "other"} <= set(view.timings)
    assert sum(view.timings.values()) == pytest.approx(moves[-1] - moves[0], abs=0.001)
    assert view.spent.tokens == 10
    assert view.spent.attempts == 1


async def test_the_journal_tells_the_whole_story_in_order(bench: Any, name: str) -> None:
    async with bench.open():
        await bench.submit(name)
        await bench.until(name)
        steps = await bench.store.steps(name)
    assert [step.seq for step in steps] == list(range(1, len(steps) + 1))
    kinds = [step.kind for step in steps if not step.kind.startswith("phase_")]
    worked = ["state", "attempt", "state", "known", "model_call", "salvage", "salvage", "sealed", "report"]
    assert kinds == [*worked, "state", "receipt", "state"]
    assert [step.data["to"] for step in steps if step.kind == "state"] == [
        "queued",
        "running",
        "delivering",
        "delivered",
    ]


async def test_a_change_that_fails_the_tests_climbs_to_the_next_tier_and_then_ends(
    bench: Any, fixing: Any, name: str
) -> None:
    bench.strategies["auto"] = fixing(content="def clamp(x, low, high):\n    return 0\n")
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
    assert view.state is TaskState.CHECKS_FAILED
    assert [attempt.tier for attempt in view.attempts] == ["small", "large"]
    assert bench.broker.pulls(name) == 0
    assert all(attempt.salvage for attempt in view.attempts)
    assert bench.pool.ended == [attempt.id for attempt in view.attempts]  # the pool keeps no place for them


async def test_a_tier_that_the_person_named_is_not_left(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = fixing(conclusion=Conclusion(ending="gave_up", summary="too hard"))
    async with bench.open():
        await bench.submit(name, tier="small")
        view = await bench.until(name)
    assert view.state is TaskState.GAVE_UP
    assert len(view.attempts) == 1
    assert view.reason == "too hard"


async def test_nothing_changed_ends_as_no_change(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = fixing(
        path="clamp.py", content="def clamp(x, low, high):\n    return max(low, min(x, low))\n"
    )
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
    assert view.state is TaskState.NO_CHANGE
    assert bench.broker.pulls(name) == 0


async def test_no_tests_to_vouch_for_a_change_asks_a_person(bench: Any, name: str) -> None:
    bench.test_command = None
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
    assert view.state is TaskState.NEEDS_PERSON
    assert "no test command" in view.reason


async def test_the_budget_counts_over_all_attempts_and_a_retry_grants_it_once_more(
    bench: Any, fixing: Any, name: str
) -> None:
    bench.strategies["auto"] = fixing(tokens=60)
    async with bench.open():
        await bench.submit(name, budget=Budget(tokens=50, attempts=3))
        view = await bench.until(name)
        assert view.state is TaskState.LIMIT_HIT
        assert view.spent.tokens == 60
        assert "50 tokens" in view.reason
        assert (view.failure, view.attempts[-1].failure) == ("agent", "agent")
        bench.strategies["auto"] = fixing(tokens=30)
        await bench.coordinator.retry(name)
        view = await bench.until(name)
    assert view.state is TaskState.DELIVERED
    assert view.spent.tokens == 90
    assert view.task.budget.tokens == 100


class Endless:
    """Writes before it can be broken off, however slow the machine is, and never ends by itself."""

    async def work(self, work: Work) -> Conclusion:
        writing = asyncio.create_task(work.sandbox.write("clamp.py", b"def clamp(x, low, high):\n    return x\n"))
        try:
            await asyncio.shield(writing)
        finally:
            await writing
        await asyncio.Event().wait()
        raise AssertionError


async def test_the_wall_clock_ends_an_attempt_with_its_work_kept(bench: Any, name: str) -> None:
    bench.strategies["auto"] = Endless()
    bench.ticking = lambda: 0.0  # so that nothing is spent before the work begins
    async with bench.open():
        await bench.submit(name, budget=Budget(wall=0.2))
        view = await bench.until(name)
        assert view.state is TaskState.LIMIT_HIT
        assert "wall clock" in view.reason
        kept = await bench.workspace.sealed_at(view.attempts[-1].salvage)
    assert kept is not None
    assert kept.files == ("clamp.py",)


async def test_silence_ends_an_attempt_that_may_be_idle_for_so_long_alone(bench: Any, name: str) -> None:
    bench.strategies["auto"] = Endless()
    async with bench.open():
        await bench.submit(name, budget=Budget(idle=0.5))
        view = await bench.until(name)
        assert view.state is TaskState.LIMIT_HIT
        assert "no model answered and no tool said anything" in view.reason
        kept = await bench.workspace.sealed_at(view.attempts[-1].salvage)
    assert kept is not None
    assert kept.files == ("clamp.py",)


class Hanging(ScriptedPool):
    """A pool whose server never answers."""

    async def chat(self, request: Any) -> Any:
        self.requests.append(request)
        await asyncio.Event().wait()


async def test_time_that_a_limit_took_from_a_models_call_was_spent_waiting_for_it(bench: Any, name: str) -> None:
    bench.pool = Hanging(())
    bench.strategies["auto"] = Agent()
    async with bench.open():
        await bench.submit(name, budget=Budget(idle=0.5))
        view = await bench.until(name)
        steps = await bench.store.steps(name)
        times = await bench.store.times.task(name)
    assert view.state is TaskState.LIMIT_HIT
    (told,) = [step.data for step in steps if step.data.get("text") == "a model call was broken off"]
    parts = {part.part: part.seconds for part in times.times.parts}
    assert parts["pool"] == pytest.approx(told["seconds"])
    assert parts["pool"] > 0


class Twice:
    """Two calls of a model, and a change between them."""

    async def work(self, work: Work) -> Conclusion:
        work.ledger.charge(Spent(steps=1, tokens=10))
        await work.sandbox.write("clamp.py", b"def clamp(x, low, high):\n    return x\n")
        await work.save()
        work.ledger.charge(Spent(steps=1, tokens=10))
        return Conclusion(ending="finished", title="t", summary="s")


async def test_a_spent_day_ends_what_runs_with_its_work_kept_and_holds_back_the_next(bench: Any, name: str) -> None:
    bench.strategies["auto"] = Twice()
    async with bench.open():
        bench.store.budgets.limits = DayBudgets(repository=DayBudget(tokens=9))
        await bench.submit(name)
        view = await bench.until(name)
        await bench.submit(f"{name}-b")
        after = await bench.store.view(f"{name}-b")
        kept = await bench.workspace.sealed_at(view.attempts[-1].salvage)
    assert (view.state, view.failure) == (TaskState.LIMIT_HIT, "policy")
    assert "the day's budget of repository demo" in view.reason
    assert kept is not None
    assert kept.files == ("clamp.py",)
    assert after.state is TaskState.QUEUED
    assert "the day's budget of repository demo is spent" in after.waits_for


async def test_a_passing_fault_is_tried_again_after_a_wait_with_its_work_kept(
    bench: Any, fixing: Any, name: str
) -> None:
    bench.strategies["auto"] = fixing(error=NoEndpointError("all endpoints of tier small are down"))
    async with bench.open():
        await bench.submit(name)
        await bench.until_step(name, "state", **{"from": "running", "to": "queued"})
        bench.strategies["auto"] = fixing()
        await asyncio.sleep(0.3)
        assert (await bench.store.state(name)) is TaskState.QUEUED
        bench.offset = 10.0
        bench.coordinator._woken.set()
        view = await bench.until(name)
    assert view.state is TaskState.DELIVERED
    assert [attempt.ending for attempt in view.attempts] == ["infra_failed", "finished"]
    assert [attempt.tier for attempt in view.attempts] == ["small", "small"]
    assert view.attempts[0].salvage


async def test_a_lasting_fault_is_not_tried_again(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = fixing(error=PermanentError("no such model"))
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
    assert view.state is TaskState.INFRA_FAILED
    assert "no such model" in view.reason
    assert len(view.attempts) == 1


async def test_passing_faults_share_one_count_of_attempts(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = fixing(error=SandboxLostError("killed from outside"))
    async with bench.open():
        await bench.submit(name, budget=Budget(attempts=2))
        await bench.until_step(name, "state", **{"from": "running", "to": "queued"})
        bench.offset = 10.0
        bench.coordinator._woken.set()
        view = await bench.until(name)
    assert view.state is TaskState.INFRA_FAILED
    assert len(view.attempts) == 2


async def test_a_sandbox_that_goes_away_in_the_middle_leaves_what_was_saved_of_it(bench: Any, name: str) -> None:
    class Losing:
        """Saves a change, loses the sandbox after another one, and meets a whole one the second time."""

        async def work(self, work: Work) -> Conclusion:
            await work.sandbox.write("kept.py", b"kept = 1\n")
            await work.save()
            if work.attempt.startswith(f"{name}-1-"):
                await work.sandbox.write("lost.py", b"lost = 1\n")
                await bench.backend.opened[-1].close()  # as by an engine that restarts
            await work.sandbox.run(Command(argv=("true",)))
            return Conclusion(ending="no_change")

    bench.strategies["auto"] = Losing()
    async with bench.open():
        await bench.submit(name, budget=Budget(attempts=2))
        await bench.until_step(name, "state", **{"from": "running", "to": "queued"})
        bench.offset = 10.0
        bench.coordinator._woken.set()
        view = await bench.until(name)
        kept = await bench.workspace.sealed_at(view.attempts[0].salvage)
    assert [attempt.ending for attempt in view.attempts] == ["infra_failed", "no_change"]
    assert kept.files == ("kept.py",)


async def test_a_bug_in_a_strategy_ends_the_task_in_a_state_and_not_the_daemon(
    bench: Any, fixing: Any, name: str
) -> None:
    bench.strategies["auto"] = fixing(error=ZeroDivisionError("oops"))
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
        assert view.state is TaskState.INFRA_FAILED
        assert "ZeroDivisionError" in view.reason
        bench.strategies["auto"] = fixing()
        await bench.coordinator.retry(name)
        assert (await bench.until(name)).state is TaskState.DELIVERED


async def test_a_capability_that_the_broker_refuses_asks_a_person(bench: Any, name: str) -> None:
    async with bench.open():
        await bench.submit(name, capability="forged")
        view = await bench.until(name)
    assert view.state is TaskState.NEEDS_PERSON
    assert len(view.attempts) == 1


async def test_policy_refuses_and_the_work_is_kept(bench: Any, fixing: Any, name: str) -> None:
    class Both(fixing):
        async def work(self, work: Any) -> Any:
            await work.sandbox.write("secret/key.txt", b"x\n")
            return await super().work(work)

    bench.strategies["auto"] = Both()
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
        kept = await bench.workspace.sealed_at(view.attempts[-1].salvage)
    assert view.state is TaskState.REFUSED
    assert "secret/key.txt" in view.reason or "protected" in view.reason
    assert kept is not None
    assert "secret/key.txt" in kept.files
    assert bench.broker.pulls(name) == 0


async def test_workers_bound_how_many_run_at_once(bench: Any, fixing: Any) -> None:
    gate = asyncio.Event()
    bench.strategies["auto"] = fixing(gate=gate)
    names = [f"w{bench.folder.stat().st_ino}-{number}" for number in range(4)]
    async with bench.open():
        for each in names:
            await bench.submit(each)
        await bench.until_step(names[0], "salvage")
        await bench.until_step(names[1], "salvage")
        counts = await bench.store.counts()
        assert counts[TaskState.RUNNING] == 2
        assert counts[TaskState.QUEUED] == 2
        assert set(bench.coordinator.running) == set(names[:2])
        gate.set()
        for each in names:
            assert (await bench.until(each)).state is TaskState.DELIVERED


class TestCancel:
    async def test_before_it_is_claimed(self, bench: Any, fixing: Any, name: str) -> None:
        gate = asyncio.Event()
        bench.workers = 1
        bench.strategies["auto"] = fixing(gate=gate)
        async with bench.open():
            await bench.submit(f"{name}-1")
            await bench.submit(f"{name}-2")
            view = await bench.coordinator.cancel(f"{name}-2")
            assert view.state is TaskState.CANCELLED
            gate.set()
            assert (await bench.until(f"{name}-1")).state is TaskState.DELIVERED
        assert view.attempts == ()

    async def test_while_the_agent_works(self, bench: Any, fixing: Any, name: str) -> None:
        bench.strategies["auto"] = fixing(gate=asyncio.Event())
        async with bench.open():
            await bench.submit(name)
            await bench.until_step(name, "salvage")
            view = await bench.coordinator.cancel(name)
            assert view.state is TaskState.CANCELLED
            kept = await bench.workspace.sealed_at(view.attempts[-1].salvage)
            assert not bench.backend.opened[-1].folder.exists()
        assert kept is not None
        assert kept.changed
        assert bench.broker.pulls(name) == 0

    async def test_while_tests_run(self, bench: Any, name: str) -> None:
        bench.test_command = "sleep 60"
        async with bench.open():
            await bench.submit(name)
            await bench.until_step(name, "phase_started", phase="check")
            view = await bench.coordinator.cancel(name)
        assert view.state is TaskState.CANCELLED
        assert not any(sandbox.folder.exists() for sandbox in bench.backend.opened)

    async def test_while_the_base_is_fetched(self, bench: Any, own_broker: Any, name: str) -> None:
        bench.broker, bench.patience = own_broker, 30.0
        async with bench.open():
            await bench.submit(name, capability="never asked")
            await bench.until_step(name, "phase_started", phase="prepare")
            view = await bench.coordinator.cancel(name)
        assert view.state is TaskState.CANCELLED

    async def test_while_it_is_delivered_is_too_late(self, bench: Any, own_broker: Any, name: str) -> None:
        bench.broker, bench.patience = own_broker, 1.0
        own_broker.start()
        async with bench.open():
            bench.test_command = f"sleep 0.5; {bench.test_command}"
            await bench.submit(name)
            await bench.until_step(name, "phase_started", phase="check")
            own_broker.stop()
            await bench.until(name, TaskState.DELIVERING)
            with pytest.raises(IllegalMoveError, match="too late"):
                await bench.coordinator.cancel(name)
            view = await bench.until(name)
        assert view.state is TaskState.NEEDS_PERSON

    async def test_of_a_final_task_changes_nothing(self, bench: Any, name: str) -> None:
        async with bench.open():
            await bench.submit(name)
            await bench.until(name)
            assert (await bench.coordinator.cancel(name)).state is TaskState.DELIVERED

    async def test_asked_for_just_before_the_daemon_died_is_honoured_by_the_next(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        bench.strategies["auto"] = fixing(gate=asyncio.Event())
        async with bench.open():
            await bench.submit(name)
            await bench.until_step(name, "salvage")
            await bench.store.verbs.cancel(name)
        async with bench.open():
            view = await bench.until(name)
            assert view.state is TaskState.CANCELLED
        assert len(bench.strategies["auto"].saw) == 1


async def parked(bench: Any, fixing: Any, name: str) -> Any:
    """The strategy of an attempt that was parked in the middle of its work, some of it saved."""
    strategy = bench.strategies["auto"] = fixing(gate=asyncio.Event())
    async with bench.open():
        await bench.submit(name)
        await bench.until_step(name, "salvage")
    strategy.gate = None
    return strategy


class TestRestart:
    async def test_a_parked_attempt_goes_on_from_its_salvage_with_its_past(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        strategy = await parked(bench, fixing, name)
        async with bench.open():
            view = await bench.until(name)
            kinds = await bench.kinds(name)
        assert view.state is TaskState.DELIVERED
        assert len(view.attempts) == 1
        assert b"min(x, low)" in strategy.found[0]
        assert b"min(x, high)" in strategy.found[1]
        assert strategy.saw[0].past == ()
        assert "model_call" in [step.kind for step in strategy.saw[1].past]
        assert kinds.count("note") == 1
        assert view.spent.tokens == 20
        assert bench.broker.pulls(name) == 1

    async def test_work_that_is_gone_from_the_disk_ends_the_attempt_and_not_its_truth(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        """It went on from the base, with a memory of changes that were not there any more."""
        strategy = await parked(bench, fixing, name)
        keeping = Keeping(bench.workspace._git.path)
        (kept,) = await keeping.kept("refs/salvage/")
        await keeping.drop(kept)
        async with bench.open():
            view = await bench.until(name)
        assert view.state is TaskState.INFRA_FAILED
        assert f"the work under {kept.ref} is gone" in view.reason
        assert f"swarm retry {name}" in view.reason
        assert len(strategy.saw) == 1

    async def test_a_drain_lets_a_running_attempt_finish(self, bench: Any, fixing: Any, name: str) -> None:
        gate = asyncio.Event()
        bench.strategies["auto"] = fixing(gate=gate)
        async with bench.open():
            await bench.submit(name)
            await bench.until_step(name, "salvage")
            draining = asyncio.create_task(bench.coordinator.drain(20))
            await asyncio.sleep(0.05)
            gate.set()
            await draining
            assert (await bench.store.state(name)) is TaskState.DELIVERED

    async def test_a_draining_coordinator_claims_nothing_more(self, bench: Any, name: str) -> None:
        async with bench.open():
            await bench.coordinator.drain(0)
            await bench.submit(name)
            await asyncio.sleep(0.2)
            assert (await bench.store.state(name)) is TaskState.QUEUED

    async def test_finished_phases_are_not_run_again(self, bench: Any, name: str) -> None:
        bench.test_command = "sleep 60"
        async with bench.open():
            await bench.submit(name)
            await bench.until_step(name, "phase_started", phase="check")
        bench.test_command = None
        async with bench.open():
            view = await bench.until(name)
            steps = await bench.store.steps(name)
        started = [step.data["phase"] for step in steps if step.kind == "phase_started"]
        assert started == ["prepare", "work", "seal", "check", "check"]
        assert view.state is TaskState.NEEDS_PERSON

    async def test_an_ending_that_only_the_engine_had_heard_of_is_settled(self, bench: Any, name: str) -> None:
        async with bench.open():
            await bench.submit(name)
            await bench.until(name)
        database(bench, "UPDATE tasks SET state = 'delivering'", "UPDATE attempts SET ended = NULL, verdict = NULL")
        async with bench.open():
            view = await bench.until(name)
        assert view.state is TaskState.DELIVERED
        assert view.branch == f"swarm/{name}"
        assert len(bench.strategies["auto"].saw) == 1
        assert bench.broker.pulls(name) == 1

    async def test_an_engine_that_lost_its_memory_starts_over_from_the_salvage(self, bench: Any, name: str) -> None:
        async with bench.open():
            await bench.submit(name)
            await bench.until(name)
        for file in bench.folder.glob("engine.db*"):
            file.unlink()
        database(bench, "UPDATE tasks SET state = 'delivering'", "UPDATE attempts SET ended = NULL, verdict = NULL")
        async with bench.open():
            view = await bench.until(name)
        assert view.state is TaskState.DELIVERED
        assert b"min(x, high)" in bench.strategies["auto"].found[1]
        assert bench.broker.pulls(name) == 1

    async def test_the_broker_is_asked_about_a_delivery_that_nobody_remembers(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        async with bench.open():
            await bench.submit(name)
            await bench.until(name)
        for file in bench.folder.glob("engine.db*"):
            file.unlink()
        database(bench, "UPDATE tasks SET state = 'delivering'", "UPDATE attempts SET ended = NULL, verdict = NULL")
        bench.strategies["auto"] = fixing(conclusion=Conclusion(ending="gave_up", summary="no idea"))
        async with bench.open():
            view = await bench.until(name)
        assert view.state is TaskState.DELIVERED
        assert bench.broker.pulls(name) == 1


def database(bench: Any, *statements: str) -> None:
    """Do to the database what a crash at the wrong moment would have left undone."""
    with closing(sqlite3.connect(bench.folder / "swarm.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


class TestBrokerAway:
    async def test_at_delivery_the_work_is_kept_and_a_retry_only_delivers(
        self, bench: Any, own_broker: Any, name: str
    ) -> None:
        bench.broker = own_broker
        own_broker.start()
        bench.test_command = f"sleep 0.4; {bench.test_command}"
        async with bench.open():
            await bench.submit(name)
            await bench.until_step(name, "phase_started", phase="check")
            own_broker.stop()
            view = await bench.until(name)
            assert view.state is TaskState.NEEDS_PERSON
            assert "broker" in view.reason
            own_broker.start()
            await bench.coordinator.retry(name)
            view = await bench.until(name)
            steps = await bench.store.steps(name, attempt=view.attempts[-1].id)
        assert view.state is TaskState.DELIVERED
        assert [step.data["phase"] for step in steps if step.kind == "phase_started"] == ["deliver"]
        assert len(bench.strategies["auto"].saw) == 1
        assert own_broker.pulls(name) == 1

    async def test_for_a_moment_is_waited_out(self, bench: Any, own_broker: Any, name: str) -> None:
        bench.broker, bench.patience = own_broker, 20.0
        own_broker.start()
        bench.test_command = f"sleep 0.4; {bench.test_command}"
        async with bench.open():
            await bench.submit(name)
            await bench.until_step(name, "phase_started", phase="check")
            own_broker.stop()
            await bench.until(name, TaskState.DELIVERING)
            await asyncio.to_thread(own_broker.start)
            view = await bench.until(name)
        assert view.state is TaskState.DELIVERED
        assert own_broker.pulls(name) == 1

    async def test_at_the_start_is_a_passing_fault(self, bench: Any, own_broker: Any, name: str) -> None:
        bench.broker = own_broker
        async with bench.open():
            await bench.submit(name, capability="x")
            await bench.until_step(name, "state", **{"from": "running", "to": "queued"})
            view = await bench.store.view(name)
        assert "does not answer" in view.reason


async def test_a_task_that_runs_cannot_be_retried(bench: Any, fixing: Any, name: str) -> None:
    bench.strategies["auto"] = fixing(gate=asyncio.Event())
    async with bench.open():
        await bench.submit(name)
        await bench.until_step(name, "salvage")
        with pytest.raises(IllegalMoveError):
            await bench.coordinator.retry(name)


async def test_a_delivered_task_cannot_be_retried(bench: Any, name: str) -> None:
    async with bench.open():
        await bench.submit(name)
        await bench.until(name)
        with pytest.raises(IllegalMoveError):
            await bench.coordinator.retry(name)
    assert bench.broker.pulls(name) == 1
