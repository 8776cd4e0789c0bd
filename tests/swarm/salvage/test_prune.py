"""Clearing away asks the forge, tells before it does, and leaves alone what has changed since."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from swarm.config import SalvageConfig
from swarm.coordinating.reconciling import find_salvage
from swarm.errors import BrokerError
from swarm.salvage.prune import Pruner
from swarm.salvage.shelf import Shelf
from swarm.salvage.upkeep import Upkeep
from swarm.types import Conclusion, ForkRequest, TaskState
from tests.swarm.salvage.conftest import git

pytestmark = pytest.mark.slow


def _asked(*answers: str | Exception | None) -> Any:
    """A broker that gives these answers in turn, the last of them for ever."""
    left = list(answers)

    async def merged(capability: str) -> str | None:
        assert capability
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return merged


async def _commit(bench: Any, name: str) -> str:
    commit: str = (await bench.store.view(name)).commit
    return commit


async def _delivered(bench: Any, name: str) -> Shelf:
    await bench.submit(name)
    await bench.until(name, TaskState.DELIVERED)
    await Upkeep(bench.store, bench.folder / "git").catch_up()
    return Shelf(bench.folder / "git", bench.store)


async def test_what_the_forge_shows_merged_goes_with_its_transcript_and_only_when_told(bench: Any, name: str) -> None:
    async with bench.open():
        shelf = await _delivered(bench, name)
        pruner = Pruner(shelf, bench.store, _asked(await _commit(bench, name)))
        entries = await shelf.entries()
        (fate,) = await pruner.plan(SalvageConfig(), entries)
        assert (fate.goes, fate.why) == (True, "the forge shows it merged")
        assert await shelf.entries() == entries
        assert await pruner.go(fate)
        assert await shelf.keeping("demo").kept("refs/salvage/", "refs/transcripts/") == ()


@pytest.mark.parametrize("answer", [None, "f" * 40, BrokerError("it is away")])
async def test_what_the_forge_does_not_show_merged_stays(bench: Any, name: str, answer: Any) -> None:
    async with bench.open():
        shelf = await _delivered(bench, name)
        pruner = Pruner(shelf, bench.store, _asked(answer))
        (fate,) = await pruner.plan(SalvageConfig(), await shelf.entries())
        assert not fate.goes
        assert pruner.unasked == ("it is away" if isinstance(answer, Exception) else "")


async def test_a_tree_that_is_not_the_delivered_one_stays_although_its_task_is_merged(bench: Any, name: str) -> None:
    async with bench.open():
        shelf = await _delivered(bench, name)
        attempt = (await bench.store.view(name)).attempts[0]
        sealed = await bench.workspace.sealed_at(attempt.salvage)
        other = await bench.workspace.unchanged(sealed.base)
        await bench.workspace.keep(attempt.salvage, other, f"Salvage of attempt {attempt.id}")
        (fate,) = await Pruner(shelf, bench.store, _asked(await _commit(bench, name))).plan(
            SalvageConfig(), await shelf.entries()
        )
        assert not fate.goes


@pytest.mark.parametrize("later", [None, "f" * 40, BrokerError("it is away")])
async def test_what_is_no_longer_shown_merged_right_before_it_goes_stays(bench: Any, name: str, later: Any) -> None:
    async with bench.open():
        shelf = await _delivered(bench, name)
        entries = await shelf.entries()
        pruner = Pruner(shelf, bench.store, _asked(await _commit(bench, name), later))
        (fate,) = await pruner.plan(SalvageConfig(), entries)
        assert fate.goes
        assert not await pruner.go(fate)
        assert await shelf.entries() == entries


async def test_what_was_taken_up_again_since_it_was_planned_stays(bench: Any, name: str, fixing: Any) -> None:
    bench.strategies["auto"] = fixing(error=RuntimeError("broken"))
    async with bench.open():
        await bench.submit(name)
        await bench.until(name, TaskState.INFRA_FAILED)
        shelf = Shelf(bench.folder / "git", bench.store)
        pruner = Pruner(shelf, bench.store, _asked(None))
        bench.offset = 10.0
        entries = await shelf.entries()
        (fate,) = await pruner.plan(SalvageConfig(keep_bytes=1), entries)
        assert fate.goes
        bench.coordinator._draining = True
        await bench.store.verbs.retry(name)
        assert not await pruner.go(fate)
        assert await shelf.entries() == entries


class TestForks:
    async def forked(self, bench: Any, fixing: Any, name: str) -> str:
        """A task that gave up, forked; the fork is still queued."""
        bench.strategies["auto"] = fixing(conclusion=Conclusion(ending="gave_up", summary="no idea"))
        await bench.submit(name, tier="large")
        await bench.until(name, TaskState.GAVE_UP)
        fork = f"{name}-f"
        grant = await asyncio.to_thread(bench.broker.grant, fork)
        bench.coordinator._draining = True
        bench.strategies["auto"] = fixing()
        await bench.coordinator.fork(name, ForkRequest(task=fork, capability=grant.capability))
        return fork

    async def test_what_a_fork_begins_with_is_no_work_of_its_own_and_stays_until_that_is_kept(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        config = SalvageConfig(keep_days=1e-9, keep_bytes=1)
        async with bench.open() as coordinator:
            fork = await self.forked(bench, fixing, name)
            shelf = Shelf(bench.folder / "git", bench.store)
            (begun,) = await shelf.beginnings()
            assert (begun.kind, begun.task, begun.ref) == ("fork", fork, f"refs/forks/{fork}")
            assert begun.ref not in {entry.ref for entry in await shelf.entries()}
            pruner = Pruner(shelf, bench.store, _asked(None))
            (fate,) = await pruner.plan(config, [begun])
            assert (fate.goes, fate.why) == (False, "its task is queued")
            await coordinator.cancel(fork)
            bench.offset = 10.0
            (fate,) = await pruner.plan(config, [begun])
            assert (fate.goes, "no work of its own" in fate.why) == (False, True)
            assert not await pruner.go(replace(fate, goes=True))
            await Upkeep(bench.store, bench.folder / "git").catch_up()
            await find_salvage(bench.store, [bench.workspace])
            (fate,) = await pruner.plan(SalvageConfig(), [begun])
            assert not fate.goes
            (fate,) = await pruner.plan(SalvageConfig(keep_days=1e-9), [begun])
            assert fate.goes
            assert await pruner.go(fate)
            assert await shelf.beginnings() == ()

    async def test_it_goes_once_the_fork_is_merged(self, bench: Any, fixing: Any, name: str) -> None:
        async with bench.open():
            fork = await self.forked(bench, fixing, name)
        async with bench.open():
            await bench.until(fork, TaskState.DELIVERED)
            shelf = Shelf(bench.folder / "git", bench.store)
            begun = await shelf.beginnings()
            (stays,) = await Pruner(shelf, bench.store, _asked("f" * 40)).plan(SalvageConfig(), begun)
            assert not stays.goes
            pruner = Pruner(shelf, bench.store, _asked(await _commit(bench, fork)))
            (fate,) = await pruner.plan(SalvageConfig(), begun)
            assert (fate.goes, fate.why) == (True, "the forge shows it merged")
            assert await pruner.go(fate)
            assert await shelf.beginnings() == ()

    async def test_a_fork_that_ends_before_it_begins_leaves_what_it_would_have_begun_with(
        self, bench: Any, fixing: Any, name: str
    ) -> None:
        """It left the bare base, which the next start took for its work."""
        async with bench.open() as coordinator:
            fork = await self.forked(bench, fixing, name)
            (attempt,) = (await coordinator.cancel(fork)).attempts
            await Upkeep(bench.store, bench.folder / "git").catch_up()
            begun = await bench.workspace.sealed_at(f"refs/forks/{fork}")
            left = await bench.workspace.sealed_at(f"refs/salvage/{attempt.id}")
            assert left.tree == begun.tree != begun.base_tree


async def test_resuming_begins_with_exactly_what_the_named_attempt_left(bench: Any, name: str, fixing: Any) -> None:
    bench.strategies["auto"] = fixing(content="first\n", error=RuntimeError("broken"))
    async with bench.open():
        await bench.submit(name)
        await bench.until(name, TaskState.INFRA_FAILED)
        bench.strategies["auto"].content = "second\n"
        await bench.coordinator.retry(name)
        await bench.until_step(name, "attempt", number=2)
        await bench.until(name, TaskState.INFRA_FAILED)
        first = (await bench.store.view(name)).attempts[0]
        bench.strategies["auto"] = again = fixing()
        await bench.coordinator.resume(name, first.id)
        await bench.until(name, TaskState.DELIVERED)
        assert again.found == [b"first\n"]


async def test_tidying_keeps_every_reference(bench: Any, name: str) -> None:
    async with bench.open():
        shelf = await _delivered(bench, name)
        before = await shelf.entries()
        await shelf.keeping("demo").tidy()
        assert await shelf.entries() == before
        assert "packed-refs" in {path.name for path in (bench.folder / "git" / "demo.git").iterdir()}
        git("fsck", "--strict", cwd=bench.folder / "git" / "demo.git")
