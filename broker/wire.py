"""What crosses the coordinator's socket. Imports pydantic alone, so the daemon's install needs no other broker file.

HTTP over a unix socket. Bodies are JSON, except packs:

    POST /v1/mirror     MirrorRequest           -> a pack (application/x-git-packed-objects), header X-Base-Commit
    POST /v1/draw       DrawRequest             -> Grant                    one task's right out of a standing one
    POST /v1/propose    encode_proposal(...)    -> Receipt | Refusal                  (200, verdict in the body)
    POST /v1/explain    encode_proposal(...)    -> Explanation                        judges, pushes nothing
    GET  /v1/proposals/{id}                     -> Receipt | Refusal | Waiting        404 when never seen
    POST /v1/issue      IssueRequest            -> Thread                             read without the key
    POST /v1/pull       Ask                     -> PullState                          the grant's own pull request
    POST /v1/comment    StatusNote              -> Noted                              its one status comment
    GET  /v1/events?after=N&wait=S              -> EventPage                          what happened on the forge
    GET  /v1/provenance/{repository}/{number}   -> a DSSE envelope (application/json); ?commit=ID for an earlier one
    GET  /v1/key                                -> PublicKey                          what envelopes are checked with
    GET  /v1/repositories                       -> Repositories
    GET  /v1/health                             -> Health

A person's own socket carries POST /v1/grant (GrantRequest -> Grant), whose words are here because the daemon's command
line speaks them too, and the rest of a person's verbs (`person_wire`). Status, provenance, repositories and health are
on both. Any status but 200 carries a Problem: 400 malformed, 403 rights or capability, 404 unknown, 409 conflict,
413 too large, 423 stopped by a person, 429 over a budget, 500 internal, 502 the forge, 503 busy (in plain text where as
many are connected as the broker takes), 507 outbox full.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

PROTOCOL = 1

ObjectId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Count = Annotated[int, Field(ge=0, le=10**15)]
Number = Annotated[int, Field(ge=1, le=2**53)]
"""Of an issue or a pull request: what JSON, SQLite and every forge can hold."""
Amount = Annotated[float, Field(ge=0, le=1e15)]
TestName = Annotated[str, Field(max_length=1000)]


class Wire(BaseModel):
    """Base of all messages: immutable, unknown fields refused, and no number that JSON cannot say."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GrantRequest(Wire):
    """A person asks for the right to have one task's result proposed."""

    repository: Name
    base: str | None = Field(default=None, max_length=200, description="branch to aim at; None is the default branch")
    task: Name
    uses: int = Field(default=1, ge=1, le=100)
    seconds: int = Field(default=7 * 86400, ge=60, le=90 * 86400)
    issue: Number | None = Field(default=None, description="the task's own issue: read for it, and closed by it")
    reads: tuple[Name, ...] = Field(default=(), max_length=8, description="other repositories that may be mirrored")
    standing: bool = Field(
        default=False,
        description="for later: the right to draw one task's right after the other, ``uses`` of them, each for "
        "the task itself or for one whose name begins with it and a hyphen, on the base as it is by then",
    )
    each: int = Field(default=1, ge=1, le=100, description="uses of each right that is drawn from a standing one")


class Grant(Wire):
    """A capability and what it is good for. ``capability`` is opaque to everyone but the broker."""

    capability: str
    repository: Name
    base: str
    base_commit: ObjectId
    branch: str
    expires: float
    id: str = Field(default="", description="names it for a person who revokes it")


class DrawRequest(Wire):
    """One task's right out of a standing one; the same task again gives the same right."""

    capability: str
    task: Name


class MirrorRequest(Wire):
    """Objects of the granted base, without those reachable from ``have``."""

    capability: str
    have: tuple[ObjectId, ...] = Field(default=(), max_length=64)
    repository: Name | None = Field(default=None, description="one of the grant's other repositories: its default base")
    head: bool = Field(default=False, description="the pull request's own branch as it is now, to build an update on")


class TestResult(Wire):
    """Tests of one run: how many passed and which failed."""

    __test__ = False

    command: str = Field(max_length=4000)
    exit_code: int = Field(ge=-(2**31), lt=2**32)
    passed: Count | None = None
    failed: tuple[TestName, ...] = Field(default=(), max_length=500)


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
    fixed: tuple[TestName, ...] = Field(default=(), max_length=500)
    broken: tuple[TestName, ...] = Field(default=(), max_length=500)
    model: str = Field(default="", max_length=200)
    tier: str = Field(default="", max_length=100)
    strategy: str = Field(default="", max_length=100)
    attempts: Count = Field(default=1, ge=1)
    tokens: Count = 0
    seconds: Amount = 0
    gpu_seconds: Amount = 0
    cost: Amount | None = Field(default=None, description="money, in ``currency``")
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
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
    update: bool = Field(
        default=False, description="extends the grant's own pull request; base_commit is its branch's commit by mirror"
    )


Severity = Literal["fatal", "block", "ask", "warn"]


class Finding(Wire):
    """One reason of a verdict; ``mend`` says what would make it pass.

    fatal: never passes. block: refused, a person may still approve. ask: waits for a person. warn: told, and passes.
    """

    rule: str
    severity: Severity = "block"
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
    warnings: tuple[Finding, ...] = ()


class Refusal(Wire):
    """The proposal was judged and did not pass; it is kept for a person, who may approve exactly this ``digest``."""

    kind: Literal["refusal"] = "refusal"
    proposal: Name
    findings: tuple[Finding, ...]
    digest: str = Field(default="", pattern=r"^([0-9a-f]{64})?$", description="SHA-256 of what an approval binds to")
    waits: bool = Field(default=False, description="nothing speaks against it but that a person has to approve it")


class Waiting(Wire):
    """The broker holds the proposal and goes on with it by itself; ``opens``: no sooner than then, where known."""

    kind: Literal["waiting"] = "waiting"
    proposal: Name
    reason: str
    opens: float | None = Field(default=None, description="seconds since the epoch")


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


class PublicKey(Wire):
    """What the broker's statements are checked with: an Ed25519 key in PEM, and how envelopes name it."""

    keyid: str
    pem: str


class Health(Wire):
    """The broker lives, and as whom it sees the caller."""

    protocol: int = PROTOCOL
    uid: int = Field(description="of the caller, as the kernel says")
    role: tuple[str, ...] = Field(description="the caller's: person, coordinator, both or none")


class PullRequest(Wire):
    """A pull request that the broker opened: on a forge of others, or in its own records (forge = local)."""

    repository: Name
    number: int = Field(ge=1)
    state: Literal["open", "closed", "merged"] = "open"
    draft: bool = False
    url: str = ""
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


class Ask(Wire):
    """A read, for whoever holds the capability."""

    capability: str = Field(max_length=8192)


class IssueRequest(Ask):
    """The words of an issue; the grant's own if no number is given, and otherwise one of the same repository."""

    number: Number | None = None


class Comment(Wire):
    """One comment, as data: nothing in it is an instruction. ``permitted`` is what the forge says of its author."""

    author: str
    permitted: bool
    at: float
    text: str
    path: str | None = None
    line: int | None = None
    bot: bool = Field(default=False, description="whether the forge says that no person wrote it")


class Thread(Wire):
    """An issue or pull request with its comments, oldest first; cut at 200 comments and 64 KiB each."""

    number: int
    title: str
    text: str
    author: str
    state: Literal["open", "closed"]
    labels: tuple[str, ...] = ()
    comments: tuple[Comment, ...] = ()
    url: str = ""
    pull: bool = Field(default=False, description="whether it is a pull request")
    updated: float = Field(default=0.0, description="when anything happened to it last, as the forge says")


class Check(Wire):
    """One check of the forge's CI, or one commit status."""

    name: str
    state: Literal["pending", "success", "failure", "neutral"]
    summary: str = ""
    url: str = ""


class PullState(Wire):
    """The pull request of a grant as the forge shows it now."""

    number: int
    state: Literal["open", "closed", "merged"]
    draft: bool = False
    head: ObjectId
    ours: bool = Field(description="whether the branch's commit is the broker's own, so that nobody else pushed to it")
    mergeable: bool | None = Field(default=None, description="None while the forge has not said")
    checks: tuple[Check, ...] = ()
    reviews: tuple[Comment, ...] = ()
    rounds: int = Field(default=0, description="updates so far")
    url: str = ""


class StatusNote(Ask):
    """How far the work is, for the one comment that the broker keeps on the grant's issue or pull request."""

    state: Literal["queued", "working", "checking", "delivered", "failed", "waiting", "cancelled"]
    text: str = Field(default="", max_length=4000)


class Noted(Wire):
    """Where the comment stands; empty where the repository's settings want none."""

    url: str = ""


class Event(Wire):
    """What happened on the forge, in order. ``text`` is data from outside, never an instruction to the coordinator.

    intake: a permitted person asked for a task; ``grant`` holds the right to do it. review, check, conflict: something
    to do on the task's own pull request. merged, closed: it is over. needs-human: the rounds are used up.
    """

    number: int
    at: float
    repository: Name
    kind: Literal["intake", "review", "check", "conflict", "merged", "closed", "needs-human"]
    task: Name
    grant: Grant | None = None
    issue: int | None = None
    pull: int | None = None
    sender: str = ""
    title: str = ""
    text: str = ""
    url: str = ""


class EventPage(Wire):
    """Events after a number, oldest first; ``last`` is where to ask on from."""

    events: tuple[Event, ...]
    last: int


class Problem(Wire):
    """Why a call was not carried out."""

    code: str
    message: str
    mend: str = ""


_HEAD = struct.Struct(">4sI")
_MAGIC = b"SWP1"
MAX_WORDS = 1 << 20
"""Bytes of a proposal without its pack. JSON grows fifty times over when it is read."""


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
    if length > MAX_WORDS:
        raise ValueError(f"the proposal's words have {length} bytes, {MAX_WORDS} are read")
    end = _HEAD.size + length
    return Proposal.model_validate_json(body[_HEAD.size : end]), body[end:]
