"""A task that needs another, through a real broker: its right is drawn when it starts, on the base as it is then."""

from __future__ import annotations

import asyncio

import pytest

from broker.client import Client
from broker.wire import GrantRequest
from swarm.types import TaskState

pytestmark = pytest.mark.slow


async def test_it_starts_after_the_other_on_the_base_of_then_and_its_agent_is_told(bench, name, fixing) -> None:
    async with bench.open():
        gate = asyncio.Event()
        bench.strategies["auto"] = first = fixing(gate=gate)
        await bench.submit(name)
        await bench.until(name, TaskState.RUNNING)
        bench.strategies["second"] = second = fixing()
        task = f"{name}-b"

        def standing() -> str:
            with Client(bench.broker.people) as client:
                return client.grant(GrantRequest(repository="demo", task=task, standing=True)).capability

        capability = await asyncio.to_thread(standing)
        await bench.submit(task, capability=capability, needs=(name,), standing=True, strategy="second")
        assert (await bench.until(task, TaskState.QUEUED)).waits_for.startswith(f"waits for task {name}")
        gate.set()
        await bench.until(name, TaskState.DELIVERED)
        view = await bench.until(task)
        assert view.state is TaskState.DELIVERED, view.reason
        (work,) = second.saw
        assert f"task {name} in demo" in work.task.request.instructions
        assert "the upper bound was wrong" in work.task.request.instructions
        assert len(first.saw) == 1
        held = await bench.store.task(task)
        assert (held.request.standing, held.request.capability != capability) == (False, True)
        assert held.request.base_commit


async def test_a_right_that_was_taken_back_leaves_the_task_to_a_person_and_spends_nothing(bench, name) -> None:
    async with bench.open():

        def standing() -> str:
            with Client(bench.broker.people) as client:
                given = client.grant(GrantRequest(repository="demo", task=name, standing=True))
                client.revoke(given.id)
                return given.capability

        capability = await asyncio.to_thread(standing)
        await bench.submit(name, capability=capability, standing=True)
        view = await bench.until(name)
        assert view.state is TaskState.NEEDS_PERSON
        assert "took the capability back" in view.reason
        assert (view.spent.steps, view.spent.tokens) == (0, 0)
