"""A pretend forge for tests: branches and pull requests in memory, objects in one store, failures on request.

Held to the same contract suite as the real forges.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

from broker.config.settings import Identity
from broker.errors import AbsentError, ConflictError, GitError
from broker.forge.base import Order, is_for
from broker.gitdir import GitDir
from broker.wire import PullRequest


class PretendForge:
    """A forge without a forge.

    ``before`` and ``after`` hold, by the name of a step (fetch, push, open, merge), errors that are raised once each
    before the step does anything, or after it has done everything: a lost answer.
    """

    def __init__(self, name: str, store: Path) -> None:
        self.name = name
        self.git = GitDir(store)
        self.git.create()
        self.branches: dict[str, str] = {}
        self.before: defaultdict[str, list[Exception]] = defaultdict(list)
        self.after: defaultdict[str, list[Exception]] = defaultdict(list)
        self.pushes: list[tuple[str, str]] = []
        self._pulls: dict[int, PullRequest] = {}
        self._lock = threading.Lock()

    def object_format(self) -> str:
        """Always sha1."""
        return "sha1"

    def head(self, branch: str) -> str | None:
        """The commit that a branch is on now."""
        return self.branches.get(branch)

    def fetch(self, branch: str, into: GitDir) -> str | None:
        """Copies the branch's history."""
        _raise_next(self.before["fetch"])
        commit = self.branches.get(branch)
        if commit is not None:
            copy(self.git, into, commit)
        _raise_next(self.after["fetch"])
        return commit

    def push(self, source: GitDir, commit: str, branch: str) -> bool:
        """Creates a branch."""
        _raise_next(self.before["push"])
        with self._lock:
            if branch in self.branches:
                return False
            copy(source, self.git, commit)
            self.branches[branch] = commit
            self.pushes.append((branch, commit))
        _raise_next(self.after["push"])
        return True

    def open(self, order: Order) -> PullRequest:
        """Opens a pull request, or finds the branch's."""
        _raise_next(self.before["open"])
        with self._lock:
            pull = next((one for one in self._pulls.values() if is_for(one, order)), None)
            if pull is None:
                number = len(self._pulls) + 1
                pull = PullRequest(repository=self.name, number=number, created=0.0, **order.model_dump())
                self._pulls[number] = pull
        _raise_next(self.after["open"])
        return pull

    def pulls(self) -> tuple[PullRequest, ...]:
        """All, newest first."""
        return tuple(self._pulls[number] for number in sorted(self._pulls, reverse=True))

    def pull(self, number: int) -> PullRequest:
        """One of them."""
        if number not in self._pulls:
            raise AbsentError(f"{self.name} has no pull request {number}")
        return self._pulls[number]

    def diff(self, number: int, limit: int) -> tuple[str, bool]:
        """What it changes."""
        pull = self.pull(number)
        output = self.git.run("diff-tree", "-r", "-p", "--full-index", pull.base_commit, pull.commit)
        return output[:limit].decode(errors="replace"), len(output) > limit

    def merge(self, number: int, by: str) -> PullRequest:
        """Merges one."""
        _raise_next(self.before["merge"])
        pull = self.pull(number)
        if pull.state != "open" or pull.base not in self.branches:
            raise ConflictError(f"pull request {number} cannot be merged")
        onto = self.branches[pull.base]
        merged = self._joined(pull, onto, by)
        self.branches[pull.base] = merged
        done = pull.model_copy(update={"state": "merged", "merged_commit": merged, "merged_by": by})
        self._pulls[number] = done
        return done

    def _joined(self, pull: PullRequest, onto: str, by: str) -> str:
        if self.git.succeeds("merge-base", "--is-ancestor", onto, pull.commit):
            return pull.commit
        try:
            tree = self.git.text("merge-tree", "--write-tree", "--no-messages", onto, pull.commit).split()[0]
        except GitError:
            raise ConflictError(f"pull request {pull.number} conflicts with {pull.base}") from None
        return self.git.commit_tree(tree, (onto, pull.commit), f"Merge by {by}\n", Identity(), 0)


def copy(source: GitDir, into: GitDir, commit: str) -> None:
    """Copies a commit and all that it reaches from one git directory to another, by a pack."""
    pack = source.run("pack-objects", "--quiet", "--revs", "--stdout", stdin=[f"{commit}\n".encode()])
    into.run("index-pack", "--stdin", "--strict", stdin=[pack])


def _raise_next(errors: list[Exception]) -> None:
    if errors:
        raise errors.pop(0)
