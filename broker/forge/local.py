"""The embedded forge: a bare repository on this machine. Pull requests are refs/pull/N/head and one record each."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import ValidationError

from broker.config.settings import Identity
from broker.errors import AbsentError, ConfigError, ConflictError, ForgeError, GitError
from broker.forge.base import Order, is_for
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
        self._records = records
        self._identity = identity
        self._lend = lend
        records.mkdir(parents=True, exist_ok=True, mode=0o700)

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
        self.object_format()
        return self._git.commit_of(f"refs/heads/{branch}")

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

    def push(self, source: GitDir, commit: str, branch: str) -> bool:
        """Creates the branch; an existing one is left as it is."""
        ref = f"refs/heads/{branch}"
        options = ("--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
        create_only = f"--force-with-lease={ref}:"  # an empty expectation: the ref must not exist
        try:
            with self._lend(Scope.PUSH):  # a local repository needs no token; that it can be had is still made sure
                source.run(
                    "push",
                    *options,
                    create_only,
                    "--",
                    str(self._git.path),
                    f"{commit}:{ref}",
                    limits=_LARGE,
                    protocols="file",
                )
        except ConfigError as error:
            raise self._failed("the credential cannot be opened", error) from None
        except GitError as error:
            if self.head(branch) is not None:
                return False
            raise self._failed(f"branch {branch} could not be created", error) from None
        if self.head(branch) != commit:
            raise ForgeError(f"the branch {branch} is not on the commit that was pushed")
        return True

    def open(self, order: Order) -> PullRequest:
        """Writes the record, then the ref; both steps can be repeated."""
        known = next((pull for pull in self.pulls() if is_for(pull, order)), None)
        pull = known or self._record(order)
        try:
            self._git.run("update-ref", f"refs/pull/{pull.number}/head", pull.commit)
        except GitError as error:
            raise self._failed(f"refs/pull/{pull.number}/head could not be written", error) from None
        return pull

    def _record(self, order: Order) -> PullRequest:
        number = max((pull.number for pull in self.pulls()), default=0) + 1
        pull = PullRequest(repository=self._name, number=number, created=time.time(), **order.model_dump())
        self._write(pull)
        return pull

    def _write(self, pull: PullRequest) -> None:
        draft = self._records / f".{pull.number}.draft"
        with draft.open("w") as file:
            file.write(pull.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._records / f"{pull.number}.json")
        folder = os.open(self._records, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def pulls(self) -> tuple[PullRequest, ...]:
        """All records, newest first."""
        numbers = sorted((int(file.stem) for file in self._records.glob("[0-9]*.json")), reverse=True)
        return tuple(self.pull(number) for number in numbers)

    def pull(self, number: int) -> PullRequest:
        """One record."""
        file = self._records / f"{number}.json"
        try:
            return PullRequest.model_validate_json(file.read_text())
        except FileNotFoundError:
            raise AbsentError(f"{self._name} has no pull request {number}", "swarm-broker pr list shows them") from None
        except ValidationError:
            raise ForgeError(f"the record of pull request {number} is damaged", f"repair or remove {file}") from None

    def diff(self, number: int, limit: int) -> tuple[str, bool]:
        """From the recorded base to the head; no driver, filter or rename search of the repository's is run."""
        pull = self.pull(number)
        options = ("-r", "-p", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--full-index")
        parts, size = [], 0
        output = self._git.stream("diff-tree", *options, pull.base_commit, pull.commit)
        for chunk in output:
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                output.close()
                break
        return b"".join(parts)[:limit].decode(errors="replace"), size > limit

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
        self._write(done)
        return done

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
