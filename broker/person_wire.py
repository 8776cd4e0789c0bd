"""What crosses a person's own socket: grants, approvals, stops, the log, kept proposals, pull requests.

POST /v1/grant                              GrantRequest -> Grant
GET  /v1/grants                             -> Grants
POST /v1/grants/{id}/revoke                 -> GrantInfo
GET  /v1/outbox                             -> Outbox
GET  /v1/outbox/{id}                        -> KeptProposal                        with the change that it proposes
POST /v1/outbox/{id}/approve                Approval -> Receipt | Refusal
POST /v1/outbox/{id}/discard                -> KeptProposal
GET  /v1/stops                              -> Stops
POST /v1/stops                              StopRequest -> Stops                   the kill switch
GET  /v1/log?after=N                        -> LogPage
GET  /v1/log/head?number=N                  -> a DSSE envelope over number and hash of that line, the last by default
GET  /v1/pulls/{repository}                 -> PullRequests
GET  /v1/pulls/{repository}/{number}        -> PullRequestView
GET  /v1/pulls/{repository}/{number}/commit -> the raw commit that the forge shows now (application/x-git-commit);
                                               ?commit=ID for one below it
POST /v1/pulls/{repository}/{number}/merge  -> PullRequest                         local forges alone
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from broker.wire import Name, ObjectId, PullRequest, Receipt, Refusal, Wire


class GrantInfo(Wire):
    """A grant as the broker knows it, without the capability."""

    id: str
    repository: Name
    task: Name
    base: str
    branch: str
    by: str = Field(description="uid of the person, or who asked for it on the forge")
    at: float
    expires: float
    uses: int
    used: int
    revoked: bool = False


class Grants(Wire):
    """All that are still good, newest first."""

    grants: tuple[GrantInfo, ...]


class Approval(Wire):
    """A person's word for exactly one content; ``digest`` as the refusal names it."""

    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    note: str = Field(default="", max_length=500)


class StopRequest(Wire):
    """Stops (or lets go on) grants and deliveries in one repository, or in all of them."""

    repository: Name | None = None
    stopped: bool
    reason: str = Field(default="", max_length=500)


class Stop(Wire):
    """One stop in force."""

    repository: Name | None = Field(description="None: all of them")
    by: int | None = Field(description="uid of the person; None for enabled = false in broker.toml")
    at: float = Field(description="when; 0 for broker.toml")
    reason: str


class Stops(Wire):
    """All in force."""

    stops: tuple[Stop, ...]


class LogEntry(Wire):
    """One line of the hash-chained log: ``hash`` covers ``previous`` and the line."""

    number: int
    at: float
    event: str
    fields: dict[str, str]
    previous: str
    hash: str


class LogPage(Wire):
    """Lines in order."""

    entries: tuple[LogEntry, ...]


class ChangedFile(Wire):
    """One path that differs, with its modes as git writes them: None before it is there, and after it is gone."""

    path: str
    kind: Literal["added", "modified", "deleted"]
    mode: str | None
    was: str | None


class ProposedChange(Wire):
    """What a proposal changes, read by the broker from exactly the content that its digest names."""

    files: tuple[ChangedFile, ...] = ()
    more: int = Field(default=0, description="files that differ beyond those listed")
    diff: str = Field(default="", description="a unified diff; the agent's words, not cleaned")
    cut: bool = Field(default=False, description="whether the diff is not all of it")
    problem: str = Field(default="", description="why it cannot be shown, or not whole")


class KeptProposal(Wire):
    """A proposal as the outbox holds it. ``title`` and ``body`` are the caller's words, not cleaned."""

    id: Name
    repository: Name
    task: Name
    state: Literal["judging", "pushing", "waiting", "delivered", "refused"]
    at: float
    size: int = Field(description="bytes kept on disk")
    title: str = ""
    body: str = ""
    base_commit: ObjectId
    tree: ObjectId
    verdict: Receipt | Refusal | None = Field(default=None, discriminator="kind")
    digest: str = Field(default="", description="names the content, as an approval must")
    update: bool = Field(default=False, description="whether it extends a pull request that is there")
    reason: str = Field(default="", description="what one that waits is waiting for")
    change: ProposedChange | None = Field(default=None, description="for one that is looked at while it is kept")


class Outbox(Wire):
    """What is kept, newest first, and how much room is left."""

    proposals: tuple[KeptProposal, ...]
    entries_left: int
    bytes_left: int


class PullRequests(Wire):
    """All of a repository, newest first."""

    pulls: tuple[PullRequest, ...]


class PullRequestView(Wire):
    """One of them with what it changes, as a unified diff that may be cut."""

    pull: PullRequest
    diff: str
    cut: bool = False
