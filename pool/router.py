"""Sends each request to an endpoint of its tier: sticky by session, failing over within the tier, under one budget.

A tier is a property of the request: nothing here climbs to another one. An answer is handed over whole, so a request
that broke before its answer was complete has shown nothing to the caller and may be sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from pool.config import PoolConfig
from pool.endpoint import Answer
from pool.errors import (
    EndpointDeadError,
    ModelMissingError,
    NoEndpointError,
    OverloadError,
    PermanentError,
    PoolConfigError,
    PoolError,
    TransientError,
)
from pool.pins import Pins
from pool.roster import JOIN_INTERVAL, Clock, Member, Roster
from pool.selection import Candidate, alive, fit, keeps_pin, pick
from pool.types import ChatRequest, CompletionRequest, EndpointStatus, Reply, Served

BACKOFF = wait_random_exponential(multiplier=0.25, max=10)  # seconds, once every endpoint of the tier was tried

Request = ChatRequest | CompletionRequest
Call = Callable[[Member], Awaitable[Answer]]


class Trip:
    """One request on its way: when it must be back, where it has been, what happened last."""

    def __init__(self, request: Request, until: float) -> None:
        self.request = request
        self.until = until
        self.tools = isinstance(request, ChatRequest) and bool(request.tools)
        self.tried: set[str] = set()
        self.rerouted = False
        self.last: PoolError | None = None
        self.attempts = 0


class Pool:
    """All endpoints behind one door. Use as an async context manager.

    The probe loops run in the background from entering to leaving. A request for a tier whose endpoints were not looked
    at yet looks first, so nothing needs to be awaited before the first one.
    """

    def __init__(self, config: PoolConfig, *, clock: Clock = time.monotonic) -> None:
        self.config = config
        self._clock = clock
        self._waiters: list[asyncio.Future[None]] = []
        self._roster = Roster(config, clock=clock, changed=self._wake)
        self._pins = Pins()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._roster.running())
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
        return await self._send(
            request, lambda member: member.endpoint.chat(request, _served(member), lambda _: member.moved())
        )

    async def complete(self, request: CompletionRequest) -> Reply:
        """One raw completion. Raises as `chat` does."""
        return await self._send(
            request, lambda member: member.endpoint.complete(request, _served(member), lambda _: member.moved())
        )

    async def native_tools(self, tier: str) -> bool:
        """Whether every living endpoint of a tier speaks native tool calls; each is asked for one, once.

        All of them, since a session may have to move. Raises PoolConfigError, and NoEndpointError where nobody lives.
        """
        members = self._members(tier)
        if any(member.config.tools == "text" for member in members):
            return False
        await self._know_tools(tier)
        living = alive(self._candidates(tier))
        if not living:
            raise self._nobody(tier)
        return all(candidate.native_tools for candidate in living)

    async def ready(self, tier: str, timeout: float = 60.0) -> None:  # noqa: ASYNC109  the wait is what it is for
        """Wait until an endpoint of the tier is up, so that a server just started is joined.

        Raises NoEndpointError after ``timeout`` seconds, with what each endpoint last said.
        """
        members = self._members(tier)
        until = self._clock() + timeout
        while not any(member.candidate().state == "up" for member in members):
            if self._clock() >= until:
                raise self._nobody(tier)
            await self._roster.look(tier)
            await asyncio.sleep(JOIN_INTERVAL)

    def status(self) -> tuple[EndpointStatus, ...]:
        """Where each endpoint stands, in the order of the configuration."""
        return tuple(m.status(self._pins.sessions[m.name]) for m in self._roster.members.values())

    async def _send(self, request: Request, call: Call) -> Reply:
        self._members(request.tier)
        started = self._clock()
        trip = Trip(request, started + request.deadline)
        member: Member
        answer: Answer
        try:
            async with asyncio.timeout(request.deadline) as limit:
                member, answer = await self._retrying(trip)(self._attempt, trip, call)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _late(trip.last, request.deadline) from trip.last
        return Reply(
            choices=answer.choices,
            usage=answer.usage,
            endpoint=member.name,
            model=answer.model,
            seconds=self._clock() - started,
            attempts=trip.attempts,
        )

    def _retrying(self, trip: Trip) -> AsyncRetrying:
        budget = stop_after_attempt(1 + self.config.retries)
        return AsyncRetrying(
            retry=retry_if_exception(lambda error: self._again(trip, error)),
            wait=lambda state: self._pause(trip, state),
            stop=lambda state: budget(state) or self._clock() + state.upcoming_sleep >= trip.until,
            reraise=True,
        )

    def _again(self, trip: Trip, error: BaseException) -> bool:
        """Whether sending it again may help. A model that went away is looked for anew, once."""
        if isinstance(error, ModelMissingError) and not trip.rerouted:
            trip.rerouted = True
            return True
        return isinstance(error, (OverloadError, TransientError, NoEndpointError))

    def _pause(self, trip: Trip, state: RetryCallState) -> float:
        """Seconds before the next try: none while the tier holds an endpoint that this request has not tried."""
        candidates = self._candidates(trip.request.tier)
        if any(c.cooling <= 0 for c in fit(candidates, tried=trip.tried, tools=trip.tools)):
            return 0.0
        trip.tried.clear()
        cooling = min((c.cooling for c in alive(candidates)), default=0.0)
        return max(cooling, BACKOFF(state))

    async def _attempt(self, trip: Trip, call: Call) -> tuple[Member, Answer]:
        trip.attempts += 1
        try:
            if trip.tools:
                await self._know_tools(trip.request.tier)
            async with self._place(trip) as member:
                answer = await self._ask(member, call(member), trip)
        except PoolError as error:
            trip.last = error
            raise
        member.learn("request_ok")
        return member, answer

    async def _ask(self, member: Member, asking: Awaitable[Answer], trip: Trip) -> Answer:
        """Await an answer and take what its failure teaches."""
        try:
            return await self._patiently(member, asking)
        except OverloadError as error:
            if error.retry_after is not None:
                member.cooling_until = max(member.cooling_until, self._clock() + error.retry_after)
            trip.tried.add(member.name)
            raise
        except TransientError as error:
            member.learn("request_dead" if isinstance(error, EndpointDeadError) else "request_failed", error)
            trip.tried.add(member.name)
            member.look_now.set()
            raise
        except ModelMissingError:
            await member.probe()
            raise

    async def _patiently(self, member: Member, asking: Awaitable[Answer]) -> Answer:
        """Await an answer for as long as the engine moves.

        Raises TransientError once it stood still for the configured time: a busy server is left to work, since giving
        up and sending again would only double its load.
        """
        task = asyncio.ensure_future(asking)
        patience = left = self.config.first_byte_timeout
        try:
            while not (await asyncio.wait({task}, timeout=left))[0]:
                left = patience - member.still_for
                if left <= 0:
                    told = f"no answer in {patience:g} s, and its engine stands still"
                    raise TransientError(f"endpoint {member.name}: {told}")
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def _place(self, trip: Trip) -> AsyncIterator[Member]:
        """A place at the chosen member, given back however the block ends."""
        member = await self._choose(trip)
        try:
            with member.hold():  # nothing awaits between the choice and the count: two requests cannot take one place
                yield member
        finally:
            self._wake()

    async def _choose(self, trip: Trip) -> Member:
        """The member to ask; waits while all that fit are full or cooling."""
        tier, session, looked = trip.request.tier, trip.request.session, False
        while True:
            fitting = fit(self._candidates(tier), tried=trip.tried, tools=trip.tools)
            if not fitting:
                looked = await self._nobody_fits(trip, looked=looked)
                continue
            pinned = self._pins.get(tier, session)
            if chosen := pick(fitting, pinned):
                if not keeps_pin(fitting, pinned):
                    self._pins.put(tier, session, chosen.name)
                return self._roster.members[chosen.name]
            await self._change(self._soonest(trip, fitting))

    async def _nobody_fits(self, trip: Trip, *, looked: bool) -> bool:
        """Look at the tier once more before giving up; True for having looked. Raises why nobody fits."""
        living = alive(self._candidates(trip.request.tier))
        if any(c.name in trip.tried for c in living):
            trip.tried.clear()
        elif living:
            raise self._no_tools(trip.request.tier, living)
        elif looked:
            raise self._nobody(trip.request.tier)
        else:
            await self._roster.look(trip.request.tier)
        return True

    def _soonest(self, trip: Trip, fitting: tuple[Candidate, ...]) -> float | None:
        """Seconds until one of the cooling may be asked; None where a place must be given back first.

        Raises OverloadError when that is past the deadline.
        """
        cooling = [c.cooling for c in fitting if c.room > 0]
        if len(cooling) == len(fitting) and self._clock() + min(cooling) >= trip.until:
            told = f"tier {trip.request.tier}: every endpoint asks to wait, the first for {min(cooling):.1f} s"
            raise OverloadError(f"{told}, which is past the deadline", min(cooling))
        return min(cooling, default=None)

    async def _know_tools(self, tier: str) -> None:
        """Find out who speaks tool calls among the living of a tier, looking first where nobody was looked at yet."""
        if not alive(self._candidates(tier)):
            await self._roster.look(tier)
        living = {c.name for c in alive(self._candidates(tier))}
        await asyncio.gather(*(m.find_tools() for m in self._roster.tier(tier) if m.name in living))

    def _candidates(self, tier: str) -> list[Candidate]:
        return [member.candidate(self._pins.sessions[member.name]) for member in self._roster.tier(tier)]

    def _members(self, tier: str) -> list[Member]:
        members = self._roster.tier(tier)
        if not members:
            known = ", ".join(self.config.tiers) or "none"
            raise PoolConfigError(
                f"no endpoint serves the tier {tier!r} (tiers: {known}); add one to the pool's endpoints"
            )
        return members

    def _nobody(self, tier: str) -> NoEndpointError:
        said = "; ".join(m.last_error or f"endpoint {m.name}: {m.liveness.state}" for m in self._roster.tier(tier))
        return NoEndpointError(f"no endpoint of the tier {tier!r} is up: {said}")

    def _no_tools(self, tier: str, living: tuple[Candidate, ...]) -> PoolError:
        names = ", ".join(c.name for c in living)
        if any(c.native_tools is None for c in living):
            return TransientError(f"tier {tier!r}: could not find out whether {names} can call tools")
        return PermanentError(f"tier {tier!r}: none of {names} speaks native tool calls; speak them as text")

    async def _change(self, timeout: float | None) -> None:  # noqa: ASYNC109  a wait is what it is
        """Wait until a place was given back or a probe came in, at most ``timeout`` seconds."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait({waiter}, timeout=timeout)
        finally:
            self._waiters.remove(waiter)

    def _wake(self) -> None:
        """Let the waiting look again, the longest waiting first."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _served(member: Member) -> Served:
    if member.served is None:
        raise NoEndpointError(f"endpoint {member.name} was not discovered yet")
    return member.served


def _late(last: PoolError | None, limit: float) -> PoolError:
    """The error for a deadline that passed: the last one met, in its own class."""
    late = f"no answer within the deadline of {limit:g} s"
    if isinstance(last, OverloadError):
        return OverloadError(f"{late}; last: {last}", last.retry_after)
    if isinstance(last, NoEndpointError):
        return NoEndpointError(f"{late}; last: {last}")
    return TransientError(f"{late}; last: {last}" if last else late)
