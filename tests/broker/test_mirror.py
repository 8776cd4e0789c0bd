"""The broker's copies: exact, together, bounded, and never showing one branch's objects to the holder of another."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from broker.config.settings import Identity
from broker.errors import AbsentError
from broker.gitdir import GitDir
from broker.mirror import Mirror
from broker.testing import PretendForge

pytestmark = pytest.mark.slow


class Bench:
    """A forge with branches of a test's choice, and the broker's mirror of it."""

    def __init__(self, folder: Path) -> None:
        self.forge = PretendForge("demo", folder / "forge.git")
        self.mirror = Mirror(folder / "mirror.git", self.forge)
        self.folder = folder

    def commit(self, branch: str, content: str, *parents: str) -> str:
        git = self.forge.git
        blob = git.text("hash-object", "-w", "--stdin", stdin=[content.encode()])
        tree = git.text("mktree", stdin=[f"100644 blob {blob}\tfile\n".encode()])
        commit = git.commit_tree(tree, parents, content, Identity(), 0)
        self.forge.branches[branch] = commit
        return commit

    def objects(self, commit: str, have: tuple[str, ...] = ()) -> set[str]:
        """What a pack for a commit holds."""
        with self.mirror.pack(commit, have) as pack:
            target = GitDir(self.folder / f"target-{time.monotonic_ns()}.git")
            target.create()
            (self.folder / "pack").write_bytes(pack.read())
        where = {"GIT_DIR": str(target.path), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
        with (self.folder / "pack").open("rb") as data:
            subprocess.run(["git", "index-pack", "--stdin"], stdin=data, env=where, capture_output=True, check=True)
        return set(target.packed())

    def reach(self, commit: str) -> set[str]:
        return set(self.forge.git.text("rev-list", "--objects", "--no-object-names", commit).split())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_pack_holds_what_the_commit_reaches_and_nothing_of_another_branch(bench: Bench) -> None:
    main = bench.commit("main", "one")
    hidden = bench.commit("embargoed", "secret", main)
    own = bench.commit("swarm/t1", "change", main)
    for branch in ("main", "embargoed"):
        bench.mirror.refresh(branch)
    assert bench.mirror.head("swarm/t1") == own
    assert bench.objects(main) == bench.reach(main)
    assert bench.objects(own) == bench.reach(own)
    # naming the other branch's commit tells nothing: the pack is the same as if it were unknown
    assert bench.objects(main, (hidden, "0" * 40)) == bench.reach(main)
    assert bench.objects(own, (main, hidden)) == bench.reach(own) - bench.reach(main)


def test_a_commit_of_a_person_on_the_own_branch_is_served(bench: Bench) -> None:
    main = bench.commit("main", "one")
    own = bench.commit("swarm/t1", "change", main)
    theirs = bench.commit("swarm/t1", "by hand", own)
    assert bench.mirror.head("swarm/t1") == theirs
    assert bench.objects(theirs) == bench.reach(theirs)


def test_a_branch_that_is_not_there_is_absent(bench: Bench) -> None:
    with pytest.raises(AbsentError):
        bench.mirror.head("swarm/none")
    with pytest.raises(AbsentError):
        bench.mirror.refresh("none")


def test_two_fetches_at_once_both_succeed(bench: Bench) -> None:
    main = bench.commit("main", "one")
    commits = {f"b{number}": bench.commit(f"b{number}", str(number), main) for number in range(6)}
    found: dict[str, str] = {}
    threads = [
        threading.Thread(target=lambda name=name: found.update({name: bench.mirror.refresh(name)})) for name in commits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == commits


def test_bases_that_nothing_names_go_and_the_named_ones_stay_whole(bench: Bench) -> None:
    first = bench.commit("main", "one")
    bench.mirror.refresh("main")
    bench.commit("main", "rewritten")
    bench.mirror.refresh("main")
    third = bench.commit("main", "rewritten again")
    bench.mirror.refresh("main")
    assert bench.mirror.prune({first, third}, ()) == 1
    assert bench.objects(first) == bench.reach(first)
    assert bench.objects(third) == bench.reach(third)
    assert bench.mirror.prune({first, third}, ()) == 0


def test_what_nothing_names_leaves_the_disk_after_its_grace(bench: Bench) -> None:
    bench.commit("main", "x" * 100_000)
    old = bench.mirror.refresh("main")
    bench.commit("main", "small")
    new = bench.mirror.refresh("main")
    bench.mirror.prune({new}, ())
    assert bench.mirror.git.commit_of(old) == old  # a reader at work may still finish
    for file in bench.mirror.git.path.glob("objects/??/*"):
        age(file)
    bench.commit("main", "smaller")
    newest = bench.mirror.refresh("main")
    bench.mirror.prune({newest}, ())
    assert bench.mirror.git.commit_of(old) is None
    assert bench.objects(newest) == bench.reach(newest)


def age(file: Path) -> None:
    subprocess.run(["touch", "-d", "3 days ago", str(file)], check=True)


def test_a_branch_that_is_over_is_let_go(bench: Bench) -> None:
    main = bench.commit("main", "one")
    own = bench.commit("swarm/t1", "change", main)
    bench.mirror.refresh("main")
    bench.mirror.head("swarm/t1")
    for branch, commit in (("main", main), ("swarm/t1", own)):  # as a real fetch leaves them
        bench.mirror.git.run("update-ref", f"refs/heads/{branch}", commit)
    bench.mirror.prune({main}, {"swarm/t1"})
    assert bench.mirror.git.commit_of("refs/heads/swarm/t1") is None
    assert bench.mirror.git.commit_of("refs/heads/main") == main


def test_fetches_do_not_pile_up_packs(bench: Bench) -> None:
    tip = bench.commit("main", "0")
    for number in range(1, 25):
        tip = bench.commit("main", str(number), tip)
        bench.mirror.refresh("main")
    bench.mirror.prune({tip}, ())
    assert len(list(bench.mirror.git.path.glob("objects/pack/*.pack"))) == 1
    assert bench.objects(tip) == bench.reach(tip)


def test_readers_are_not_disturbed_by_packing_anew(bench: Bench) -> None:
    tip = bench.commit("main", "0")
    for number in range(1, 30):
        tip = bench.commit("main", str(number) * 50, tip)
    bench.mirror.refresh("main")
    wrong: list[Any] = []

    def read() -> None:
        for _ in range(6):
            with bench.mirror.pack(tip, ()) as pack:
                if pack.read(4) != b"PACK":
                    wrong.append("no pack")

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(4):
        bench.forge.branches["main"] = bench.commit("other", f"x{number}", tip)
        bench.mirror.refresh("main")
        bench.mirror.prune({tip}, ())
    reader.join()
    assert not wrong


def test_nothing_is_pruned_that_is_not_there(bench: Bench) -> None:
    assert bench.mirror.prune((), ()) == 0
