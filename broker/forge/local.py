"""The embedded forge: a bare repository on this machine. Pull requests are refs/pull/N/head and one record each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from broker.config.settings import Identity
from broker.diffs import diff_of
from broker.errors import ConfigError, ConflictError, ForgeError, GitError
from broker.forge.base import Dressing, Order, Status, Visibility, is_for
from broker.forge.local_records import Records
from broker.gitdir import GitDir, Limits
from broker.scope import Lend, Scope
from broker.wire import PullRequest

_LARGE = Limits(seconds=600.0, cpu=600, memory=8 << 30)
_MEND = "the operator looks at the bare repository: it must exist and belong to the broker's user"


class LocalForge:
    """One bare repository; ``records`` is a folder of the broker's state, ``lend`` gives the credential for a push."""

    def __init__(self, name: str, path: Path, records: Path, identity: Identity, lend: Lend) -> None:
        self._name = name
        self._git = GitDir(path)
        self.records = Records(name, records)
        self._identity = identity
        self._lend = lend

    def object_format(self) -> str:
        """sha1 or sha256."""
        try:
            return self._git.text("rev-parse", "--show-object-format")
        except GitError as error:
            raise self._failed("no usable bare repository", error) from None

    def _failed(self, what: str, error: Exception) -> ForgeError:
        # The coordinator may see this: it learns the repository's name, not its place.
        return ForgeError(f"{what} in {self._name}: {str(error).replace(str(self._git.path), self._name)}", _MEND)

    def head(self, branch: str) -> str | None:
        """The commit that a branch is on now."""
        found = self._head(branch)
        if found is None:
            self.object_format()  # an unusable repository is not one without the branch
        return found

    def fetch(self, branch: str, into: GitDir) -> str | None:
        """Brings the branch into ``into``; what the forge already holds is not checked again with fsck."""
        if self.head(branch) is None:
            return None
        refs = f"+refs/heads/{branch}:refs/heads/{branch}"
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        try:
            into.run("fetch", *options, "--", str(self._git.path), refs, limits=_LARGE, protocols="file")
        except GitError as error:
            raise self._failed(f"branch {branch} could not be read", error) from None
        return into.commit_of(f"refs/heads/{branch}")

    def push(self, source: GitDir, commit: str, branch: str, expected: str | None = None) -> bool:
        """Creates the branch, or moves it forward from exactly ``expected``; else it is left as it is."""
        ref = f"refs/heads/{branch}"
        if expected is not None and not source.succeeds("merge-base", "--is-ancestor", expected, commit):
            return False  # the lease alone would let a push throw commits away
        options = ("--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
        lease = f"--force-with-lease={ref}:{expected or ''}"  # an empty expectation: the ref must not exist
        target = ("--", str(self._git.path), f"{commit}:{ref}")
        try:
            with self._lend(Scope.PUSH):  # a local repository needs no token; that it can be had is still made sure
                source.run("push", *options, lease, *target, limits=_LARGE, protocols="file")
        except ConfigError as error:
            raise self._failed("the credential cannot be opened", error) from None
        except GitError as error:
            if self.head(branch) != expected:
                return False
            raise self._failed(f"branch {branch} could not be written", error) from None
        if self.head(branch) != commit:
            raise ForgeError(f"the branch {branch} is not on the commit that was pushed")
        return True

    def find(self, branch: str, base: str) -> PullRequest | None:
        """The open one of the branch, else the newest."""
        found = [pull for pull in self._of(branch) if pull.base == base]
        return next((pull for pull in found if pull.state == "open"), found[0] if found else None)

    def open(self, order: Order) -> PullRequest:
        """Writes the record, then the ref; both steps can be repeated."""
        known = next((pull for pull in self._of(order.branch) if is_for(pull, order)), None)
        pull = known or self._record(order)
        try:
            self._git.run("update-ref", f"refs/pull/{pull.number}/head", pull.commit)
        except GitError as error:
            raise self._failed(f"refs/pull/{pull.number}/head could not be written", error) from None
        return pull

    def _record(self, order: Order) -> PullRequest:
        number = max(self.records.numbers(), default=0) + 1
        pull = PullRequest(repository=self._name, number=number, created=time.time(), **order.model_dump())
        self.records.write(pull)
        return pull

    def dress(self, number: int, dressing: Dressing) -> tuple[str, ...]:
        """Nothing of it can be put on here; that is said."""
        self.pull(number)
        asked = [what.replace("_", " ") for what, names in dressing.model_dump().items() if names]
        return (f"a local repository knows no {', '.join(asked)}",) if asked else ()

    def report(self, commit: str, status: Status) -> None:
        """Keeps the status in the records."""
        self.records.report(commit, status)

    def revise(self, number: int, title: str, body: str) -> None:
        """New words for an open one."""
        self._change(number, title=title, body=body)

    def close(self, number: int) -> None:
        """Closes an open one; the branch stays."""
        self._change(number, state="closed")

    def _change(self, number: int, **what: str) -> None:
        pull = self.pull(number)
        if pull.state != "open":
            raise ConflictError(f"pull request {number} is already {pull.state}")
        self.records.write(pull.model_copy(update=what))

    def visibility(self) -> Visibility:
        """A folder of this machine that belongs to the broker's user."""
        return "private"

    def pulls(self) -> tuple[PullRequest, ...]:
        """All of them, newest first."""
        lines = self._git.text("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/").splitlines()
        heads = dict(line.split(" ") for line in lines)
        return tuple(self._as_now(self.records.pull(number), heads.get) for number in self.records.numbers())

    def _of(self, branch: str) -> Iterator[PullRequest]:
        """Those of one branch, newest first."""
        for number in self.records.numbers():
            pull = self.records.pull(number)
            if pull.branch == branch:
                yield self._as_now(pull, self._head)

    def pull(self, number: int) -> PullRequest:
        """One of them; an open one is on its branch's commit as long as that goes on from where it was opened."""
        return self._as_now(self.records.pull(number), self._head)

    def _head(self, branch: str) -> str | None:
        return self._git.commit_of(f"refs/heads/{branch}")

    def _as_now(self, pull: PullRequest, head_of: Callable[[str], str | None]) -> PullRequest:
        head = head_of(pull.branch) if pull.state == "open" else None
        if head is None or head == pull.commit or not self._is_ancestor(pull.commit, head):
            return pull
        return pull.model_copy(update={"commit": head})

    def diff(self, number: int, limit: int) -> tuple[str, bool]:
        """From the recorded base to the head; no driver, filter or rename search of the repository's is run."""
        pull = self.pull(number)
        return diff_of(self._git, pull.base_commit, pull.commit, limit)

    def merge(self, number: int, by: str) -> PullRequest:
        """Moves the base branch with its present commit expected, so a push in between is never lost."""
        pull = self.pull(number)
        if pull.state != "open":
            raise ConflictError(f"pull request {number} is already {pull.state}")
        onto = self.head(pull.base)
        if onto is None:
            raise ConflictError(f"the base branch {pull.base} is gone", "create it again")
        merged = self._merged(pull, onto, by)
        if merged != onto:
            try:
                self._git.run("update-ref", f"refs/heads/{pull.base}", merged, onto)
            except GitError as error:
                raise ConflictError(f"{pull.base} could not be moved: {error}", "try again") from None
        done = pull.model_copy(update={"state": "merged", "merged_commit": merged, "merged_by": by})
        self.records.write(done)
        return done

    def merges(self, number: int) -> bool | None:
        """Whether it merges without conflict; None once it is not open or its base is gone. Raises AbsentError."""
        pull = self.pull(number)
        onto = self.head(pull.base)
        if pull.state != "open" or onto is None:
            return None
        return self._git.succeeds("merge-tree", "--write-tree", "--no-messages", onto, pull.commit)

    def _merged(self, pull: PullRequest, onto: str, by: str) -> str:
        if self._is_ancestor(pull.commit, onto):
            return onto
        if self._is_ancestor(onto, pull.commit):
            return pull.commit
        try:
            tree = self._git.text("merge-tree", "--write-tree", "--no-messages", onto, pull.commit).split()[0]
        except GitError:
            mend = "rebase by hand, or submit the task again on the new base"
            raise ConflictError(f"pull request {pull.number} conflicts with {pull.base} as it is now", mend) from None
        message = f"Merge pull request {pull.number}: {pull.title}\n\nMerged-by: {by}\n"
        return self._git.commit_tree(tree, (onto, pull.commit), message, self._identity, int(time.time()))

    def _is_ancestor(self, one: str, other: str) -> bool:
        return self._git.succeeds("merge-base", "--is-ancestor", one, other)
