"""What a forge can do for the broker: a repository's branches and pull requests, and its conversations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from broker.gitdir import GitDir
from broker.wire import Check, Comment, Evidence, PullRequest, Thread

Visibility = Literal["public", "private", "unknown"]
Permission = Literal["none", "read", "triage", "write", "maintain", "admin"]


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
    draft: bool = True


class Dressing(BaseModel):
    """What a pull request bears beside its words; each part may be put on again without harm."""

    model_config = ConfigDict(frozen=True)

    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    team_reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()


class Status(BaseModel):
    """A commit status: the broker's verdict under a context of its own."""

    model_config = ConfigDict(frozen=True)

    context: str = "agent-swarm/broker"
    state: Literal["pending", "success", "failure"]
    description: str = ""
    url: str = ""


@dataclass(frozen=True)
class Checked:
    """One thing that a person should know before the first proposal, with its mend."""

    name: str
    state: Literal["ok", "warn", "fail"]
    message: str
    mend: str = ""


@runtime_checkable
class Examiner(Protocol):
    """A forge that can say more about its credential and rules than a doctor finds out by using it."""

    def examine(self, base: str, prefix: str) -> tuple[Checked, ...]:
        """Whether the credential's rights are enough and not too many, and whether a rule of the forge stands in the
        way of branches under ``prefix`` and pull requests on ``base``. Reads only; raises ForgeError.
        """


def is_for(pull: PullRequest, order: Order) -> bool:
    """Whether a pull request is the one that the order asks for, opened before, or stands in its way.

    One that was merged or closed is not, though a removed branch's name may come back with other work.
    """
    return pull.branch == order.branch and (pull.commit == order.commit or pull.state == "open")


class Forge(Protocol):
    """One repository on one forge. Blocking. All methods raise ForgeError when the forge does not do what was asked.

    Each asks its ``Lend`` for the least scope that it needs, for as long as it needs it.
    """

    def object_format(self) -> str:
        """sha1 or sha256."""

    def visibility(self) -> Visibility:
        """Who can read the repository now, as the forge says."""

    def head(self, branch: str) -> str | None:
        """The commit that a branch is on now; None if there is no such branch."""

    def fetch(self, branch: str, into: GitDir) -> str | None:
        """Brings a branch's commit with its history into a git directory and returns it; None if there is none."""

    def push(self, source: GitDir, commit: str, branch: str, expected: str | None = None) -> bool:
        """Puts the branch on the commit: created if ``expected`` is None, else moved forward from exactly there.

        False if the branch is not as expected: it is then left as it is. Never forced, never a tag, one ref.
        """

    def find(self, branch: str, base: str) -> PullRequest | None:
        """The pull request of a branch: the open one, else the newest."""

    def open(self, order: Order) -> PullRequest:
        """Opens the pull request, or returns the one that the branch already has (see `is_for`)."""

    def dress(self, number: int, dressing: Dressing) -> tuple[str, ...]:
        """Puts labels, reviewers and assignees on; returns what the forge would not take, in words."""

    def report(self, commit: str, status: Status) -> None:
        """Sets a commit status."""

    def revise(self, number: int, title: str, body: str) -> None:
        """Gives an open pull request of the broker's own new words."""

    def close(self, number: int) -> None:
        """Closes a pull request without merging it."""

    def pulls(self) -> tuple[PullRequest, ...]:
        """All pull requests that the broker opened here, newest first."""

    def pull(self, number: int) -> PullRequest:
        """One of them. Raises AbsentError."""

    def diff(self, number: int, limit: int) -> tuple[str, bool]:
        """What it changes as a unified diff, at most ``limit`` bytes, and whether it was cut. Raises AbsentError."""

    def merge(self, number: int, by: str) -> PullRequest:
        """Local forges alone: merges it, fast-forward where possible. Raises AbsentError and ConflictError."""


@dataclass(frozen=True)
class Seen:
    """One look at what changed: issues and comments since the last look, and where to look on from.

    ``marks`` (ETags, times, ids) are the tracker's own and are kept between looks, so that a look that finds nothing
    costs a conditional request.
    """

    threads: tuple[Thread, ...] = ()
    notes: tuple[Note, ...] = ()
    marks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Note:
    """A new comment on an issue, or with ``pull`` on a pull request, with the id that makes it be seen once."""

    id: str
    number: int
    comment: Comment
    pull: bool = False


@dataclass(frozen=True)
class Labelled:
    """Who put a label on an issue last, and when they last did something to that issue, by the forge's clock."""

    by: str
    at: float


class Tracker(Protocol):
    """The conversations of one repository. Blocking; raises ForgeError. Every word it returns is foreign data.

    ``Comment.permitted`` is False in all that it returns: whoever needs to know asks `permission` for the login.
    """

    def me(self) -> str | None:
        """The login that the credential acts as; None where the forge does not tell."""

    def thread(self, number: int, *, pull: bool = False) -> Thread:
        """An issue, or with ``pull`` a pull request, with its comments. Raises AbsentError.

        Most forges number both in one row and need no ``pull``; GitLab counts them apart.
        """

    def look(self, marks: Mapping[str, str]) -> Seen:
        """What is new since ``marks``; conditional requests where the forge knows them.

        With no marks at all it returns nothing but marks from which the next look goes on: what was there before the
        first look starts nothing. An item may be returned again (the caller remembers ids), but none may be skipped,
        also not one that is written in the same second as the look, or beyond the first page: where there is more than
        one look may fetch, the marks stay behind what was left out. Threads come without comments.
        """

    def labelled_by(self, number: int, label: str) -> Labelled | None:
        """Who put a label on an issue, as the forge recorded it; None if nobody did, it is off, or it does not tell."""

    def permission(self, login: str) -> Permission:
        """What somebody may do in the repository, asked of the forge now."""

    def checks(self, commit: str) -> tuple[Check, ...]:
        """Checks and statuses of a commit, without the broker's own."""

    def reviews(self, number: int) -> tuple[Note, ...]:
        """Review comments on a pull request, oldest first."""

    def mergeable(self, number: int) -> bool | None:
        """Whether it merges without conflict; None while the forge has not said."""

    def note(self, number: int, marker: str, text: str, *, pull: bool = False) -> str:
        """Writes or rewrites the one comment of its own that bears the hidden ``marker``; returns its address.

        ``text`` holds the marker. A comment of somebody else that holds it too is left alone.
        """
