"""The pool's door: requests in, answers out, and what people ask of the whole of it.

A tier is a property of the request: nothing here climbs to another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from pool.admission.report import Stats, Waiting
from pool.asking import Raw
from pool.config import EndpointConfig, PoolConfig
from pool.dispatch import Dispatch
from pool.endpoint import Answer, Call, Heard
from pool.errors import NoEndpointError, PermanentError, PoolConfigError, PoolError, TornError
from pool.kv_listener import KvListeners, read_tokens, tokenize_body
from pool.lease import Lease
from pool.member import Clock, Member
from pool.placement.blocks import Keys, token_root
from pool.placement.placer import Placer
from pool.placement.view import Decision, Prompt
from pool.poison import mark_of
from pool.relayed import Relayed
from pool.resume import can, safe, spliced
from pool.roster import JOIN_INTERVAL, Roster
from pool.sender import Sender, alive
from pool.trip import Need, Start, Started, Trip
from pool.types import Capability, ChatRequest, CompletionRequest, EndpointStatus, Reply, Traits, Usage
from pool.wire.capability import Record
from pool.wire.fields import chat_body
from pool.wire.metrics import Snapshot

__all__ = ["Need", "Pool", "Relayed", "Started"]

BESIDES = {"session", "program", "request_class", "deadline"}  # fields that say nothing of what is asked
ASKED: tuple[Capability, ...] = ("forced_tools", "json_schema")  # what a tier's traits want to know besides
TOKENIZE_PATIENCE = 2.0  # seconds that a prompt may wait for its token ids

T = TypeVar("T")
Request = ChatRequest | CompletionRequest
Asking = Callable[[Member, Record, Call], Awaitable[Answer]]


class Pool:
    """All endpoints behind one door. Use as an async context manager.

    The probe loops run in the background from entering to leaving. A request for a tier whose endpoints were not looked
    at yet looks first, so nothing needs to be awaited before the first one.
    """

    def __init__(self, config: PoolConfig, *, clock: Clock = time.monotonic) -> None:
        self.config = config
        self.keys = Keys()
        self._clock = clock
        self._placer = Placer(clock=clock)
        self._dispatch = Dispatch(config, clock, self._placer)
        self._roster = Roster(config, clock=clock, changed=self._news, returned=self._returned)
        self._sender = Sender(config, clock, self._roster, self._dispatch)
        self._listeners = KvListeners(self._placer.publish)
        self._seen: dict[str, Snapshot | None] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._listeners.running())
        await self._stack.enter_async_context(self._roster.running())
        self._news()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def chat(self, request: ChatRequest) -> Reply:
        """One chat turn.

        Raises PoolConfigError for a tier without endpoints, PermanentError, ContextOverflowError, and after the budget
        or the deadline OverloadError, TransientError or NoEndpointError, whichever came last.
        """
        return await self._reply(
            request,
            lambda member, record, call: member.endpoint.chat(request, record, call),
        )

    async def complete(self, request: CompletionRequest) -> Reply:
        """One raw completion. Raises as `chat` does."""
        return await self._reply(
            request,
            lambda member, record, call: member.endpoint.complete(request, record, call),
        )

    @asynccontextmanager
    async def begin(self, need: Need, start: Start[T]) -> AsyncIterator[Started[T]]:
        """Place a request and begin it with ``start``, again elsewhere as long as that raises what passes.

        ``start(member, lease)`` returns once something of meaning came, and from then on nothing is tried again. The
        place is held until the block is left; a PoolError out of the block is held against the endpoint. The value is
        closed with its ``aclose`` where it has one. Raises as `chat` does.
        """
        self._members(need.tier)
        trip = Trip(need, self._clock())
        started = await self._sender.begin(trip, start)
        try:
            yield started
        except TornError as error:
            self._sender.blame(trip, started.member, started.visit, error)
            raise
        finally:
            await started.aclose()

    @asynccontextmanager
    async def relay(
        self, need: Need, path: str, body: dict[str, Any], headers: Mapping[str, str]
    ) -> AsyncIterator[Relayed]:
        """Send the JSON body of a caller who speaks OpenAI's protocol, and relay the answer as it comes.

        ``path`` is /v1/chat/completions or /v1/completions. The body is sent with the model, the fields and the ceiling
        that the endpoint takes. Leaving the block aborts an answer that has not ended. Raises as `chat` does until the
        answer begins; reading it raises TornError where it breaks off and nobody can go on.
        """
        self._members(need.tier)
        need = await self._exact(need, body)
        trip = Trip(need, self._clock(), lambda: mark_of(body))

        def ended(_: Member, usage: Usage) -> None:
            self._learn(need, usage)

        relayed = Relayed(self._sender, trip, (path, body, headers), self._clock, ended)
        try:
            await relayed.open()
            yield relayed
        finally:
            await relayed.aclose()

    async def native_tools(self, tier: str) -> bool:
        """Whether every living endpoint of a tier speaks native tool calls; each is asked for one, once.

        All of them, since a session may have to move. Raises PoolConfigError, and NoEndpointError where nobody lives.
        """
        members = self._members(tier)
        if any(member.config.tools == "text" for member in members):
            return False
        for _ in range(2):
            await self._sender.know(tier, "tools")
            living = alive(self._sender.members(tier))
            if not living:
                raise self._sender.nobody(tier)
            if all(member.native_tools is not None for member in living):
                break
            await self._sender.look(tier)  # one that did not answer may have died just now: that says nothing of it
        return all(member.native_tools for member in living)

    async def traits(self, tier: str) -> Traits:
        """What the living endpoints of a tier have in common; calls, demanded ones and a schema are tried once each.

        Whether reasoning comes apart is told as far as it is known by now: the question for it is a long one. Raises
        PoolConfigError, and NoEndpointError where nobody lives.
        """
        native = await self.native_tools(tier)
        for capability in ASKED if native else ASKED[1:]:
            await self._sender.know(tier, capability)
        living = alive(self._sender.members(tier))
        if not living:
            raise self._sender.nobody(tier)
        found = Traits.common([member.common for member in living])
        return found.model_copy(update={"native": native})

    async def ready(self, tier: str, timeout: float = 60.0) -> None:  # noqa: ASYNC109  the wait is what it is for
        """Wait until an endpoint of the tier is up, so that a server just started is joined.

        Raises NoEndpointError after ``timeout`` seconds, with what each endpoint last said.
        """
        self._members(tier)
        until = self._clock() + timeout
        while not any(member.state == "up" for member in self._sender.members(tier)):
            if self._clock() >= until:
                raise self._sender.nobody(tier)
            await self._roster.look(tier)
            await asyncio.sleep(JOIN_INTERVAL)

    def status(self) -> tuple[EndpointStatus, ...]:
        """Where each endpoint stands, in the order in which they joined."""
        return tuple(m.status(self._placer.load(m.name).live_sessions) for m in self._roster.members.values())

    def stats(self) -> Stats:
        """What admission counted, by class and stage."""
        return self._dispatch.stats()

    def waiting(self) -> tuple[Waiting, ...]:
        """The requests that wait for a place."""
        return self._dispatch.waiting()

    def explain(self, request_id: str) -> Decision | None:
        """Why a request went where it went; None where that is no longer known."""
        return self._placer.explain(request_id)

    def estimate(self, request: Request, tier: str) -> float | None:
        """Seconds to the first token if a request went to ``tier`` now: its queue, its prefill less what it holds.

        A pure look. None where nobody up could take it, or where no answer told yet how fast the tier reads.
        """
        sites = self._sender.sites(tier)
        if not any(self._placer.prefill_seconds(site.name, 1) is not None for site in sites):
            return None
        there, now = request.model_copy(update={"tier": tier}), self._clock()
        return self._placer.estimate(Trip(Need.of(there, self._prompt(there)), now).ask(now), sites)

    async def question(self, name: str, path: str, body: dict[str, Any]) -> Raw:
        """Put a question that makes no model work to one endpoint, beside all queues. Raises PoolError, classed."""
        member = self._roster.members.get(name)
        if member is None:
            raise NoEndpointError(f"endpoint {name}: it has just left the pool")
        return await member.endpoint.question(path, body)

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:
        """A session runs a tool between two turns, for about so many seconds where that is known."""
        self._dispatch.acting(session, tool, expected)

    def end_session(self, session: str) -> None:
        """A session has had its last turn."""
        self._dispatch.end_session(session)

    def add(self, config: EndpointConfig) -> None:
        """Let an endpoint join. Raises PoolConfigError for a name that is taken."""
        self._roster.add(config)

    async def drain(self, name: str, within: float | None = None) -> bool:
        """Send an endpoint nothing new; True once what is in flight there has ended, False after ``within`` seconds.

        Raises PoolConfigError for a name that nobody has.
        """
        return await self._roster.drain(name, within)

    def admit(self, name: str) -> None:
        """Take a drain back. Raises PoolConfigError for a name that nobody has."""
        self._roster.admit(name)

    async def remove(self, name: str) -> None:
        """Let an endpoint go; what is in flight there is sent elsewhere. Raises PoolConfigError for a name unknown."""
        await self._roster.remove(name)
        self._forget(name)

    async def reload(self, endpoints: Iterable[EndpointConfig]) -> tuple[str, ...]:
        """Make the endpoints those of a new configuration; gives the names of those that came, went or changed."""
        changed = await self._roster.reload(endpoints)
        for name in changed:
            self._forget(name)
        return changed

    def _prompt(self, request: Request) -> Prompt:
        """The prompt as placement sees it. A tier's endpoints serve one model, so its name stands for that."""
        if isinstance(request, ChatRequest):
            return self.keys.chat(request.tier, request)
        return self.keys.text(request.tier, request)

    async def _exact(self, need: Need, asked: Request | dict[str, Any]) -> Need:
        """The need with its prompt's token ids, where an endpoint publishes KV events to match them with.

        One of those endpoints is asked, which costs a round trip; without an answer the estimate has to do.
        """
        telling = (m for m in self._sender.members(need.tier) if m.name in self._listeners and m.state == "up")
        member = next(telling, None)
        if member is None or member.record is None or need.prompt.token_ids:
            return need
        try:
            body = asked if isinstance(asked, dict) else _shape_of_prompt(asked, member.record)
            question = tokenize_body(member.record.model, body)
            async with asyncio.timeout(TOKENIZE_PATIENCE):
                told = await member.endpoint.post("/tokenize", question, need.session) if question else None
        except (PoolError, TimeoutError):
            return need
        ids = read_tokens(told.status, told.body) if told else ()
        if not ids:
            return need
        scale, root = len(ids) / need.prompt.tokens, token_root(None, need.cache_salt)
        exact = replace(
            need.prompt,
            tokens=len(ids),
            block_tokens=need.prompt.block_tokens * scale,
            token_ids=ids,
            token_root=root,
        )
        return replace(need, prompt=exact)

    async def _reply(self, request: Request, asking: Asking) -> Reply:
        self._members(request.tier)
        need = await self._exact(Need.of(request, self._prompt(request)), request)
        trip = Trip(need, self._clock(), lambda: mark_of(request.model_dump(exclude=BESIDES)))

        async def start(member: Member, lease: Lease) -> Answer:
            return await self._ask(trip, request, member, lease, asking)

        started = await self._sender.begin(trip, start)
        answer = started.value
        called = tuple(call.name for choice in answer.choices for call in choice.tool_calls)
        cut = any(choice.finish_reason not in ("stop", "tool_calls") for choice in answer.choices)
        started.lease.finish(answer.usage, trip.called(called, cut=cut))
        await started.aclose()
        self._learn(need, answer.usage)
        watch, now = started.watch, self._clock()
        return Reply(
            choices=answer.choices,
            usage=answer.usage,
            endpoint=started.endpoint,
            model=answer.model,
            seconds=now - trip.began,
            waited=watch.sent - trip.began,
            prefill=None if watch.begun_at is None else watch.begun_at - watch.sent,
            gpu_seconds=(now - watch.sent) * started.member.config.gpus,
            attempts=trip.attempts,
            tier=started.member.config.tier,
            request=need.request,
        )

    async def _ask(self, trip: Trip, request: Request, member: Member, lease: Lease, asking: Asking) -> Answer:
        """Ask one endpoint; where another one had broken off in mere text, it goes on from there."""
        record = member.record
        if record is None:
            raise NoEndpointError(f"endpoint {member.name} was not discovered yet")
        partial = trip.partial if can(record.kind, _shape(request)) else ""
        call = Call(f"{trip.need.request}-{trip.attempts}", self._ear(trip, member, lease), partial)
        try:
            return await asking(member, record, call)
        except TornError as error:
            if safe(_shape(request), plain=bool(error.partial)):
                trip.partial = spliced(partial, error.partial)
            raise
        except PermanentError:
            if not partial:
                raise
            trip.partial = ""  # this model's template cannot go on with a text: begin anew
            return await asking(member, record, replace(call, partial=""))

    def _ear(self, trip: Trip, member: Member, lease: Lease) -> Heard:
        watch = trip.watch

        def heard(tokens: int) -> None:
            member.moved()
            if tokens:
                if watch.heard_at is None:
                    lease.first_token()
                watch.heard(self._clock())
                lease.grew(tokens)

        return heard

    def _learn(self, need: Need, usage: Usage) -> None:
        """Let what the server counted set right what we estimate."""
        self.keys.learn(need.tier, need.session, need.prompt, usage.prompt_tokens)

    def _members(self, tier: str) -> list[Member]:
        members = self._sender.members(tier)
        if not members:
            known = ", ".join(self._roster.tiers) or "none"
            raise PoolConfigError(
                f"no endpoint serves the tier {tier!r} (tiers: {known}); ask for one of these, or add an endpoint to it"
            )
        return members

    def _news(self) -> None:
        """A probe came in, or a member came or went."""
        for member in self._roster.members.values():
            if self._seen.get(member.name) is not member.snapshot:
                self._seen[member.name] = member.snapshot
                self._dispatch.news(member.name, member.snapshot)
        self._listeners.follow(member.config for member in self._roster.members.values())
        self._dispatch.news()

    def _returned(self, name: str) -> None:
        """An endpoint's server was started anew: its cache is empty."""
        self._sender.standings.returned(name)
        self._listeners.restarted(name)
        self._dispatch.gone(name)

    def _forget(self, name: str) -> None:
        self._seen.pop(name, None)
        self._sender.standings.forget(name)
        self._dispatch.gone(name, removed=True)


def _shape_of_prompt(request: Request, record: Record) -> dict[str, Any]:
    """The part of a body that becomes the prompt."""
    if isinstance(request, CompletionRequest):
        return {"prompt": request.prompt}
    return chat_body(request, record, 1)


def _shape(request: Request) -> dict[str, Any]:
    """What of a request decides whether its answer can be gone on with."""
    text: dict[str, Any] = {"messages": []} if isinstance(request, ChatRequest) else {"prompt": request.prompt}
    return text | {"n": request.n, "json_schema": request.json_schema, "logprobs": request.logprobs}
