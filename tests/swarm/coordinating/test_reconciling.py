"""What lies beside the database is set right with it, and let go of once the database has its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swarm.coordinating.reconciling import REMEMBERED, forget_old_runs
from swarm.types import TaskState

pytestmark = pytest.mark.slow


async def kept(bench: Any) -> set[str]:
    return {run.name for run in await bench.engine.runs("waiting", "running", "done", "failed", "cancelled")}


async def test_the_engine_forgets_a_run_days_after_its_attempt_ended_and_none_that_is_open(
    bench: Any, fixing: Any, name: str
) -> None:
    async with bench.open():
        await bench.submit(name)
        await bench.until(name, TaskState.DELIVERED)
        bench.strategies["auto"] = fixing(gate=asyncio.Event())
        await bench.submit(f"{name}-2")
        await bench.until_step(f"{name}-2", "phase_started", phase="work")
        (over,) = (await bench.store.view(name)).attempts
        (open_one,) = (await bench.store.view(f"{name}-2")).attempts
        bench.offset = REMEMBERED - 60
        assert await forget_old_runs(bench.store, bench.engine) == 0
        assert await kept(bench) == {over.id, open_one.id}
        bench.offset = REMEMBERED + 60
        assert await forget_old_runs(bench.store, bench.engine) == 1
        assert await kept(bench) == {open_one.id}


async def test_a_run_that_ended_and_whose_end_is_not_written_down_is_kept(bench: Any, name: str) -> None:
    async with bench.open():
        await bench.submit(name)
        await bench.until(name, TaskState.DELIVERED)
        assert (await bench.engine.run("unknown")).how == "cancelled"  # nobody claimed it, so its flow ends at once
        bench.offset = 2 * REMEMBERED
        await forget_old_runs(bench.store, bench.engine)
        assert await kept(bench) == {"unknown"}


async def test_the_run_of_an_attempt_that_ended_while_nobody_had_it_is_ended_too_while_the_daemon_goes_on(
    bench: Any, fixing: Any, name: str
) -> None:
    bench.strategies["auto"] = fixing(gate=asyncio.Event())
    async with bench.open() as coordinator:
        await bench.submit(name)
        await bench.until_step(name, "phase_started", phase="work")
        await coordinator.pause(name)
        await bench.until(name, TaskState.PAUSED)
        await coordinator.cancel(name)
        await bench.until(name, TaskState.CANCELLED)
        assert [run.state for run in await bench.engine.runs()] == ["running"]
        bench.offset = REMEMBERED + 60
        await coordinator._forget_runs()
        assert await kept(bench) == set()
