"""What a forge can do for the broker. One file beside this one for each kind."""

from __future__ import annotations

from typing import Protocol

from pydantic import BaseModel, ConfigDict

from broker.gitdir import GitDir
from broker.wire import Evidence, PullRequest


class Order(BaseModel):
    """A pull request to be opened; every word in it is already cleaned."""

    model_config = ConfigDict(frozen=True)

    title: str
    body: str
    branch: str
    base: str
    base_commit: str
    commit: str
    task: str
    proposal: str
    evidence: Evidence


def is_for(pull: PullRequest, order: Order) -> bool:
    """Whether a pull request is the one that the order asks for, opened before, or stands in its way.

    One that was merged is not, though a removed branch's name may come back with other work.
    """
    return pull.branch == order.branch and (pull.commit == order.commit or pull.state == "open")


class Forge(Protocol):
    """One repository on one forge. Blocking. All methods raise ForgeError when the forge does not do what was asked."""

    def object_format(self) -> str:
        """sha1 or sha256."""

    def head(self, branch: str) -> str | None:
        """The commit that a branch is on now; None if there is no such branch."""

    def fetch(self, branch: str, into: GitDir) -> str | None:
        """Brings a branch's commit with its history into a git directory and returns it; None if there is none."""

    def push(self, source: GitDir, commit: str, branch: str) -> bool:
        """Creates the branch on the commit. False if a branch of that name is there already: it is never moved."""

    def open(self, order: Order) -> PullRequest:
        """Opens the pull request, or returns the one that the branch already has (see `is_for`)."""

    def pulls(self) -> tuple[PullRequest, ...]:
        """All pull requests that the broker opened here, newest first."""

    def pull(self, number: int) -> PullRequest:
        """One of them. Raises AbsentError."""

    def diff(self, number: int, limit: int) -> tuple[str, bool]:
        """What it changes as a unified diff, at most ``limit`` bytes, and whether it was cut. Raises AbsentError."""

    def merge(self, number: int, by: str) -> PullRequest:
        """Merges it, fast-forward where possible. Raises AbsentError, and ConflictError when it cannot be merged."""
