"""Forks through the door: made once, refused in words where their id is taken, and named after whoever asked."""

from __future__ import annotations

from typing import Any

import pytest

from swarm.errors import TaskError
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Kept
from swarm.types import ForkRequest
from tests.swarm.api.conftest import House

WANTED = ForkRequest(task="fork", capability="d" * 20, instructions="try it otherwise", title="Another way")


async def worked(house: House, name: str, **more: Any) -> str:
    """A task whose attempt has saved its work; the attempt."""
    await house.task(name, **more)
    claim = await house.store.queue.claim(HostFacts("here", slots=9))
    assert claim is not None
    await house.store.salvaged(claim, Kept(f"refs/salvage/{claim.attempt.id}", "2" * 40, "box"))
    return claim.attempt.id


async def test_a_fork_is_queued_with_its_own_capability_and_told_what_was_said(house: House) -> None:
    attempt = await worked(house, "one")
    async with house.client() as client:
        view = await client.fork("one", WANTED)
        assert (view.task.id, view.state.value) == ("fork", "queued")
        assert view.task.request.title == "Another way"
        assert view.task.request.instructions == "fix it"
        assert [said.text for said in await client.messages("fork")] == ["try it otherwise"]
    assert (await house.store.task("fork")).request.capability == WANTED.capability
    line = next(step for step in await house.store.steps("fork") if step.kind == "attempt")
    assert line.data["continues"] == attempt


async def test_the_same_fork_said_twice_is_made_once(house: House) -> None:
    await worked(house, "one")
    async with house.open():
        body = WANTED.model_dump(mode="json")
        answers = [await house.raw("POST", "/v1/tasks/one/fork", json=body) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 200]
        assert answers[0].json()["task"]["id"] == answers[1].json()["task"]["id"]
        said = await house.raw("GET", "/v1/tasks/fork/messages")
        assert said.text.count("try it otherwise") == 1


async def test_what_cannot_be_forked_is_refused_in_words(house: House) -> None:
    await worked(house, "one")
    await worked(house, "two")
    await house.task("new")
    async with house.client() as client:
        await client.fork("one", WANTED)
        with pytest.raises(TaskError, match="there already"):
            await client.fork("two", WANTED)
        with pytest.raises(TaskError, match="left no work"):
            await client.fork("new", WANTED.model_copy(update={"task": "other"}))
