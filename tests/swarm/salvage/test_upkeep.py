"""Every attempt leaves its transcript beside its work, however it ended, and a start makes up for what a crash lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import SandboxUnavailableError
from sandbox.testing import ScriptedBackend
from sandbox.trees.keeping import Keeping
from swarm.salvage import entries
from swarm.salvage.shelf import Shelf
from swarm.salvage.upkeep import Upkeep
from swarm.types import TaskState

pytestmark = pytest.mark.slow


async def _transcript(folder: Path, attempt: str) -> tuple[entries.About, tuple[Any, ...]]:
    keeping = Keeping(folder / "demo.git")
    (kept,) = await keeping.kept(f"refs/transcripts/{attempt}")
    files = await keeping.files(kept.tree)
    about = entries.about_of(files[entries.ABOUT])
    assert about is not None
    return about, entries.lines_of(files)


async def test_a_transcript_grows_part_by_part_and_is_the_journal(bench: Any, name: str, fixing: Any) -> None:
    gate = asyncio.Event()
    bench.strategies["auto"] = fixing(gate=gate)
    async with bench.open():
        upkeep = Upkeep(bench.store, bench.folder / "git", often=0.0)
        bench.store.listeners.append(upkeep.heard)
        await bench.submit(name)
        await bench.until_step(name, "salvage")
        await upkeep.write_due()
        attempt = (await bench.store.view(name)).attempts[0].id
        about, lines = await _transcript(bench.folder / "git", attempt)
        assert (about.ended, about.task, lines[-1].kind) == (None, name, "salvage")
        gate.set()
        await bench.until(name)
        await upkeep.write_due()
        about, lines = await _transcript(bench.folder / "git", attempt)
        assert lines == await bench.store.steps(name, attempt=attempt)
        assert (about.ending, about.last) == ("finished", lines[-1].seq)
        (entry,) = await Shelf(bench.folder / "git", None).entries()
        assert (entry.whole, entry.task, entry.number) == (True, name, 1)


async def test_a_start_writes_what_a_killed_daemon_had_not(bench: Any, name: str) -> None:
    async with bench.open():
        await bench.submit(name)
        await bench.until(name)
        attempt = (await bench.store.view(name)).attempts[0].id
    async with bench.open():
        upkeep = Upkeep(bench.store, bench.folder / "git")
        await upkeep.catch_up()
        about, lines = await _transcript(bench.folder / "git", attempt)
        assert (about.ending, lines) == ("finished", await bench.store.steps(name, attempt=attempt))


async def test_the_first_moments_of_a_start_are_left_to_the_attempts_that_go_on(bench: Any, name: str) -> None:
    async with bench.open():
        await bench.submit(name)
        await bench.until(name)
        asked: list[int] = []
        keeping = Keeping(bench.folder / "git" / "demo.git")

        def busy() -> bool:
            asked.append(len(asked))
            return len(asked) < 3

        running = asyncio.create_task(Upkeep(bench.store, bench.folder / "git", busy=busy, clock=lambda: 0.0).run())
        async with asyncio.timeout(60):
            while len(asked) < 2:  # noqa: ASYNC110 - it is asked, and tells nobody
                await asyncio.sleep(0.05)
            assert await keeping.kept("refs/transcripts/") == ()
            while not await keeping.kept("refs/transcripts/"):  # noqa: ASYNC110 - git tells nobody either
                await asyncio.sleep(0.1)
        running.cancel()
        assert len(asked) >= 3


async def test_an_attempt_that_changed_nothing_leaves_the_tree_it_began_with(bench: Any, name: str) -> None:
    class Shut(ScriptedBackend):
        def open(self, *_: Any) -> Any:
            raise SandboxUnavailableError("there is none")

    bench.backend = Shut()
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name, TaskState.INFRA_FAILED)
        assert await bench.workspace.refs("refs/salvage/") == {}
        upkeep = Upkeep(bench.store, bench.folder / "git")
        await upkeep.catch_up()
        sealed = await bench.workspace.sealed_at(f"refs/salvage/{view.attempts[0].id}")
        assert sealed is not None
        assert sealed.tree == sealed.base_tree


async def test_the_shelf_tells_the_same_with_the_database_and_without(bench: Any, name: str) -> None:
    async with bench.open():
        await bench.submit(name)
        await bench.until(name)
        upkeep = Upkeep(bench.store, bench.folder / "git")
        await upkeep.catch_up()
        with_it, without = Shelf(bench.folder / "git", bench.store), Shelf(bench.folder / "git", None)
        found, alone = await with_it.found(name), await without.found(name)
        assert found.sealed == alone.sealed
        assert found.steps == alone.steps
        assert (found.entry.ending, found.entry.title) == (alone.entry.ending, alone.entry.title)
        assert (found.entry.state, alone.entry.state) == ("delivered", "")
