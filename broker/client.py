"""The callers' side of both sockets, for the command line and tests. Knows the wires and nothing else of the broker."""

from __future__ import annotations

import errno
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from broker.errors import BrokerError
from broker.person_wire import (
    Approval,
    GrantInfo,
    Grants,
    KeptProposal,
    LogPage,
    Outbox,
    PullRequests,
    PullRequestView,
    StopRequest,
    Stops,
)
from broker.wire import (
    Ask,
    DrawRequest,
    EventPage,
    Explanation,
    Grant,
    GrantRequest,
    Health,
    IssueRequest,
    MirrorRequest,
    Noted,
    Problem,
    PublicKey,
    PullRequest,
    PullState,
    Receipt,
    Refusal,
    Repositories,
    StatusNote,
    Thread,
    Waiting,
)

Model = TypeVar("Model", bound=BaseModel)
_VERDICT: TypeAdapter[Receipt | Refusal] = TypeAdapter(Receipt | Refusal)
_STANDING: TypeAdapter[Receipt | Refusal | Waiting] = TypeAdapter(Receipt | Refusal | Waiting)
_TIMEOUT = httpx.Timeout(600.0, connect=5.0)


class UnreachableError(BrokerError):
    """Nobody listens on the socket."""


class TurnedDownError(BrokerError):
    """The broker answered with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message, problem.mend)
        self.code = problem.code


class Client:
    """One method per verb. Raises UnreachableError and TurnedDownError."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://broker", timeout=_TIMEOUT
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    # --- on both sockets

    def health(self) -> Health:
        """As whom the broker sees the caller."""
        return self._call(Health, "GET", "/v1/health")

    def repositories(self) -> Repositories:
        """What the broker knows."""
        return self._call(Repositories, "GET", "/v1/repositories")

    def proposal(self, proposal: str) -> Receipt | Refusal | Waiting:
        """The verdict on a proposal, or what it waits for."""
        return _STANDING.validate_json(self._send("GET", f"/v1/proposals/{_part(proposal)}"))

    def provenance(self, repository: str, number: int, commit: str | None = None) -> bytes:
        """The signed statement about a pull request's newest commit of the broker's, or about the one named."""
        query = "" if commit is None else f"?commit={_part(commit)}"
        return self._send("GET", f"/v1/provenance/{_part(repository)}/{number}{query}")

    def key(self) -> PublicKey:
        """What statements and the log's heads are checked with."""
        return self._call(PublicKey, "GET", "/v1/key")

    # --- the coordinator's

    def mirror(self, request: MirrorRequest) -> bytes:
        """A pack of the granted base."""
        return self._send("POST", "/v1/mirror", request)

    def draw(self, request: DrawRequest) -> Grant:
        """One task's right out of a standing one."""
        return self._call(Grant, "POST", "/v1/draw", request)

    def propose(self, body: bytes) -> Receipt | Refusal:
        """The verdict on an encoded proposal, carried out if it is good."""
        return _VERDICT.validate_json(self._send("POST", "/v1/propose", body))

    def explain(self, body: bytes) -> Explanation:
        """The verdict on an encoded proposal, without carrying it out."""
        return self._call(Explanation, "POST", "/v1/explain", body)

    def issue(self, request: IssueRequest) -> Thread:
        """An issue's words."""
        return self._call(Thread, "POST", "/v1/issue", request)

    def pull_state(self, request: Ask) -> PullState:
        """The grant's own pull request as the forge shows it."""
        return self._call(PullState, "POST", "/v1/pull", request)

    def comment(self, request: StatusNote) -> Noted:
        """Writes the task's one status comment."""
        return self._call(Noted, "POST", "/v1/comment", request)

    def events(self, after: int, wait: float = 0.0) -> EventPage:
        """What happened on the forge after a number; waits up to ``wait`` seconds for something."""
        return self._call(EventPage, "GET", f"/v1/events?after={after}&wait={wait:g}")

    # --- a person's

    def grant(self, request: GrantRequest) -> Grant:
        """A capability."""
        return self._call(Grant, "POST", "/v1/grant", request)

    def grants(self) -> Grants:
        """Those that are still good."""
        return self._call(Grants, "GET", "/v1/grants")

    def revoke(self, grant: str) -> GrantInfo:
        """Ends one."""
        return self._call(GrantInfo, "POST", f"/v1/grants/{_part(grant)}/revoke")

    def outbox(self) -> Outbox:
        """What waits for a person."""
        return self._call(Outbox, "GET", "/v1/outbox")

    def kept(self, proposal: str) -> KeptProposal:
        """One of them."""
        return self._call(KeptProposal, "GET", f"/v1/outbox/{_part(proposal)}")

    def approve(self, proposal: str, approval: Approval) -> Receipt | Refusal:
        """Has exactly the content that the approval names delivered."""
        return _VERDICT.validate_json(self._send("POST", f"/v1/outbox/{_part(proposal)}/approve", approval))

    def discard(self, proposal: str) -> KeptProposal:
        """Removes a refused one."""
        return self._call(KeptProposal, "POST", f"/v1/outbox/{_part(proposal)}/discard")

    def stops(self) -> Stops:
        """What is stopped."""
        return self._call(Stops, "GET", "/v1/stops")

    def stop(self, request: StopRequest) -> Stops:
        """Stops, or lets go on."""
        return self._call(Stops, "POST", "/v1/stops", request)

    def log(self, after: int) -> LogPage:
        """Lines of the log."""
        return self._call(LogPage, "GET", f"/v1/log?after={after}")

    def log_head(self, number: int | None = None) -> bytes:
        """A signed word for the hash of one line of the log, the last by default."""
        return self._send("GET", "/v1/log/head" + ("" if number is None else f"?number={number}"))

    def pulls(self, repository: str) -> PullRequests:
        """Pull requests of a repository."""
        return self._call(PullRequests, "GET", f"/v1/pulls/{_part(repository)}")

    def pull(self, repository: str, number: int) -> PullRequestView:
        """One with its diff."""
        return self._call(PullRequestView, "GET", f"/v1/pulls/{_part(repository)}/{number}")

    def commit(self, repository: str, number: int, below: str | None = None) -> bytes:
        """The bytes of the commit that a pull request is on now, or of one below it."""
        query = "" if below is None else f"?commit={_part(below)}"
        return self._send("GET", f"/v1/pulls/{_part(repository)}/{number}/commit{query}")

    def merge(self, repository: str, number: int) -> PullRequest:
        """Merges one."""
        return self._call(PullRequest, "POST", f"/v1/pulls/{_part(repository)}/{number}/merge")

    def _call(self, model: type[Model], verb: str, path: str, body: bytes | BaseModel | None = None) -> Model:
        return model.model_validate_json(self._send(verb, path, body))

    def _send(self, verb: str, path: str, body: bytes | BaseModel | None = None) -> bytes:
        content = body.model_dump_json().encode() if isinstance(body, BaseModel) else body
        try:
            answer = self._http.request(verb, path, content=content)
        except httpx.TransportError as error:
            if f"[Errno {errno.EACCES}]" in str(error):
                raise TurnedDownError(_closed(self._socket)) from None
            mend = "start it: swarm-broker serve --config ...; or name another socket with --socket"
            raise UnreachableError(f"no broker answers on {self._socket} ({error})", mend) from None
        if answer.status_code == 200:
            return answer.content
        problem = _problem(answer)
        raise TurnedDownError(_elsewhere(self._socket) if problem.code == "404" else problem)


def _problem(answer: httpx.Response) -> Problem:
    """Why not. The server under the broker speaks plain text: 503 where more are connected than it takes."""
    try:
        return Problem.model_validate_json(answer.content)
    except ValidationError:
        if answer.status_code == 503:
            return Problem(code="busy", message="the broker has all the connections it takes", mend="try again soon")
        return Problem(code=str(answer.status_code), message=answer.text[:500])


def _closed(socket: Path) -> Problem:
    message = f"the socket {socket} is not open to this user"
    mend = "become a member of the group that broker.toml names for it (person_group, socket_group), or be root"
    return Problem(code="rights", message=message, mend=mend)


def _elsewhere(socket: Path) -> Problem:
    """A path that the broker does not know: each of its sockets has verbs of its own."""
    message = f"the broker that answers at {socket} knows no such verb there"
    mend = "people's verbs are at person.sock, the coordinator's (explain) at broker.sock: name the other with --socket"
    return Problem(code="404", message=message, mend=mend)


def _part(name: str) -> str:
    """A name as one part of a path, whatever a person typed; one that no path can hold names nothing anyway."""
    return quote(name, safe="", errors="replace").replace(".", "%2E") or "%20"
