"""Hands a sealed tree to a person's own checkout: files judged one by one and written without git, or a branch.

What comes out of the tree is hostile. No hook, filter or attribute of it has a say, no link is followed, and nothing is
written outside the folder. A file that differs from the base there is merged three ways, or told as a conflict.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sandbox.errors import WorkspaceError
from sandbox.trees import placing
from sandbox.trees.gitdir import in_checkout, merge_file
from sandbox.trees.keeping import Change, Side
from sandbox.trees.names import above, git_among, normal, shown
from sandbox.trees.placing import LINK, PLAIN, RUNS, Placed
from sandbox.types import SealedTree

Verdict = Literal["write", "delete", "same", "merge", "conflict"]


@dataclass(frozen=True)
class Judged:
    """What is to be done at a path, and why where it cannot be. ``side`` is what is written."""

    path: bytes
    verdict: Verdict
    side: Side | None = None
    why: str = ""

    @property
    def name(self) -> str:
        """The path for people."""
        return shown(self.path)


async def judged(folder: Path, changes: Sequence[Change]) -> tuple[Judged, ...]:
    """What each change comes to in a person's folder. Nothing is written. Raises WorkspaceError."""
    found: list[Judged] = []
    going: set[bytes] = set()
    coming = {change.path for change in changes if change.after}
    with placing.opened(folder) as root:
        for change in sorted(changes, key=lambda each: each.after is not None):  # what goes makes room for what comes
            if why := _unfit(change, coming):
                found.append(Judged(change.path, "conflict", why=why))
                continue
            try:
                ours = placing.read(root, change.path)
            except OSError as error:
                if not _makes_room(root, change.path, going):
                    found.append(Judged(change.path, "conflict", why=placing.why(error)))
                    continue
                ours = None
            found.append(await _judge(change, ours))
            if found[-1].verdict == "delete":
                going.add(change.path)
    return tuple(found)


def written(folder: Path, work: Sequence[Judged]) -> int:
    """Put into the folder what was judged, all of it or nothing; how many files that were. Raises WorkspaceError."""
    placed = [Placed(each.path, None) for each in work if each.verdict == "delete"]
    placed += [Placed(each.path, each.side) for each in work if each.verdict in {"write", "merge"} and each.side]
    if placed:
        with placing.opened(folder) as root:
            placing.place(root, placed)
    return len(placed)


def marked(work: Iterable[Judged]) -> tuple[Judged, ...]:
    """The same, where texts clash with both versions and marks between them to be written."""
    return tuple(replace(each, verdict="merge") if each.verdict == "conflict" and each.side else each for each in work)


async def branched(folder: Path, branch: str, sealed: SealedTree, words: str) -> str:
    """A new branch of the person's repository that holds the tree on its base; the commit.

    The work tree and the index are not touched. Raises WorkspaceError where the base is not there, or the branch is.
    """
    code, _, _ = await in_checkout(folder, "check-ref-format", f"refs/heads/{branch}")
    if code or branch.startswith("-"):
        raise WorkspaceError(f"{branch!r} is no name of a branch")
    code, _, said = await in_checkout(folder, "cat-file", "-e", f"{sealed.base}^{{commit}}")
    if code and "not a git repository" in said:
        raise WorkspaceError(f"{folder} is in no git repository")
    if code:
        raise WorkspaceError(
            f"the base {sealed.base[:12]} is not in the repository at {folder}; fetch it first: git fetch origin"
        )
    code, _, _ = await in_checkout(folder, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
    if not code:
        raise WorkspaceError(f"the repository at {folder} has a branch {branch} already")
    await _must(folder, "unpack-objects", "-q", "--strict", stdin=sealed.pack)
    commit = (await _must(folder, "commit-tree", sealed.tree, "-p", sealed.base, "-m", words)).decode().strip()
    await _must(folder, "update-ref", f"refs/heads/{branch}", commit, "0" * len(commit))
    return commit


async def _must(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    code, out, said = await in_checkout(folder, *words, stdin=stdin)
    if code:
        raise WorkspaceError(f"git {words[0]} failed in {folder}: {said}")
    return out


async def _judge(change: Change, ours: Side | None) -> Judged:
    path, base, theirs = change.path, change.before, change.after
    if ours == theirs:
        return Judged(path, "same")
    if ours == base:
        return Judged(path, "delete") if theirs is None else Judged(path, "write", theirs)
    if ours is None:
        return Judged(path, "conflict", why="it was changed, and is not there in your folder")
    if theirs is None:
        return Judged(path, "conflict", why="it was deleted, and your folder has another version than the base")
    if base is None:
        return Judged(path, "conflict", why="it was added, and your folder has another file of that name")
    return await _merge(path, base, ours, theirs)


async def _merge(path: bytes, base: Side, ours: Side, theirs: Side) -> Judged:
    if LINK in {base.mode, ours.mode, theirs.mode}:
        return Judged(path, "conflict", why="a link was changed on both sides")
    mode = theirs.mode if ours.mode == base.mode else ours.mode
    if theirs.content in {base.content, ours.content}:  # only the mode was changed, or both made the same change
        return Judged(path, "merge", Side(mode, ours.content))
    if ours.content == base.content:
        return Judged(path, "merge", Side(mode, theirs.content))
    if why := _no_text(base, ours, theirs):
        return Judged(path, "conflict", why=why)
    with tempfile.TemporaryDirectory(prefix="agent-swarm-merge-") as place:
        merged, clashes = await merge_file(Path(place), ours.content, base.content, theirs.content)
    if clashes:
        return Judged(path, "conflict", Side(mode, merged), f"{clashes} places were changed on both sides")
    return Judged(path, "merge", Side(mode, merged))


def _no_text(base: Side, ours: Side, theirs: Side) -> str:
    """Why three versions cannot be merged line by line; empty where they can."""
    if any(b"\0" in side.content for side in (base, ours, theirs)):
        return "a binary file was changed on both sides"
    if ours.content.replace(b"\r\n", b"\n") == base.content.replace(b"\r\n", b"\n"):
        return "your folder has it with other line ends than the base; take it as a branch instead: --branch NAME"
    return ""


def _makes_room(root: int, path: bytes, going: set[bytes]) -> bool:
    """Whether all that is in the way at a path is among what goes."""
    return any(each in going for each in above(path)) or placing.holds_only(root, path, going)


def _unfit(change: Change, coming: set[bytes]) -> str:
    """Why a path or what is to be there is nothing for a person's folder; empty where it is."""
    if normal(change.path) != change.path or git_among(change.path.split(b"/")) is not None:
        return "its name is none that a file of a repository may have"
    if change.after and any(each in coming for each in above(change.path)):
        return "its folder is to be a file or a link"
    if change.after and change.after.mode == LINK and (not change.after.content or b"\0" in change.after.content):
        return "it is a link to a name that no file may have"
    modes = {side.mode for side in (change.before, change.after) if side}
    return "" if modes <= {PLAIN, RUNS, LINK} else "it is a submodule, which is not applied"
