"""With a shared database, work of a host that is gone is listed, shown and taken on any other one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandbox.trees import handing
from swarm.config import SalvageConfig
from swarm.config_database import Address
from swarm.salvage.prune import Pruner
from swarm.salvage.shelf import Shelf
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Kept, Plan, Settlement
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, Conclusion, TaskRequest, TaskState
from swarm.workroom import salvage_words
from tests.swarm.salvage.conftest import BASE, WORK, Left, packed, read, whole

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


async def _merged(_capability: str) -> None:
    return None


async def test_work_of_a_host_that_is_gone_is_found_and_taken_elsewhere(
    left: Left, postgres: Address, tmp_path: Path
) -> None:
    here = Left(tmp_path / "other", left.origin, left.base)
    here.folder.mkdir(parents=True)
    await here.workspace.take_pack(await asyncio.to_thread(packed, left.origin, left.base), left.base)
    async with Store(postgres) as store:
        request = TaskRequest(repository="demo", instructions="mend it", task="t1", base_commit=left.base)
        await store.add(request, Plan(budget=Budget(), tier="small", strategy="agent"))
        claim: Any = await store.queue.claim(HostFacts(name="gone", slots=2))
        ref = f"refs/salvage/{claim.attempt.id}"
        sealed = await left.leave(claim.attempt.id, WORK)
        kept = Kept(ref, sealed.tree, "swarm-a")
        await store.salvaged(claim, kept)
        assert await store.snapshots.keep(claim, kept, sealed.pack, sealed.base)

        shelf = Shelf(here.folder, store)
        (entry,) = await shelf.entries()
        assert (entry.place, entry.task, entry.tree) == ("database", "t1", sealed.tree)
        found = await shelf.found("t1")
        mine = here.checkout(tmp_path / "mine")
        assert found.sealed is not None
        handing.written(mine, await handing.judged(mine, await shelf.changes(found.sealed, "demo")))
        assert read(mine) == whole(WORK)

        again = await left.leave(claim.attempt.id, BASE)
        await here.workspace.keep(ref, found.sealed, salvage_words(claim.attempt.id))
        await store.snapshots.keep(claim, Kept(ref, again.tree, "swarm-a"), again.pack, again.base)
        newer = await shelf.found("t1")
        assert newer.sealed is not None
        assert newer.sealed.tree == again.tree

        pruner = Pruner(shelf, store, _merged, store)
        (fate,) = await pruner.plan(SalvageConfig(keep_days=1e-9, keep_bytes=1), await shelf.entries())
        assert (fate.goes, fate.why) == (False, "its task is running")


async def test_what_a_fork_on_another_host_began_with_is_cleared_away_from_the_database(
    left: Left, postgres: Address
) -> None:
    async with Store(postgres) as store:
        request = TaskRequest(repository="demo", instructions="mend it", task="t1", base_commit=left.base)
        await store.add(request, Plan(budget=Budget(), tier="small", strategy="agent"))
        claim: Any = await store.queue.claim(HostFacts(name="gone", slots=2))
        work = await left.leave(claim.attempt.id, WORK)
        begun, own = "refs/forks/t1", f"refs/salvage/{claim.attempt.id}"
        for ref in (begun, own):
            await store.snapshots.keep(claim, Kept(ref, work.tree, "swarm-a"), work.pack, work.base)
        shelf = Shelf(left.folder, store)
        (entry,) = await shelf.beginnings()
        assert (entry.place, entry.task, entry.tree) == ("database", "t1", work.tree)
        assert begun not in {each.ref for each in await shelf.entries()}
        await store.salvaged(claim, Kept(own, work.tree, "swarm-a"))
        pruner, config = Pruner(shelf, store, _merged, store), SalvageConfig(keep_days=1e-9)
        (fate,) = await pruner.plan(config, [entry])
        assert (fate.goes, fate.why) == (False, "its task is running")
        end = AttemptResult(conclusion=Conclusion(ending="gave_up"))
        await store.settle(claim, Settlement(TaskState.GAVE_UP, "no idea", end))
        (fate,) = await pruner.plan(config, [entry])
        assert await pruner.go(fate)
        assert await shelf.beginnings() == ()
        assert await store.snapshots.of(own, "demo") is not None
