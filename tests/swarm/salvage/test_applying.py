"""Work is taken into a person's checkout byte for byte, or not at all, and what is hostile in it has no say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import WorkspaceError
from sandbox.trees import handing
from sandbox.trees.handing import Judged
from sandbox.trees.keeping import Change, Keeping, Side
from swarm.salvage.shelf import Shelf
from tests.swarm.salvage.conftest import BASE, WORK, Left, git, put, read, whole


async def _judged(left: Left, to: Path, files: Any = WORK) -> tuple[Judged, ...]:
    sealed = await left.leave("t1-1-abcd", files)
    return await handing.judged(to, await Shelf(left.folder, None).changes(sealed, "demo"))


def _verdicts(work: tuple[Judged, ...]) -> dict[str, str]:
    return {each.name: each.verdict for each in work}


async def test_a_clean_checkout_becomes_the_sealed_tree_byte_for_byte(left: Left, tmp_path: Path) -> None:
    mine = left.checkout(tmp_path / "mine")
    git("config", "filter.evil.smudge", f"touch {tmp_path}/ran", cwd=mine)
    git("config", "core.autocrlf", "true", cwd=mine)
    assert handing.written(mine, await _judged(left, mine)) == 8
    assert read(mine) == whole(WORK)
    assert not (mine / "old").exists()
    assert not (tmp_path / "ran").exists()


async def test_what_both_sides_changed_elsewhere_is_merged_three_ways(left: Left, tmp_path: Path) -> None:
    mine = left.checkout(tmp_path / "mine")
    put(mine, {"a.txt": b"one\ntwo\nthree\nfour\nFIVE\n", "run.sh": (b"#!/bin/sh\necho\n", 0o755)})
    work = await _judged(left, mine)
    assert _verdicts(work)["a.txt"] == "merge"
    handing.written(mine, work)
    assert (mine / "a.txt").read_bytes() == b"one\nTWO\nthree\nfour\nFIVE\n"
    assert read(mine)["run.sh"] == (b"#!/bin/sh\necho\n", 0o644)


async def test_every_kind_of_conflict_is_told_with_its_reason(left: Left, tmp_path: Path) -> None:
    mine = left.checkout(tmp_path / "mine")
    mine_too = {
        "a.txt": b"one\nzwei\nthree\nfour\nfive\n",
        "bin": b"\0mine",
        "dos.txt": b"one\ntwo\n",
        "old/only.txt": b"mine\n",
        "new/deep/file.txt": b"mine\n",
        "link": Path("run.sh"),
    }
    put(mine, mine_too)
    work = await _judged(left, mine)
    why = {each.name: each.why for each in work if each.verdict == "conflict"}
    assert why.keys() == mine_too.keys()
    assert "1 places" in why["a.txt"]
    assert "binary" in why["bin"]
    assert "line ends" in why["dos.txt"]
    assert "deleted" in why["old/only.txt"]
    assert "added" in why["new/deep/file.txt"]
    assert "link" in why["link"]
    assert handing.written(mine, handing.marked(work)) == 3  # the clash with marks, run.sh, .gitattributes
    assert b"<<<<<<<" in (mine / "a.txt").read_bytes()
    assert (mine / "bin").read_bytes() == b"\0mine"


async def test_a_deleted_file_of_the_persons_is_a_conflict(left: Left, tmp_path: Path) -> None:
    mine = left.checkout(tmp_path / "mine")
    (mine / "a.txt").unlink()
    assert _verdicts(await _judged(left, mine))["a.txt"] == "conflict"


async def test_applying_twice_changes_nothing_more(left: Left, tmp_path: Path) -> None:
    mine = left.checkout(tmp_path / "mine")
    handing.written(mine, await _judged(left, mine))
    again = await _judged(left, mine)
    assert set(_verdicts(again).values()) == {"same"}
    assert handing.written(mine, again) == 0


async def test_a_file_that_becomes_a_folder_and_a_folder_that_becomes_a_file_change_places(
    left: Left, tmp_path: Path
) -> None:
    mine = left.checkout(tmp_path / "mine")
    turned = {**BASE, "a.txt/inside": b"x", "old": b"y"}
    del turned["a.txt"], turned["old/only.txt"]
    work = await _judged(left, mine, turned)
    assert "conflict" not in _verdicts(work).values()
    handing.written(mine, work)
    assert read(mine) == whole(turned)


async def test_nothing_is_written_through_a_link(left: Left, tmp_path: Path) -> None:
    mine, outside = left.checkout(tmp_path / "mine"), tmp_path / "outside"
    outside.mkdir()
    (mine / "new").symlink_to(outside)
    work = await _judged(left, mine)
    assert _verdicts(work)["new/deep/file.txt"] == "conflict"
    forced = Judged(b"new/deep/file.txt", "write", Side("100644", b"x"))
    with pytest.raises(WorkspaceError):
        handing.written(mine, [forced])
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "path", [b"../out", b"/etc/out", b".git/hooks/post-checkout", b"a/.GIT/config", b"a//b", b"a/./b", b"git~1/x"]
)
async def test_a_name_that_no_file_may_have_is_refused(tmp_path: Path, path: bytes) -> None:
    hostile = Change(path, None, Side("100755", b"#!/bin/sh\n"))
    (found,) = await handing.judged(tmp_path, [hostile])
    assert (found.verdict, read(tmp_path)) == ("conflict", {})


async def test_a_submodule_is_told_and_left(tmp_path: Path) -> None:
    (found,) = await handing.judged(tmp_path, [Change(b"sub", None, Side("160000", b"1" * 40))])
    assert "submodule" in found.why


async def test_a_branch_holds_exactly_the_tree_and_no_hook_runs(left: Left, tmp_path: Path) -> None:
    mine = left.checkout(tmp_path / "mine")
    hook = mine / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    sealed = await left.leave("t1-1-abcd", WORK)
    commit = await handing.branched(mine, "salvaged", sealed, "Work")
    assert git("rev-parse", "salvaged^{tree}", cwd=mine) == sealed.tree
    assert git("rev-parse", "salvaged^", cwd=mine) == left.base
    assert read(mine) == whole(BASE)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(WorkspaceError):
        await handing.branched(mine, "salvaged", sealed, "Work")
    assert git("rev-parse", "salvaged", cwd=mine) == commit


@pytest.mark.parametrize("name", ["-d", "a..b", "a b", "x.lock", "@{-1}", ""])
async def test_a_branch_of_a_bad_name_is_refused(left: Left, tmp_path: Path, name: str) -> None:
    mine = left.checkout(tmp_path / "mine")
    sealed = await left.leave("t1-1-abcd", WORK)
    with pytest.raises(WorkspaceError):
        await handing.branched(mine, name, sealed, "Work")


async def test_a_branch_without_its_base_is_refused_with_the_mend(left: Left, tmp_path: Path) -> None:
    git("init", "-q", "other", cwd=tmp_path)
    with pytest.raises(WorkspaceError, match="fetch it first"):
        await handing.branched(tmp_path / "other", "b", await left.leave("t1-1-abcd", WORK), "Work")
    with pytest.raises(WorkspaceError, match="in no git repository"):
        await handing.branched(tmp_path, "b", await left.leave("t1-1-abcd", WORK), "Work")


async def test_a_reference_that_moved_on_is_not_let_go_of(left: Left) -> None:
    await left.leave("t1-1-abcd", WORK)
    keeping = Keeping(left.folder / "demo.git")
    (before,) = await keeping.kept("refs/salvage/")
    await left.leave("t1-1-abcd", BASE)
    with pytest.raises(WorkspaceError):
        await keeping.drop(before)
    assert len(await keeping.kept("refs/salvage/")) == 1
