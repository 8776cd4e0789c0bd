"""Hunts for the future in a checkout's ``.git``: later commits, other branches, others' work, what was thrown away.

About a fifth of one agent's runs looked at future history for the answer (mini-swe-agent#787, SWE-bench#465).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import zlib
from pathlib import Path

import pytest

from sandbox.trees.workspace import Workspace

pytestmark = pytest.mark.slow

FUTURE = "the answer of the future"
ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
} | {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *args: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["git", *args], cwd=folder, input=stdin, env=ENV, check=True, capture_output=True)
    return done.stdout.decode("utf-8", "replace").strip()


def commit(folder: Path, name: str, text: str, message: str) -> str:
    (folder / name).write_text(text)
    git(folder, "add", "-f", name)
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD")


class Past:
    """A repository with a past, a base, and a future in every place that git has for one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        self.lines = "".join(f"line {n} of a long file\n" for n in range(400))
        self.first = commit(folder, "a.txt", self.lines, "first")
        self.base = commit(folder, "a.txt", self.lines + "now\n", "base")
        self.before = set(git(folder, "rev-list", "--objects", "--no-object-names", self.base).split())
        git(folder, "checkout", "-q", "-b", "pull")
        self.pull = commit(folder, "b.txt", "the pull request as it is\n", "pull")
        git(folder, "checkout", "-q", "main")
        self.fix = commit(folder, "a.txt", self.lines + f"{FUTURE}: main\n", f"fix: {FUTURE}")
        git(folder, "tag", "-a", "v2", "-m", f"{FUTURE}: tag")
        git(folder, "notes", "add", "-m", f"{FUTURE}: note", self.base)
        git(folder, "checkout", "-q", "-b", "other")
        self.other = commit(folder, "c.txt", f"{FUTURE}: branch\n", "other")
        git(folder, "checkout", "-q", "pull")
        git(folder, "merge", "-q", "--no-ff", "-m", f"{FUTURE}: merge", "main")
        self.merged = git(folder, "rev-parse", "HEAD")
        git(folder, "update-ref", "refs/stash", self.other)

    def pack(self, *commits: str) -> bytes:
        """One pack of all of it, in which the base's own file is a delta of a later one."""
        asked = "".join(f"{each}\n" for each in commits).encode()
        how = ["git", "pack-objects", "--revs", "--stdout", "-q", "--depth=50", "--window=50"]
        return subprocess.run(how, cwd=self.folder, input=asked, env=ENV, check=True, capture_output=True).stdout


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path / "origin")


async def trusted(past: Past, folder: Path, **more: int) -> Workspace:
    """The daemon's git directory after other tasks: it knows the future, and others' salvage."""
    workspace = Workspace(folder / "trusted.git", **more)
    await workspace.take_pack(past.pack(past.base, past.fix, past.other, past.pull, past.merged), past.base)
    for later in (past.fix, past.other, past.pull, past.merged):
        await workspace.take_pack(past.pack(later), later)
    await workspace.keep("refs/salvage/t9.1", await workspace.sealed(past.base, f"{past.fix}^{{tree}}"), FUTURE)
    return workspace


async def checked_out(workspace: Workspace, folder: Path, base: str, tree: str | None = None) -> Path:
    unpack(b"".join([chunk async for chunk in workspace.checkout_tree(tree or base, base)]), folder)
    return folder


def unpack(data: bytes, folder: Path) -> None:
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=data, check=True)


def hunt(folder: Path) -> tuple[set[str], str]:
    """Every object that any means of git's shows, and every word that can be read out of ``.git``."""
    shown = git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    words = [git(folder, "log", "--all", "--reflog", "-p", "--notes=*", "--format=%H %B %N")]
    words += [git(folder, *how) for how in HUNTS]
    objects = {line.split()[0] for line in shown.splitlines()}
    for how in (("rev-list", "--all", "--objects", "--reflog"), ("rev-list", "--objects", "HEAD")):
        objects |= {line.split()[0] for line in git(folder, *how).splitlines()}
    for path in (folder / ".git").rglob("*"):
        if path.is_file():
            words += [path.name, path.read_bytes().decode("latin-1"), *inflated(path.read_bytes())]
    words += [git(folder, "cat-file", "-p", each) for each in objects if git(folder, "cat-file", "-t", each) != "tree"]
    return objects, "\n".join(words)


HUNTS = (
    ("for-each-ref",),
    ("fsck", "--unreachable", "--dangling", "--lost-found", "--no-progress"),
    ("reflog", "--all"),
    ("stash", "list"),
    ("tag", "-l", "-n9"),
    ("branch", "-a", "-v"),
    ("remote", "-v"),
    ("worktree", "list"),
    ("config", "--list", "--local"),
    ("count-objects", "-v"),
)


def inflated(data: bytes) -> list[str]:
    """Whatever zlib finds anywhere in a file, also in a pack that no index names."""
    found, place = [], 0
    while (place := data.find(b"\x78", place)) >= 0:
        with contextlib.suppress(zlib.error):
            found.append(zlib.decompressobj().decompress(data[place:], 1_000_000).decode("latin-1"))
        place += 1
    return found


def assert_nothing_of_the_future(folder: Path, allowed: set[str]) -> None:
    objects, words = hunt(folder)
    assert objects <= allowed
    assert FUTURE not in words
    assert not any(
        (folder / ".git" / name).exists() for name in ("objects/info/alternates", "FETCH_HEAD", "ORIG_HEAD", "logs")
    )
    assert git(folder, "fsck", "--strict", "--no-progress") == ""


async def test_checkout_holds_the_base_and_its_past_alone(past: Past, tmp_path: Path) -> None:
    workspace = await trusted(past, tmp_path)
    out = await checked_out(workspace, tmp_path / "out", past.base)
    assert_nothing_of_the_future(out, past.before)
    assert git(out, "log", "--format=%s") == "base\nfirst"
    for later in (past.fix, past.other, past.pull, past.merged):
        with pytest.raises(subprocess.CalledProcessError):
            git(out, "cat-file", "-e", later)


async def test_checkout_with_a_history_that_is_cut_holds_less_and_never_more(past: Past, tmp_path: Path) -> None:
    workspace = await trusted(past, tmp_path, history_limit=1)
    out = await checked_out(workspace, tmp_path / "out", past.base)
    assert_nothing_of_the_future(out, past.before)
    assert git(out, "log", "--format=%s") == "base"
    assert (out / ".git/shallow").read_text().split() == [past.base]


async def test_work_on_a_pull_request_does_not_see_what_became_of_it(past: Past, tmp_path: Path) -> None:
    workspace = await trusted(past, tmp_path)
    out = await checked_out(workspace, tmp_path / "out", past.pull)
    assert_nothing_of_the_future(
        out, set(git(past.folder, "rev-list", "--objects", "--no-object-names", past.pull).split())
    )
    assert git(out, "log", "--format=%s") == "pull\nbase\nfirst"


async def test_work_that_goes_on_has_its_files_and_still_the_bases_history(past: Past, tmp_path: Path) -> None:
    workspace = await trusted(past, tmp_path)
    work = git(past.folder, "rev-parse", f"{past.pull}^{{tree}}")
    out = await checked_out(workspace, tmp_path / "out", past.base, work)
    assert (out / "b.txt").read_text() == "the pull request as it is\n"
    assert_nothing_of_the_future(out, past.before)


async def test_hunt_finds_a_future_where_there_is_one(past: Past, tmp_path: Path) -> None:
    objects, words = hunt(past.folder)
    assert not objects <= past.before
    assert FUTURE in words
