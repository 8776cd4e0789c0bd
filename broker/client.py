"""A person's side of the socket, for the command line. Knows the wire and nothing else of the broker."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from broker.errors import BrokerError
from broker.person_wire import KeptProposal, LogPage, Outbox, PullRequests, PullRequestView
from broker.wire import Explanation, Grant, GrantRequest, Health, Problem, PullRequest, Receipt, Refusal, Repositories

Model = TypeVar("Model", bound=BaseModel)
_VERDICT: TypeAdapter[Receipt | Refusal] = TypeAdapter(Receipt | Refusal)
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

    def health(self) -> Health:
        """As whom the broker sees the caller."""
        return self._call(Health, "GET", "/v1/health")

    def repositories(self) -> Repositories:
        """What the broker knows."""
        return self._call(Repositories, "GET", "/v1/repositories")

    def grant(self, request: GrantRequest) -> Grant:
        """A capability."""
        return self._call(Grant, "POST", "/v1/grant", request.model_dump_json().encode())

    def explain(self, body: bytes) -> Explanation:
        """The verdict on an encoded proposal, without carrying it out."""
        return self._call(Explanation, "POST", "/v1/explain", body)

    def proposal(self, proposal: str) -> Receipt | Refusal:
        """The verdict on a proposal."""
        return _VERDICT.validate_json(self._send("GET", f"/v1/proposals/{_part(proposal)}", None))

    def log(self, after: int) -> LogPage:
        """Lines of the log."""
        return self._call(LogPage, "GET", f"/v1/log?after={after}")

    def outbox(self) -> Outbox:
        """What waits for a person."""
        return self._call(Outbox, "GET", "/v1/outbox")

    def kept(self, proposal: str) -> KeptProposal:
        """One of them."""
        return self._call(KeptProposal, "GET", f"/v1/outbox/{_part(proposal)}")

    def discard(self, proposal: str) -> KeptProposal:
        """Removes a refused one."""
        return self._call(KeptProposal, "POST", f"/v1/outbox/{_part(proposal)}/discard")

    def pulls(self, repository: str) -> PullRequests:
        """Pull requests of a repository."""
        return self._call(PullRequests, "GET", f"/v1/pulls/{_part(repository)}")

    def pull(self, repository: str, number: int) -> PullRequestView:
        """One with its diff."""
        return self._call(PullRequestView, "GET", f"/v1/pulls/{_part(repository)}/{number}")

    def merge(self, repository: str, number: int) -> PullRequest:
        """Merges one."""
        return self._call(PullRequest, "POST", f"/v1/pulls/{_part(repository)}/{number}/merge")

    def _call(self, model: type[Model], verb: str, path: str, body: bytes | None = None) -> Model:
        return model.model_validate_json(self._send(verb, path, body))

    def _send(self, verb: str, path: str, body: bytes | None) -> bytes:
        try:
            answer = self._http.request(verb, path, content=body)
        except httpx.TransportError as error:
            mend = "start it: swarm-broker serve --config ...; or name another socket with --socket"
            raise UnreachableError(f"no broker answers on {self._socket} ({error})", mend) from None
        if answer.status_code == 200:
            return answer.content
        try:
            raise TurnedDownError(Problem.model_validate_json(answer.content))
        except ValidationError:
            raise TurnedDownError(Problem(code=str(answer.status_code), message=answer.text[:500])) from None


def _part(name: str) -> str:
    """A name as one part of a path, whatever a person typed; one that no path can hold names nothing anyway."""
    return quote(name, safe="", errors="replace").replace(".", "%2E") or "%20"
