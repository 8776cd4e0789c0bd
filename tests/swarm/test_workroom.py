"""What an attempt may keep on the daemon's disk."""

from __future__ import annotations

import asyncio

from sandbox.testing import ScriptedBackend
from sandbox.trees.workspace import Workspace
from sandbox.types import SandboxSpec, SealedTree
from swarm.store.rows import Claim, Kept
from swarm.types import Attempt, Budget, Spent, Task, TaskRequest
from swarm.workroom import Quota, Room
from tests.swarm.conftest import bare_repository, git


def sealed(tree: str, size: int) -> SealedTree:
    return SealedTree(base="b" * 40, tree=tree * 40, base_tree="c" * 40, files=(), pack=bytes(size))


def test_saves_count_until_the_quota_is_spent() -> None:
    quota = Quota(100)
    quota.count(sealed("1", 60))
    assert not quota.spent
    quota.count(sealed("2", 60))
    assert quota.spent


def test_a_save_that_found_nothing_new_costs_nothing() -> None:
    quota = Quota(100)
    for _ in range(5):
        quota.count(sealed("1", 60))
    assert not quota.spent


class Journal:
    """A store that has the claim and counts the lines that saves write."""

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.leases = self.snapshots = self

    async def check(self, claim: Claim) -> None:
        """It holds."""

    async def keep(self, claim: Claim, kept: Kept, pack: bytes, base: str) -> bool:
        """Nobody shares it."""
        return False

    async def salvaged(self, claim: Claim, kept: Kept) -> None:
        self.kept.append(kept)


async def test_a_save_without_a_change_is_told_but_not_kept_again(tmp_path, name) -> None:
    origin = bare_repository(tmp_path / "forge")
    base = git("rev-parse", "main", cwd=origin)
    git("bundle", "create", "-q", str(tmp_path / "b"), "main", cwd=origin)
    workspace, journal = Workspace(tmp_path / "demo.git"), Journal()
    await workspace.take_pack((tmp_path / "b").read_bytes().partition(b"\n\n")[2], base)
    attempt = Attempt(id=f"{name}-1", task=name, number=1, tier="small", strategy="agent", started=0.0)
    task = Task(id=name, request=TaskRequest(repository="demo", instructions="x"), budget=Budget(), created=0.0)
    claim = Claim(task=task, attempt=attempt, fence=1, before=Spent())

    async def kept() -> str:
        return (await workspace.refs("refs/salvage/"))[f"refs/salvage/{name}-1"]

    async with ScriptedBackend().open(SandboxSpec(), workspace.checkout(base)) as sandbox:
        room = Room(claim, base, sandbox, workspace, journal, 1 << 20, asyncio.Lock(), Quota())
        await sandbox.write("new.txt", b"x")
        first = await room.save()
        commit = await kept()
        (tmp_path / "demo.git/refs/salvage" / f"{name}-1").unlink()  # were it kept again, it would be there again
        assert (await room.save()).tree == first.tree
        assert await workspace.refs("refs/salvage/") == {}
        await sandbox.write("new.txt", b"y")
        assert (await room.save()).tree != first.tree
        assert await kept() != commit
    assert [each.sandbox for each in journal.kept] == [sandbox.name] * 3


async def test_an_attempt_that_filled_its_quota_writes_no_more_in_passing(tmp_path) -> None:
    workspace = Workspace(tmp_path / "trusted.git")
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        await sandbox.write("noise", bytes(1000))
        room = Room(None, "b" * 40, sandbox, workspace, None, 1000, asyncio.Lock(), Quota(0))
        await room.save_in_passing()
    assert not (tmp_path / "trusted.git").exists()
