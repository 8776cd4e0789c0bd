"""What every forge does, the pretend one included. A new forge joins by one more entry in FORGES."""

from __future__ import annotations

import os
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from broker.config.settings import Identity
from broker.errors import AbsentError, ConflictError
from broker.forge.base import Forge, Order
from broker.forge.local import LocalForge
from broker.gitdir import GitDir
from broker.testing import PretendForge, copy
from broker.wire import Evidence, TestResult

PEOPLE = {f"GIT_{who}_{key}": "a" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


class Bench:
    """A forge with a main branch of one commit, and a store to push from."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.forge_dir = folder / "forge.git"
        self.git(self.forge_dir, "init", "-q", "--bare", "-b", "main")
        self.source = GitDir(folder / "source.git")
        self.source.create()
        self.base = self.commit({"a.txt": "one\n", "b.txt": "two\n"})
        self.forge = self._local(folder) if kind == "local" else self._pretend(folder)

    def _local(self, folder: Path) -> Forge:
        self.git(self.forge_dir, "fetch", "-q", str(self.source.path), f"{self.base}:refs/heads/main")
        return LocalForge("demo", self.forge_dir, folder / "records", Identity(), lambda _scope: nullcontext(None))

    def _pretend(self, folder: Path) -> Forge:
        forge = PretendForge("demo", folder / "pretend.git")
        copy(self.source, forge.git, self.base)
        forge.branches["main"] = self.base
        return forge

    @staticmethod
    def git(folder: Path, *args: str, stdin: str = "") -> str:
        env = {"PATH": os.environ["PATH"], "GIT_DIR": str(folder), "GIT_CONFIG_GLOBAL": os.devnull, **PEOPLE}
        done = subprocess.run(["git", *args], input=stdin, env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, files: dict[str, str], *parents: str) -> str:
        """A commit of exactly these files in the source store."""
        blobs = {
            name: self.git(self.source.path, "hash-object", "-w", "--stdin", stdin=text) for name, text in files.items()
        }
        lines = "".join(f"100644 blob {oid}\t{name}\n" for name, oid in sorted(blobs.items()))
        tree = self.git(self.source.path, "mktree", stdin=lines)
        heads = [word for parent in parents for word in ("-p", parent)]
        return self.git(self.source.path, "commit-tree", tree, *heads, "-m", "change")

    def advance_main(self, commit: str) -> None:
        """Somebody else pushes to main."""
        if isinstance(self.forge, PretendForge):
            copy(self.source, self.forge.git, commit)
            self.forge.branches["main"] = commit
        else:
            self.git(self.forge_dir, "fetch", "-q", str(self.source.path), f"{commit}:refs/heads/main")

    def change(self, text: str = "ONE\n") -> str:
        """A commit on the base that changes a.txt."""
        return self.commit({"a.txt": text, "b.txt": "two\n"}, self.base)

    def order(self, commit: str, branch: str = "swarm/t1") -> Order:
        """A pull request for a pushed commit."""
        evidence = Evidence(after=TestResult(command="pytest", exit_code=0), model="m")
        return Order(
            title="T",
            body="B",
            branch=branch,
            base="main",
            base_commit=self.base,
            commit=commit,
            task=branch.rsplit("/", 1)[-1],
            proposal="p",
            evidence=evidence,
        )

    def opened(self, commit: str, branch: str = "swarm/t1"):
        """Pushes and opens."""
        assert self.forge.push(self.source, commit, branch)
        return self.forge.open(self.order(commit, branch))


@pytest.fixture(params=["local", "pretend"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, request.param)


def test_a_head_is_told_and_an_absent_branch_is_none(bench):
    assert bench.forge.head("main") == bench.base
    assert bench.forge.head("nowhere") is None


def test_a_branch_is_fetched_with_its_history(bench, tmp_path):
    second = bench.commit({"a.txt": "1\n"}, bench.base)
    bench.advance_main(second)
    into = GitDir(tmp_path / "into.git")
    into.create(bench.forge.object_format())
    assert bench.forge.fetch("main", into) == second
    assert into.run("rev-list", second).split() == [second.encode(), bench.base.encode()]
    assert bench.forge.fetch("nowhere", into) is None


def test_a_branch_that_was_rewound_is_fetched(bench, tmp_path):
    into = GitDir(tmp_path / "into.git")
    into.create()
    bench.forge.fetch("main", into)
    other = bench.commit({"z": "z\n"})
    if isinstance(bench.forge, PretendForge):
        bench.advance_main(other)
    else:
        bench.git(bench.forge_dir, "fetch", "-q", str(bench.source.path), f"+{other}:refs/heads/main")
    assert bench.forge.fetch("main", into) == other


def test_a_push_creates_a_branch_once_and_never_moves_it(bench):
    commit, other = bench.change(), bench.change("TWO\n")
    assert bench.forge.push(bench.source, commit, "swarm/t1")
    assert not bench.forge.push(bench.source, other, "swarm/t1")
    assert not bench.forge.push(bench.source, commit, "main")
    assert bench.forge.head("swarm/t1") == commit
    assert bench.forge.head("main") == bench.base


def test_a_fast_forward_of_an_existing_branch_is_not_a_creation(bench):
    commit = bench.change()
    assert bench.forge.push(bench.source, commit, "swarm/t1")
    assert not bench.forge.push(bench.source, bench.commit({"c": "c\n"}, commit), "swarm/t1")
    assert bench.forge.head("swarm/t1") == commit


def test_a_pull_request_is_opened_once(bench):
    pull = bench.opened(bench.change())
    assert (pull.number, pull.state, pull.branch, pull.base) == (1, "open", "swarm/t1", "main")
    assert bench.forge.open(bench.order(bench.change("X\n"))) == pull
    assert bench.forge.pulls() == (pull,)


def test_other_work_on_the_branch_of_a_merged_pull_request_gets_its_own(bench):
    first = bench.opened(bench.change())
    merged = bench.forge.merge(1, "me")
    assert bench.forge.open(bench.order(first.commit)) == merged
    other = bench.change("X\n")
    bench.forge.push(bench.source, other, "swarm/t2")
    assert bench.forge.open(bench.order(other)).number == 2


def test_pull_requests_are_numbered_and_listed_newest_first(bench):
    for number in (1, 2, 3):
        assert bench.opened(bench.change(f"{number}\n"), f"swarm/t{number}").number == number
    assert [pull.number for pull in bench.forge.pulls()] == [3, 2, 1]


def test_evidence_is_kept_with_the_pull_request(bench):
    bench.opened(bench.change())
    assert bench.forge.pull(1).evidence.after == TestResult(command="pytest", exit_code=0)


def test_an_unknown_pull_request_is_absent(bench):
    for asked in (lambda: bench.forge.pull(7), lambda: bench.forge.diff(7, 100), lambda: bench.forge.merge(7, "me")):
        with pytest.raises(AbsentError):
            asked()


def test_a_diff_shows_the_change_and_can_be_cut(bench):
    bench.opened(bench.change())
    diff, cut = bench.forge.diff(1, 10_000)
    assert "-one\n+ONE\n" in diff
    assert not cut
    short, cut = bench.forge.diff(1, 20)
    assert (len(short), cut) == (20, True)


def test_a_merge_moves_the_base_forward(bench):
    commit = bench.change()
    bench.opened(commit)
    merged = bench.forge.merge(1, "uid 7")
    assert (merged.state, merged.merged_commit, merged.merged_by) == ("merged", commit, "uid 7")
    assert bench.forge.head("main") == commit
    assert bench.forge.pull(1) == merged


def test_a_merge_joins_a_base_that_moved_elsewhere(bench, tmp_path):
    bench.opened(bench.change())
    bench.advance_main(bench.commit({"a.txt": "one\n", "b.txt": "TWO\n"}, bench.base))
    bench.forge.merge(1, "me")
    into = GitDir(tmp_path / "into.git")
    into.create()
    head = bench.forge.fetch("main", into)
    assert into.run("show", f"{head}:a.txt", f"{head}:b.txt") == b"ONE\nTWO\n"
    assert len(into.text("rev-parse", f"{head}^@").split()) == 2


def test_a_merge_that_conflicts_is_refused_and_changes_nothing(bench):
    bench.opened(bench.change())
    theirs = bench.commit({"a.txt": "other\n", "b.txt": "two\n"}, bench.base)
    bench.advance_main(theirs)
    with pytest.raises(ConflictError, match="conflicts"):
        bench.forge.merge(1, "me")
    assert bench.forge.head("main") == theirs
    assert bench.forge.pull(1).state == "open"


def test_a_second_merge_is_refused(bench):
    bench.opened(bench.change())
    bench.forge.merge(1, "me")
    with pytest.raises(ConflictError):
        bench.forge.merge(1, "me")
