"""What crosses the broker's socket. Imports pydantic alone, so the daemon's install needs no other broker file.

HTTP over a unix socket. Bodies are JSON, except packs:

    POST /v1/grant      GrantRequest            -> Grant                              a person's right
    POST /v1/mirror     MirrorRequest           -> a pack (application/x-git-packed-objects), header X-Base-Commit
    POST /v1/propose    encode_proposal(...)    -> Receipt | Refusal                  (200, verdict in the body)
    POST /v1/explain    encode_proposal(...)    -> Explanation                        judges, pushes nothing
    GET  /v1/proposals/{id}                     -> Receipt | Refusal                  404 when never seen
    GET  /v1/repositories                       -> Repositories
    GET  /v1/health                             -> Health
    GET  /v1/log?after=N                        -> LogPage                            a person's right
    GET  /v1/outbox                             -> Outbox                             a person's right
    GET  /v1/outbox/{id}                        -> KeptProposal                       a person's right
    POST /v1/outbox/{id}/discard                -> KeptProposal                       a person's right
    GET  /v1/pulls/{repository}                 -> PullRequests                       a person's right
    GET  /v1/pulls/{repository}/{number}        -> PullRequestView                    a person's right
    POST /v1/pulls/{repository}/{number}/merge  -> PullRequest                        a person's right

Rights not marked as a person's are the coordinator's; status and repositories are open to both, health to anyone who
can connect. Any other status carries a Problem: 400 malformed, 403 rights or capability, 404 unknown, 409 conflict,
413 too large, 500 internal, 502 the forge, 503 busy, 507 outbox full.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

PROTOCOL = 1

ObjectId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]


class Wire(BaseModel):
    """Base of all messages: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class GrantRequest(Wire):
    """A person asks for the right to have one task's result proposed."""

    repository: Name
    base: str | None = Field(default=None, max_length=200, description="branch to aim at; None is the default branch")
    task: Name
    uses: int = Field(default=1, ge=1, le=100)
    seconds: int = Field(default=7 * 86400, ge=60, le=90 * 86400)


class Grant(Wire):
    """A capability and what it is good for. ``capability`` is opaque to everyone but the broker."""

    capability: str
    repository: Name
    base: str
    base_commit: ObjectId
    branch: str
    expires: float


class MirrorRequest(Wire):
    """Objects of the granted base, without those reachable from ``have``."""

    capability: str
    have: tuple[ObjectId, ...] = Field(default=(), max_length=64)


class TestResult(Wire):
    """Tests of one run: how many passed and which failed."""

    __test__ = False

    command: str = Field(max_length=4000)
    exit_code: int
    passed: int | None = Field(default=None, ge=0)
    failed: tuple[str, ...] = Field(default=(), max_length=500)


class SandboxProof(Wire):
    """What the coordinator's sandboxes proved from inside before anything ran in one."""

    backend: str = Field(max_length=40)
    version: str = Field(default="", max_length=100)
    claims: tuple[Annotated[str, Field(max_length=120)], ...] = Field(default=(), max_length=64)
    detail: dict[Annotated[str, Field(max_length=40)], Annotated[str, Field(max_length=200)]] = Field(
        default_factory=dict, max_length=16
    )
    digest: str = Field(default="", pattern=r"^([0-9a-f]{64})?$", description="SHA-256 of the whole record")


class Evidence(Wire):
    """What the coordinator observed; shown in the pull request as its claim, never used to relax policy."""

    before: TestResult | None = None
    after: TestResult | None = None
    fixed: tuple[str, ...] = Field(default=(), max_length=500)
    broken: tuple[str, ...] = Field(default=(), max_length=500)
    model: str = Field(default="", max_length=200)
    tier: str = Field(default="", max_length=100)
    strategy: str = Field(default="", max_length=100)
    attempts: int = Field(default=1, ge=1)
    tokens: int = Field(default=0, ge=0)
    seconds: float = Field(default=0, ge=0)
    sandbox: str = Field(default="", max_length=200)
    proof: SandboxProof | None = None


class Proposal(Wire):
    """A sealed tree offered for delivery. Forge, remote, branch and policy follow from the capability alone."""

    id: Name
    capability: str = Field(max_length=8192)
    task: Name
    base_commit: ObjectId
    tree: ObjectId
    title: str = Field(max_length=500)
    body: str = Field(default="", max_length=64_000)
    evidence: Evidence = Evidence()


class Finding(Wire):
    """One reason of a verdict; ``mend`` says what would make it pass."""

    rule: str
    message: str
    path: str | None = None
    mend: str = ""


class Receipt(Wire):
    """The proposal is on the forge."""

    kind: Literal["receipt"] = "receipt"
    proposal: Name
    pull_request: str
    number: int
    branch: str
    commit: ObjectId
    url: str = ""


class Refusal(Wire):
    """The proposal was judged and refused; it is kept for a person."""

    kind: Literal["refusal"] = "refusal"
    proposal: Name
    findings: tuple[Finding, ...]


class Explanation(Wire):
    """Every finding at once, and the files as the broker sees them."""

    allowed: bool
    findings: tuple[Finding, ...]
    files: tuple[str, ...]


class RepositoryInfo(Wire):
    """A repository that the broker knows, without its address."""

    name: Name
    forge: str
    default_base: str


class Repositories(Wire):
    """All of them."""

    repositories: tuple[RepositoryInfo, ...]


class Health(Wire):
    """The broker lives, and as whom it sees the caller."""

    protocol: int = PROTOCOL
    uid: int = Field(description="of the caller, as the kernel says")
    role: tuple[str, ...] = Field(description="the caller's: person, coordinator, both or none")


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


class KeptProposal(Wire):
    """A proposal as the outbox holds it. ``title`` and ``body`` are the caller's words, not cleaned."""

    id: Name
    repository: Name
    task: Name
    state: Literal["judging", "pushing", "delivered", "refused"]
    at: float
    size: int = Field(description="bytes kept on disk")
    title: str = ""
    body: str = ""
    base_commit: ObjectId
    tree: ObjectId
    verdict: Receipt | Refusal | None = Field(default=None, discriminator="kind")


class Outbox(Wire):
    """What is kept, newest first, and how much room is left."""

    proposals: tuple[KeptProposal, ...]
    entries_left: int
    bytes_left: int


class PullRequest(Wire):
    """A pull request on a forge whose records the broker keeps (forge = local)."""

    repository: Name
    number: int = Field(ge=1)
    state: Literal["open", "merged"] = "open"
    title: str
    body: str
    branch: str
    base: str
    base_commit: ObjectId
    commit: ObjectId
    task: Name
    proposal: Name
    evidence: Evidence = Evidence()
    created: float
    merged_commit: ObjectId | None = None
    merged_by: str = ""


class PullRequests(Wire):
    """All of a repository, newest first."""

    pulls: tuple[PullRequest, ...]


class PullRequestView(Wire):
    """One of them with what it changes, as a unified diff that may be cut."""

    pull: PullRequest
    diff: str
    cut: bool = False


class Problem(Wire):
    """Why a call was not carried out."""

    code: str
    message: str
    mend: str = ""


_HEAD = struct.Struct(">4sI")
_MAGIC = b"SWP1"


def encode_proposal(proposal: Proposal, pack: bytes) -> bytes:
    """A proposal and its pack, a self-contained one, as one body: magic, length of the JSON, JSON, pack."""
    head = proposal.model_dump_json().encode()
    return _HEAD.pack(_MAGIC, len(head)) + head + pack


def decode_proposal(body: bytes) -> tuple[Proposal, bytes]:
    """The reverse. Raises ValueError for a body that is none (pydantic's ValidationError is one)."""
    if len(body) < _HEAD.size:
        raise ValueError("the body is too short for a proposal")
    magic, length = _HEAD.unpack_from(body)
    if magic != _MAGIC or length > len(body) - _HEAD.size:
        raise ValueError("the body is not a proposal")
    end = _HEAD.size + length
    return Proposal.model_validate_json(body[_HEAD.size : end]), body[end:]
