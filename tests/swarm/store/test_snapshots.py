"""Saved workspaces in a shared database: found by any host, fenced, bounded, pruned only as they were seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swarm.config_database import Address
from swarm.errors import StaleClaimError
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Claim, Kept, Plan
from swarm.store.snapshots import LIMIT, Entry
from swarm.store.store import Store
from swarm.types import Budget, TaskRequest

HOST = HostFacts("here", slots=10)
KEPT = Kept("refs/salvage/a", "tree-1", "box")


async def claimed(store: Store, task: str = "t1", repository: str = "demo") -> Claim:
    request = TaskRequest(repository=repository, instructions="fix it", task=task)
    await store.add(request, Plan(budget=Budget(), tier="small", strategy="auto"))
    claim = await store.queue.claim(HOST)
    assert claim is not None
    return claim


@pytest.fixture
async def store(postgres: Address) -> AsyncIterator[Store]:
    async with Store(postgres) as opened:
        yield opened


@pytest.mark.postgres
class TestShared:
    async def test_another_host_finds_the_last_save_of_an_attempt(self, store: Store, postgres: Address) -> None:
        claim = await claimed(store)
        assert await store.snapshots.keep(claim, KEPT, b"first", "base")
        assert await store.snapshots.keep(claim, Kept(KEPT.ref, "tree-2", "box"), b"PACK\0\xff\n", "base")
        async with Store(postgres) as other:
            found = await other.snapshots.of(KEPT.ref, "demo")
            assert found is not None
            assert found.pack == b"PACK\0\xff\n"
            assert (found.entry.tree, found.entry.base, found.entry.size) == ("tree-2", "base", 7)
            assert (found.entry.task, found.entry.attempt) == ("t1", claim.attempt.id)
            assert await other.snapshots.of(KEPT.ref, "another") is None

    async def test_a_worker_that_was_replaced_overwrites_no_newer_save(self, store: Store) -> None:
        stale = await claimed(store)
        await store.leases.give_back(stale, "its host is shut down")
        fresh = await store.queue.claim(HOST)
        assert fresh is not None
        assert await store.snapshots.keep(fresh, KEPT, b"new", "base")
        with pytest.raises(StaleClaimError):
            await store.snapshots.keep(stale, KEPT, b"old", "base")
        found = await store.snapshots.of(KEPT.ref, "demo")
        assert found is not None
        assert found.pack == b"new"

    async def test_a_pack_that_no_broker_would_take_stays_out(self, store: Store) -> None:
        assert not await store.snapshots.keep(await claimed(store), KEPT, bytes(LIMIT + 1), "base")
        assert await store.snapshots.of(KEPT.ref, "demo") is None

    async def test_all_are_listed_page_by_page_without_their_content(self, store: Store) -> None:
        names = []
        for number, repository in enumerate(("web", "demo", "web")):
            claim = await claimed(store, f"t{number}", repository)
            ref = f"refs/salvage/{claim.attempt.id}"
            await store.snapshots.keep(claim, Kept(ref, "tree", "box"), b"x" * number, "base")
            names.append((repository, ref))
        seen: list[Entry] = []
        while page := await store.snapshots.entries(
            after=(seen[-1].repository, seen[-1].ref) if seen else ("", ""), limit=2
        ):
            seen += page
        assert [(entry.repository, entry.ref) for entry in seen] == sorted(names)

    async def test_only_what_was_seen_is_pruned(self, store: Store) -> None:
        claim = await claimed(store)
        await store.snapshots.keep(claim, KEPT, b"old", "base")
        (seen,) = await store.snapshots.entries()
        await store.snapshots.keep(claim, Kept(KEPT.ref, "tree-2", "box"), b"newer", "base")
        assert await store.snapshots.prune([seen]) == 0
        (now,) = await store.snapshots.entries()
        assert await store.snapshots.prune([now]) == 1
        assert await store.snapshots.entries() == ()


async def test_with_a_file_nothing_is_kept_and_nothing_is_found(tmp_path: Path) -> None:
    async with Store(tmp_path / "swarm.db") as store:
        assert not store.shared
        assert not await store.snapshots.keep(await claimed(store), KEPT, b"pack", "base")
        assert await store.snapshots.of(KEPT.ref, "demo") is None
        assert await store.snapshots.entries() == ()
