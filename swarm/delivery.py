"""The only door to the broker: its verbs over a unix socket, and a sealed tree dressed as a proposal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from broker.wire import (
    Ask,
    DrawRequest,
    Event,
    Evidence,
    Explanation,
    Grant,
    GrantRequest,
    Health,
    IssueRequest,
    MirrorRequest,
    Noted,
    Problem,
    Proposal,
    PullState,
    Receipt,
    Refusal,
    Repositories,
    SandboxProof,
    StatusNote,
    TestResult,
    Thread,
    Waiting,
    encode_proposal,
)
from sandbox.types import SelfTest
from swarm.errors import BrokerError, BrokerShutError, BrokerUnreachableError
from swarm.socket_client import SocketClient
from swarm.truth.telling import for_review
from swarm.types import Attempt, CheckReport, Conclusion, Happening, Sealed, Spent, Task, TestRun

Verdict = Receipt | Refusal
Standing = Verdict | Waiting
NoteState = Literal["queued", "working", "checking", "delivered", "failed", "waiting", "cancelled"]
Read = TypeVar("Read")
Take = Callable[[str, AsyncIterator[bytes]], Awaitable[None]]

_VERDICT: TypeAdapter[Verdict] = TypeAdapter(Receipt | Refusal)
_STANDING: TypeAdapter[Standing] = TypeAdapter(Receipt | Refusal | Waiting)
_SHUT = {423, 429}
_JSON = {"content-type": "application/json"}
_NAMES = 500  # of tests, as many as the wire takes
_NAME = 200  # characters of each: all of them together have to fit into a proposal
_NOTE = 4000  # characters of a status comment
_CLAIMS, _DETAILS = 64, 16  # of a self-test, the same
_OTHER = "see that the daemon and the broker are of the same version"
_START = "start the broker (swarm-broker serve), then try again"

log = logging.getLogger(__name__)


class _Page(BaseModel):
    """`EventPage`, its events not looked at yet."""

    events: tuple[dict[str, Any], ...]
    last: int


@dataclass(frozen=True)
class StandingRight:
    """What a person wants to allow for later: so many tasks named ``task`` or ``task``-…, within so many seconds.

    ``each`` is how many proposals every one of them may make.
    """

    repository: str
    base: str | None
    task: str
    tasks: int
    seconds: float
    each: int = 1


class BrokerClient(SocketClient):
    """A connection to the broker behind ``socket``; use it with ``async with``.

    Every verb raises BrokerError with the broker's own words when it turns the call down, and BrokerUnreachableError
    when it does not answer or cannot reach its forge. A lost connection is tried again for ``patience`` seconds, safely
    since every verb may be repeated; ``timeout`` bounds one call, in seconds.
    """

    def __init__(self, socket: Path, *, patience: float = 20.0, timeout: float = 120.0) -> None:
        super().__init__(socket, "broker", httpx.Timeout(timeout, connect=10.0))
        self._patience = patience

    async def health(self) -> Health:
        """Whether it lives, as whom, and which roles it gives us. Asked once, never again."""
        return _read(Health.model_validate_json, await self._call("GET", "/v1/health"))

    async def repositories(self) -> Repositories:
        """What it knows, without addresses."""
        return _read(Repositories.model_validate_json, await self._again("GET", "/v1/repositories"))

    async def grant(self, request: GrantRequest) -> Grant:
        """The right to have one task's result proposed. A person's verb: the broker checks who calls."""
        return _read(Grant.model_validate_json, await self._again("POST", "/v1/grant", _body(request)))

    async def grant_task(self, repository: str, base: str | None, task: str, *, uses: int = 1) -> Grant:
        """`grant` in plain words, for callers that do not see the wire. ``base`` None is the default branch."""
        return await self.grant(GrantRequest(repository=repository, base=base, task=task, uses=uses))

    async def grant_standing(self, asked: StandingRight) -> Grant:
        """The right to draw one task's right after the other, later. A person's verb, as `grant` is."""
        return await self.grant(
            GrantRequest(
                repository=asked.repository,
                base=asked.base,
                task=asked.task,
                uses=asked.tasks,
                each=asked.each,
                seconds=round(asked.seconds),
                standing=True,
            )
        )

    async def draw(self, capability: str, task: str) -> Grant:
        """One task's right out of a standing one, on the base as it is now; the same task again gives the same."""
        request = DrawRequest(capability=capability, task=task)
        return _read(Grant.model_validate_json, await self._again("POST", "/v1/draw", _body(request)))

    async def mirror(self, request: MirrorRequest, take: Take) -> str:
        """Hand the granted base commit and a pack of what it needs beyond ``have`` to ``take``; returns the commit.

        ``take`` is called again from the start when the connection breaks in the middle.
        """

        async def once() -> str:
            try:
                async with self._http.stream("POST", "/v1/mirror", content=_body(request), headers=_JSON) as response:
                    if response.is_error:
                        await response.aread()
                    _raise_for(response)
                    commit: str | None = response.headers.get("x-base-commit")
                    if commit is None:
                        raise BrokerError("the broker's answer to /v1/mirror cannot be read", _OTHER)
                    await take(commit, response.aiter_bytes())
                    return commit
            except httpx.HTTPError as error:
                raise self._unreachable(error) from error

        return await self._patiently()(once)

    async def propose(self, proposal: Proposal, pack: bytes) -> Standing:
        """Offer a sealed tree. The same id again gives the same verdict, so a lost answer is simply asked for again.

        What the broker cannot let through now, it keeps and goes on with by itself: that is no error but `Waiting`.
        """
        body = await asyncio.to_thread(encode_proposal, proposal, pack)
        try:
            return _read(_VERDICT.validate_json, await self._again("POST", "/v1/propose", body))
        except (BrokerShutError, BrokerUnreachableError):
            if (held := await self._held(proposal.id)) is None:
                raise
            return held

    async def _held(self, name: str) -> Standing | None:
        """What became of a proposal that met an error; None where it was not kept, or nobody can tell."""
        try:
            response = await self._call("GET", f"/v1/proposals/{name}", missing_ok=True)
        except BrokerError:
            return None
        return _standing(response)

    async def explain(self, proposal: Proposal, pack: bytes) -> Explanation:
        """What the verdict would be, every finding at once; nothing is pushed."""
        body = await asyncio.to_thread(encode_proposal, proposal, pack)
        return _read(Explanation.model_validate_json, await self._again("POST", "/v1/explain", body))

    async def proposal(self, name: str) -> Standing | None:
        """How an earlier proposal stands; None where the broker never saw it."""
        return _standing(await self._again("GET", f"/v1/proposals/{name}", missing_ok=True))

    async def issue(self, capability: str, number: int | None = None) -> Thread:
        """The words of an issue, the grant's own if no number is given. They are a stranger's: data alone."""
        body = _body(IssueRequest(capability=capability, number=number))
        return _read(Thread.model_validate_json, await self._again("POST", "/v1/issue", body))

    async def pull(self, capability: str) -> PullState:
        """The grant's own pull request as the forge shows it now."""
        body = _body(Ask(capability=capability))
        return _read(PullState.model_validate_json, await self._again("POST", "/v1/pull", body))

    async def merged(self, capability: str) -> str | None:
        """The broker's own commit that the forge shows merged; None where it is not, or where it is another's."""
        pull = await self.pull(capability)
        return pull.head if pull.state == "merged" and pull.ours else None

    async def comment(self, capability: str, state: NoteState, text: str) -> str:
        """Says how far the task is, in its one comment; the address, empty where nothing was written."""
        try:
            note = StatusNote(capability=capability, state=state, text=text[:_NOTE])
        except ValidationError:
            raise BrokerError("the capability of the task is none that a broker gives", _OTHER) from None
        return _read(Noted.model_validate_json, await self._again("POST", "/v1/comment", _body(note))).url

    async def events(self, after: int, wait: float) -> tuple[tuple[Happening, ...], int]:
        """What happened on the forges after a number, oldest first, and where to ask on from.

        Waits up to ``wait`` seconds, 30 at most, for something to happen. What a newer broker tells beyond what is
        known here is left out: fields of an event, or the event.
        """
        response = await self._again("GET", f"/v1/events?after={after}&wait={wait:g}")
        page = _read(_Page.model_validate_json, response)
        return tuple(filter(None, map(_happening, page.events))), page.last

    async def _again(self, method: str, path: str, body: bytes = b"", *, missing_ok: bool = False) -> httpx.Response:
        """One call, repeated while the broker does not answer, for as long as patience lasts."""
        return await self._patiently()(self._call, method, path, body, missing_ok=missing_ok)

    def _patiently(self) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(BrokerUnreachableError),
            stop=stop_after_delay(self._patience),
            wait=wait_random_exponential(multiplier=0.2, max=5.0),
            reraise=True,
        )

    async def _call(self, method: str, path: str, body: bytes = b"", *, missing_ok: bool = False) -> httpx.Response:
        try:
            response = await self._http.request(method, path, content=body or None, headers=_JSON if body else None)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if not (missing_ok and response.status_code == 404):
            _raise_for(response)
        return response

    def _unreachable(self, error: httpx.HTTPError) -> BrokerUnreachableError:
        why = str(error) or type(error).__name__
        return BrokerUnreachableError(f"the broker does not answer at {self._socket}: {why}", _START)


def _standing(response: httpx.Response) -> Standing | None:
    return None if response.status_code == 404 else _read(_STANDING.validate_json, response)


def _read(as_what: Callable[[bytes], Read], response: httpx.Response) -> Read:
    """An answer in our own words. Raises BrokerError for one that another version gave, or no broker at all."""
    try:
        return as_what(response.content)
    except ValidationError:
        raise BrokerError(f"the broker's answer to {response.request.url.path} cannot be read", _OTHER) from None


def _happening(told: dict[str, Any]) -> Happening | None:
    """None for an event that is not known here."""
    try:
        event = Event.model_validate({name: value for name, value in told.items() if name in Event.model_fields})
        grant = event.grant
        given = {"capability": grant.capability, "base": grant.base, "base_commit": grant.base_commit} if grant else {}
        return Happening.model_validate(event.model_dump(exclude={"grant", "at"}) | given)
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(map(str, one["loc"])) for one in error.errors()}))
        log.warning("an event of the broker's is not known here (%s) and left out", fields[:200])
        return None


def _body(message: BaseModel) -> bytes:
    return message.model_dump_json().encode()


def _raise_for(response: httpx.Response) -> None:
    """The broker's Problem as an error; a fault on its side (5xx) or a stop may pass, any other refusal will not."""
    if not response.is_error:
        return
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        problem = Problem(code="unknown", message=f"the broker answered with status {response.status_code}")
    raise _kind_of(response.status_code)(problem.message, problem.mend)


def _kind_of(status: int) -> type[BrokerError]:
    if status >= 500:
        return BrokerUnreachableError
    return BrokerShutError if status in _SHUT else BrokerError


@dataclass(frozen=True)
class Offer:
    """Everything a proposal is made of; ``refusals`` counts the earlier verdicts against this task."""

    task: Task
    attempt: Attempt
    conclusion: Conclusion
    report: CheckReport | None
    spent: Spent
    sealed: Sealed
    proved: SelfTest | None = None
    refusals: int = 0


def mirror_request(task: Task, have: tuple[str, ...]) -> MirrorRequest:
    """What to ask for a task's base, given the commits that are here already.

    The base of work on a pull request that is there is its branch as it is now.
    """
    return MirrorRequest(capability=task.request.capability, have=have[-64:], head=task.request.follows is not None)


def proposal_name(task: Task, refusals: int) -> str:
    """The id of a task's proposal after so many refusals.

    It follows from the task alone, so whatever was delivered for a task before, by any attempt on any host, is what a
    second delivery is answered with. Only a refusal opens a new id.
    """
    return task.id if not refusals else f"{task.id}-{refusals + 1}"


def compose(offer: Offer) -> Proposal:
    """The proposal for an offer.

    What follows an earlier task extends that one's pull
    request, under its capability.
    """
    task, conclusion = offer.task, offer.conclusion
    return Proposal(
        id=proposal_name(task, offer.refusals),
        capability=task.request.capability,
        task=task.request.follows or task.id,
        update=task.request.follows is not None,
        base_commit=offer.sealed.base,
        tree=offer.sealed.tree,
        title=_title(task, conclusion),
        body=(for_review(offer.report) + conclusion.summary)[:64_000],
        evidence=_evidence(offer),
    )


def _title(task: Task, conclusion: Conclusion) -> str:
    words = task.request.title or conclusion.title or task.request.instructions
    lines = words.strip().splitlines() or [task.id]
    return lines[0][:200]


def _evidence(offer: Offer) -> Evidence:
    report = offer.report
    return Evidence(
        before=_result(report.base) if report else None,
        after=_result(report.proposal) if report else None,
        fixed=_names(report.fixed) if report else (),
        broken=_names(report.broken) if report else (),
        model=offer.conclusion.model[:200],
        tier=offer.attempt.tier[:100],
        strategy=(offer.conclusion.strategy or offer.attempt.strategy)[:100],
        attempts=max(1, offer.spent.attempts),
        tokens=offer.spent.tokens,
        seconds=offer.spent.wall,
        sandbox=offer.proved.version[:200] if offer.proved else "",
        proof=_proof(offer.proved) if offer.proved else None,
    )


def _proof(proved: SelfTest) -> SandboxProof:
    return SandboxProof(
        backend=proved.backend,
        version=proved.version[:100],
        claims=tuple(claim[:120] for claim in proved.proved[:_CLAIMS]),
        detail={key[:40]: value[:200] for key, value in sorted(proved.detail.items())[:_DETAILS]},
        digest=proved.digest,
    )


def _result(run: TestRun | None) -> TestResult | None:
    if run is None:
        return None
    return TestResult(
        command=run.command[:4000], exit_code=run.exit_code, passed=len(run.passed), failed=_names(run.failed)
    )


def _names(tests: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(test[:_NAME] for test in tests[:_NAMES])
