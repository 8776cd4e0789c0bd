"""One request on its way through the pool: what it needs, where it has been, what it found, and what it holds."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

from pool.errors import NoEndpointError, OverloadError, PoolError, TransientError
from pool.lease import Lease
from pool.member import Member
from pool.patience import Watch
from pool.placement.view import Ask, Decision, Prompt
from pool.poison import Mark
from pool.standing import Visit, model_mark
from pool.types import CALLS, Capability, ChatRequest, CompletionRequest, RequestClass

T = TypeVar("T")
Start = Callable[[Member, Lease], Awaitable[T]]
"""Begins a request at a member and returns once it commits: once something of meaning may reach the caller."""

FORECAST = 256  # tokens of an answer that are planned for; its ceiling is mostly far above what comes


def new_id() -> str:
    """An id for a request that brought none."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs. ``tier`` "" means any, ``model`` only endpoints that serve it, ``deadline`` seconds from
    now for all of it. ``ceiling`` bounds its answer and ``output_tokens`` forecasts it, in tokens; ``whole`` asks for
    an answer in one body, of which nothing is heard before its end; ``caller`` is whose key it came with."""

    tier: str
    session: str
    prompt: Prompt
    request: str = field(default_factory=new_id)
    program: str = ""
    request_class: RequestClass = "default"
    deadline: float = 600.0
    turn: int = 0
    output_tokens: int = FORECAST
    ceiling: int | None = None
    needs: frozenset[str] = frozenset()
    model: str | None = None
    cache_salt: str | None = None
    whole: bool = False
    caller: str = ""

    @classmethod
    def of(cls, request: ChatRequest | CompletionRequest, prompt: Prompt) -> Need:
        """What one of our own requests needs."""
        forced = isinstance(request, ChatRequest) and request.tool_choice == "required"
        calls: Capability = "forced_tools" if forced else "tools"
        tools = isinstance(request, ChatRequest) and bool(request.tools)
        return cls(
            tier=request.tier,
            session=request.session,
            prompt=prompt,
            program=request.program,
            request_class=request.request_class,
            deadline=request.deadline,
            output_tokens=min(FORECAST, request.max_tokens) * request.n,
            ceiling=request.max_tokens,
            needs=frozenset({calls} if tools else ()),
            cache_salt=request.cache_salt,
        )


class Trip:
    """Where one request stands: when it must be back, where it has been, what happened last; ``placing`` while it looks
    for a place."""

    def __init__(self, need: Need, now: float, marked: Callable[[], str] | None = None) -> None:
        self.need = need
        self.visits: list[tuple[str, Visit]] = []
        self._marked = marked
        self.began = now
        self.until = now + need.deadline
        self.tried: set[str] = set()
        self.rerouted = False
        self.last: PoolError | None = None
        self.attempts = 0
        self.partial = ""
        self.placing = False
        self.watch = Watch(first=need.deadline, idle=need.deadline, until=self.until, sent=now)

    @property
    def rough(self) -> int:
        """What stands roughly for what is asked: its tier and the end of its prompt."""
        chain = self.need.prompt.chain
        return hash((self.need.tier, len(chain), chain[-1] if chain else 0))

    @cached_property
    def mark(self) -> Mark:
        """What stands for what is asked, whoever asks; made where it is wanted, since that reads all of it."""
        return self.rough, self._marked() if self._marked else f"{self.need.prompt.tokens}/{self.need.request}"

    @property
    def calls(self) -> Capability | None:
        """The kind of tool calls that must have been seen to work where it goes; None where it wants none."""
        return next((name for name in CALLS if name in self.need.needs), None)

    def called(self, tools: tuple[str, ...], *, cut: bool) -> tuple[str, ...] | None:
        """What its answer tells of what comes next: the tools that it calls.

        None, which is no news, where it could call none, as with agents that speak their tools as text, or where it
        called none and was cut.
        """
        return tools if tools or (self.calls and not cut) else None

    def ask(self, now: float) -> Ask:
        """The same for placement."""
        need = self.need
        marks = need.needs if need.model is None else need.needs | {model_mark(need.model)}
        return Ask(
            request=need.request,
            tier=need.tier,
            session=need.session,
            prompt=need.prompt,
            arrived=now,
            deadline=self.until,
            program=need.program,
            request_class=need.request_class,
            turn=need.turn,
            output_tokens=need.output_tokens,
            needs=marks,
        )

    def late(self) -> PoolError:
        """The error for a deadline that passed: the last one met, in its own class."""
        last, late = self.last, f"no answer within the deadline of {self.need.deadline:g} s"
        told = f"{late}; last: {last}" if last else late
        if self.placing and not isinstance(last, NoEndpointError):
            return OverloadError(f"tier {self.need.tier!r}: no place, {told}", stage="deadline")
        if isinstance(last, OverloadError):
            return OverloadError(told, last.retry_after, last.stage)
        return NoEndpointError(told) if isinstance(last, NoEndpointError) else TransientError(told)


def fitted(ask: Ask, window: int) -> Ask:
    """The ask as it looks when its prompt just fits: our count is an estimate, and the server has the last word."""
    tokens = min(ask.prompt.tokens, window - 1)
    return replace(ask, prompt=replace(ask.prompt, tokens=tokens), output_tokens=1)


@dataclass(slots=True)
class Started(Generic[T]):
    """A request that has begun, and the place that it holds until it is closed."""

    value: T
    member: Member
    lease: Lease
    watch: Watch
    visit: Visit
    stack: ExitStack
    request: str
    attempts: int

    @property
    def endpoint(self) -> str:
        """Name of the endpoint."""
        return self.member.name

    @property
    def decision(self) -> Decision:
        """Why it went there."""
        return self.lease.decision

    async def aclose(self) -> None:
        """Give the place back; closes the value first."""
        try:
            if (close := getattr(self.value, "aclose", None)) is not None:
                await close()
        finally:
            self.stack.close()
