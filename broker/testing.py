"""A pretend forge for tests: branches and pull requests in memory, objects in one store, failures on request.

Held to the same contract suite as the real forges.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.config.settings import Identity
from broker.errors import AbsentError, ConflictError, GitError
from broker.forge.base import Dressing, Labelled, Note, Order, Permission, Seen, Status, Visibility, is_for
from broker.gitdir import GitDir
from broker.wire import Check, Comment, PullRequest, Thread


class PretendForge:
    """A forge without a forge.

    ``before`` and ``after`` hold, by the name of a step (any method), errors that are raised once each before the step
    does anything, or after it has done everything: a lost answer. ``race`` is called once, right before the next push
    looks at the branch, ``meanwhile`` once while the next fetch is on its way.
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
        self.meanwhile: Callable[[], object] | None = None
        self._pulls: dict[int, PullRequest] = {}
        self._lock = threading.Lock()

    def object_format(self) -> str:
        """Always sha1."""
        return "sha1"

    def head(self, branch: str) -> str | None:
        """The commit that a branch is on now."""
        _raise_next(self.before["head"])
        return self.branches.get(branch)

    def fetch(self, branch: str, into: GitDir) -> str | None:
        """Copies the branch's history."""
        _raise_next(self.before["fetch"])
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
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
        _raise_next(self.before["pull"])
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
    """Conversations that a test writes, looked at in pages of ``most`` items.

    ``before`` holds, by the name of a method, errors that are raised once each before it does anything; ``asked``
    counts the calls of each. What is said or labelled gets the time of ``clock`` unless a test gives one.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.account: str | None = "swarm-bot"
        self.most = 100
        self.before: defaultdict[str, list[Exception]] = defaultdict(list)
        self.asked: Counter[str] = Counter()
        self.threads: dict[int, Thread] = {}
        self.labels: dict[tuple[int, str], Labelled] = {}
        self.permissions: dict[str, Permission] = {}
        self.runs: dict[str, tuple[Check, ...]] = {}
        self.reviewed: dict[int, tuple[Note, ...]] = {}
        self.conflicts: dict[int, bool | None] = {}
        self.notes: dict[tuple[int, str], str] = {}
        self._changes: list[int | Note] = []  # a thread's number, or what was said

    # --- what a test does

    def issue(self, number: int, text: str = "It breaks.", author: str = "reporter", **more: Any) -> Thread:
        """Opens an issue, or a pull request of somebody's with ``pull=True``."""
        values = {"title": f"Issue {number}", "state": "open", "updated": self.clock(), **more}
        self.threads[number] = Thread(number=number, text=text, author=author, **values)
        self._changes.append(number)
        return self.threads[number]

    def label(self, number: int, label: str, by: str | None) -> None:
        """Somebody puts a label on; the forge remembers who, or nobody."""
        self.change(number, labels=(*self.threads[number].labels, label))
        if by is not None:
            self.labels[number, label] = Labelled(by, self.clock())

    def change(self, number: int, **more: Any) -> None:
        """Changes a thread in place: labels, state, text."""
        self.threads[number] = self.threads[number].model_copy(update={**more, "updated": self.clock()})
        self._changes.append(number)

    def say(self, number: int, author: str, text: str, *, at: float | None = None, bot: bool = False) -> Note:
        """Somebody comments."""
        comment = Comment(author=author, permitted=False, at=self.clock() if at is None else at, text=text, bot=bot)
        pull = number in self.threads and self.threads[number].pull
        note = Note(str(len(self._changes) + 1), number, comment, pull=pull)
        self._changes.append(note)
        return note

    def edit(self, note: Note, text: str) -> None:
        """The same comment, with other words: forges show it again as something that changed."""
        self._changes.append(replace(note, comment=note.comment.model_copy(update={"text": text})))

    def review(self, number: int, author: str, text: str, **more: Any) -> Note:
        """Somebody reviews a pull request."""
        values = {"at": self.clock(), "permitted": False, **more}
        note = Note(f"r{self._count(number)}", number, Comment(author=author, text=text, **values))
        self.reviewed[number] = (*self.reviewed.get(number, ()), note)
        return note

    def _count(self, number: int) -> int:
        return number * 1000 + len(self.reviewed.get(number, ()))

    # --- what a tracker does

    def me(self) -> str | None:
        """The broker's own login."""
        self._called("me")
        return self.account

    def thread(self, number: int, *, pull: bool = False) -> Thread:  # noqa: ARG002
        """One that the test put there, with what was said."""
        self._called("thread")
        if number not in self.threads:
            raise AbsentError(f"there is no issue {number}")
        said = {one.id: one.comment for one in self._changes if isinstance(one, Note) and one.number == number}
        return self.threads[number].model_copy(update={"comments": tuple(said.values())[:200]})

    def look(self, marks: Mapping[str, str]) -> Seen:
        """What changed since; nothing but marks the first time."""
        self._called("look")
        since = int(marks.get("change", len(self._changes)))
        page = self._changes[since : since + self.most]
        numbers = list(dict.fromkeys(one for one in page if isinstance(one, int)))
        return Seen(
            threads=tuple(self.threads[number] for number in numbers),
            notes=tuple(one for one in page if isinstance(one, Note)),
            marks={"change": str(since + len(page))},
        )

    def labelled_by(self, number: int, label: str) -> Labelled | None:
        """As the test said."""
        self._called("labelled_by")
        return self.labels.get((number, label))

    def permission(self, login: str) -> Permission:
        """As the test said; none otherwise."""
        self._called("permission")
        return self.permissions.get(login, "none")

    def checks(self, commit: str) -> tuple[Check, ...]:
        """As the test said."""
        self._called("checks")
        return self.runs.get(commit, ())

    def reviews(self, number: int) -> tuple[Note, ...]:
        """As the test said."""
        self._called("reviews")
        return self.reviewed.get(number, ())

    def mergeable(self, number: int) -> bool | None:
        """As the test said."""
        self._called("mergeable")
        return self.conflicts.get(number)

    def note(self, number: int, marker: str, text: str, *, pull: bool = False) -> str:  # noqa: ARG002
        """Remembers it; as on a real forge it is then something new, said by the broker's own account."""
        self._called("note")
        self.notes[number, marker] = text
        self.say(number, self.account or "unknown", text)
        return f"https://forge.example/{number}#note"

    def _called(self, method: str) -> None:
        self.asked[method] += 1
        _raise_next(self.before[method])


def copy(source: GitDir, into: GitDir, commit: str) -> None:
    """Copies a commit and all that it reaches from one git directory to another, by a pack."""
    pack = source.run("pack-objects", "--quiet", "--revs", "--stdout", stdin=[f"{commit}\n".encode()])
    into.run("index-pack", "--stdin", "--strict", stdin=[pack])


def _raise_next(errors: list[Exception]) -> None:
    if errors:
        raise errors.pop(0)
