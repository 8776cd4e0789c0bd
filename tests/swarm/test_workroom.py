"""What an attempt may keep on the daemon's disk."""

from __future__ import annotations

import asyncio

from sandbox.testing import ScriptedBackend
from sandbox.trees.workspace import Workspace
from sandbox.types import SandboxSpec, SealedTree
from swarm.workroom import Quota, Room


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


async def test_an_attempt_that_filled_its_quota_writes_no_more_in_passing(tmp_path) -> None:
    workspace = Workspace(tmp_path / "trusted.git")
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        await sandbox.write("noise", bytes(1000))
        room = Room(None, "b" * 40, sandbox, workspace, None, 1000, asyncio.Lock(), Quota(0))
        await room.save_in_passing()
    assert not (tmp_path / "trusted.git").exists()
