"""A pretend forge for tests: branches and pull requests in memory, objects in one store, failures on request.

Held to the same contract suite as the real forges.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from broker.config.settings import Identity
from broker.errors import AbsentError, ConflictError, GitError
from broker.forge.base import Dressing, Note, Order, Permission, Seen, Status, Visibility, is_for
from broker.gitdir import GitDir
from broker.wire import Check, PullRequest, Thread


class PretendForge:
    """A forge without a forge.

    ``before`` and ``after`` hold, by the name of a step (any method), errors that are raised once each before the step
    does anything, or after it has done everything: a lost answer. ``race`` is called once, right before the next push
    looks at the branch.
    """

    def __init__(self, name: str, store: Path) -> None:
        self.name = name
        self.git = GitDir(store)
        self.git.create()
        self.branches: dict[str, str] = {}
        self.before: defaultdict[str, list[Exception]] = defaultdict(list)
        self.after: defaultdict[str, list[Exception]] = defaultdict(list)
        self.pushes: list[tuple[str, str]] = []
        self.seen_by: Visibility = "private"
        self.dressed: dict[int, Dressing] = {}
        self.will_not_wear: tuple[str, ...] = ()
        self.statuses: dict[str, Status] = {}
        self.race: Callable[[], None] | None = None
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

    def push(self, source: GitDir, commit: str, branch: str, expected: str | None = None) -> bool:
        """Creates a branch, or moves it forward from ``expected``."""
        _raise_next(self.before["push"])
        if self.race is not None:
            race, self.race = self.race, None
            race()
        with self._lock:
            if self.branches.get(branch) != expected or (
                expected and not source.succeeds("merge-base", "--is-ancestor", expected, commit)
            ):
                return False
            copy(source, self.git, commit)
            self.branches[branch] = commit
            self.pushes.append((branch, commit))
        _raise_next(self.after["push"])
        return True

    def find(self, branch: str, base: str) -> PullRequest | None:
        """The open one of the branch, else the newest."""
        _raise_next(self.before["find"])
        found = [pull for pull in self.pulls() if (pull.branch, pull.base) == (branch, base)]
        _raise_next(self.after["find"])
        return next((pull for pull in found if pull.state == "open"), found[0] if found else None)

    def open(self, order: Order) -> PullRequest:
        """Opens a pull request, or finds the branch's."""
        _raise_next(self.before["open"])
        with self._lock:
            pull = next((one for one in self.pulls() if is_for(one, order)), None)
            if pull is None:
                number = len(self._pulls) + 1
                pull = PullRequest(repository=self.name, number=number, created=0.0, **order.model_dump())
                self._pulls[number] = pull
        _raise_next(self.after["open"])
        return pull

    def dress(self, number: int, dressing: Dressing) -> tuple[str, ...]:
        """Remembers it."""
        _raise_next(self.before["dress"])
        self.dressed[number] = dressing
        _raise_next(self.after["dress"])
        return self.will_not_wear

    def report(self, commit: str, status: Status) -> None:
        """Remembers it."""
        _raise_next(self.before["report"])
        self.statuses[commit] = status
        _raise_next(self.after["report"])

    def revise(self, number: int, title: str, body: str) -> None:
        """New words."""
        _raise_next(self.before["revise"])
        self._pulls[number] = self._pulls[number].model_copy(update={"title": title, "body": body})
        _raise_next(self.after["revise"])

    def close(self, number: int) -> None:
        """Closes one."""
        _raise_next(self.before["close"])
        self._pulls[number] = self._pulls[number].model_copy(update={"state": "closed"})
        _raise_next(self.after["close"])

    def visibility(self) -> Visibility:
        """As the test wants it."""
        return self.seen_by

    def pulls(self) -> tuple[PullRequest, ...]:
        """All, newest first."""
        return tuple(self.pull(number) for number in sorted(self._pulls, reverse=True))

    def pull(self, number: int) -> PullRequest:
        """One of them."""
        if number not in self._pulls:
            raise AbsentError(f"{self.name} has no pull request {number}")
        pull = self._pulls[number]
        head = self.branches.get(pull.branch) if pull.state == "open" else None
        if head is None or not self.git.succeeds("merge-base", "--is-ancestor", pull.commit, head):
            return pull
        return pull.model_copy(update={"commit": head})

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


class PretendTracker:
    """Conversations that a test writes: ``threads``, ``permissions``, ``labels`` (issue, label -> login), and so on."""

    def __init__(self) -> None:
        self.account: str | None = "swarm-bot"
        self.threads: dict[int, Thread] = {}
        self.news: list[Seen] = []
        self.labels: dict[tuple[int, str], str] = {}
        self.permissions: dict[str, Permission] = {}
        self.runs: dict[str, tuple[Check, ...]] = {}
        self.reviewed: dict[int, tuple[Note, ...]] = {}
        self.conflicts: dict[int, bool | None] = {}
        self.notes: dict[tuple[int, str], str] = {}

    def me(self) -> str | None:
        """Nobody the test knows."""
        return self.account

    def thread(self, number: int) -> Thread:
        """One that the test put there."""
        if number not in self.threads:
            raise AbsentError(f"there is no issue {number}")
        return self.threads[number]

    def look(self, marks: Mapping[str, str]) -> Seen:
        """The next of ``news``."""
        return self.news.pop(0) if self.news else Seen(marks=marks)

    def labelled_by(self, number: int, label: str) -> str | None:
        """As the test said."""
        return self.labels.get((number, label))

    def permission(self, login: str) -> Permission:
        """As the test said; none otherwise."""
        return self.permissions.get(login, "none")

    def checks(self, commit: str) -> tuple[Check, ...]:
        """As the test said."""
        return self.runs.get(commit, ())

    def reviews(self, number: int) -> tuple[Note, ...]:
        """As the test said."""
        return self.reviewed.get(number, ())

    def mergeable(self, number: int) -> bool | None:
        """As the test said."""
        return self.conflicts.get(number)

    def note(self, number: int, marker: str, text: str) -> str:
        """Remembers it."""
        self.notes[number, marker] = text
        return f"https://forge.example/{number}#note"


def copy(source: GitDir, into: GitDir, commit: str) -> None:
    """Copies a commit and all that it reaches from one git directory to another, by a pack."""
    pack = source.run("pack-objects", "--quiet", "--revs", "--stdout", stdin=[f"{commit}\n".encode()])
    into.run("index-pack", "--stdin", "--strict", stdin=[pack])


def _raise_next(errors: list[Exception]) -> None:
    if errors:
        raise errors.pop(0)
