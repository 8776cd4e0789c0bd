"""Brings one request to an endpoint: place, begin, and again elsewhere while nothing of meaning reached its caller.

The only owner of retries: one count and one deadline for a request, one bucket for the pool, endpoints that failed it
left out. Between tries of a tier that was tried whole there is a jittered pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import ExitStack
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from pool.config import PoolConfig
from pool.dispatch import Dispatch
from pool.errors import (
    CapabilityError,
    ContextOverflowError,
    EndpointDeadError,
    MisconfiguredError,
    ModelMissingError,
    NoEndpointError,
    OverloadError,
    PoisonError,
    PoolError,
    StalledError,
    TransientError,
)
from pool.lease import Lease
from pool.lookout import Lookout
from pool.member import Clock, Member
from pool.patience import Watch, first_budget
from pool.placement.view import Site
from pool.retry import BACKOFF, Budget
from pool.roster import Roster
from pool.standing import Standings, Visit
from pool.trip import Start, Started, Trip, fitted
from pool.types import Capability

T = TypeVar("T")
MISJUDGED = 2  # times that our estimate of a prompt may be too high; below it the server has the last word
MOST_NAMES = 8  # endpoints that a message lists by name
TOKENS_A_SECOND = 5.0  # of decoding that are assumed where an answer comes in one body and nothing is heard before


class Sender:
    """Sends requests. All state of the pool is in the parts that it is given."""

    def __init__(self, config: PoolConfig, clock: Clock, roster: Roster, dispatch: Dispatch) -> None:
        self.standings = Standings(clock)
        self._config = config
        self._clock = clock
        self._roster = roster
        self._dispatch = dispatch
        self._budget = Budget(clock())

    async def begin(self, trip: Trip, start: Start[T]) -> Started[T]:
        """Begin a request; the caller closes what it gets.

        Raises PermanentError, ContextOverflowError, and after the budget or the deadline OverloadError, TransientError
        or NoEndpointError, whichever came last.
        """
        self._budget.asked()
        self._check(trip)
        try:
            async with asyncio.timeout(max(0.0, trip.until - self._clock())) as limit:
                try:
                    return await self._attempt(trip, start)
                except PoolError as error:
                    return await self._further(trip, start, error)
        except TimeoutError:
            if not limit.expired():
                raise
            raise trip.late() from trip.last

    def members(self, tier: str) -> list[Member]:
        """The members of a tier; "" stands for all."""
        return self._roster.tier(tier) if tier else list(self._roster.members.values())

    def sites(self, tier: str) -> list[Site]:
        """The members of a tier as placement sees them now."""
        return self.standings.sites(self.members(tier), self._dispatch.in_flight)

    async def look(self, tier: str) -> None:
        """Probe a tier now."""
        for name in (tier,) if tier else self._roster.tiers:
            await self._roster.look(name)

    async def know(self, tier: str, capability: Capability) -> None:
        """Find out who among the living of a tier can do something, looking first where nobody was looked at yet."""
        if not alive(self.members(tier)):
            await self.look(tier)
        await asyncio.gather(*(member.find(capability) for member in alive(self.members(tier))))

    def nobody(self, tier: str) -> NoEndpointError:
        """Why no endpoint of a tier can be asked, with what each last said."""
        said = "; ".join(member.trouble for member in self.members(tier))
        return NoEndpointError(f"no endpoint of the tier {tier!r} is up: {said}")

    def blame(self, trip: Trip, member: Member, visit: Visit, error: PoolError) -> PoolError:
        """Take what a failure at an endpoint teaches, in this very moment; gives the error to go on with."""
        trip.last = error
        visit.blame(error)
        if isinstance(error, TransientError) and error.reached and self._poisoned(trip, member, visit, error):
            trip.last = PoisonError(f"{error}; this request broke {_names(trip)} while others were served there", 502)
            return trip.last
        if isinstance(error, OverloadError):
            self.standings.full(member, error.retry_after)
            trip.tried.add(member.name)
        elif isinstance(error, TransientError):
            trip.tried.add(member.name)
            member.learn("request_dead" if isinstance(error, EndpointDeadError) else "request_failed", error)
            member.look_now.set()
        elif isinstance(error, MisconfiguredError):
            trip.tried.add(member.name)
            member.misfit = str(error)
        return error

    def _check(self, trip: Trip) -> None:
        """Raises PoisonError for a request that broke servers a moment ago."""
        suspects = self.standings.suspects
        if trip.rough in suspects and (left := suspects.refused(trip.mark, trip.need.caller, self._clock())):
            told = f"this request broke every server that took it while others were served; not sent for {left:.0f} s"
            raise PoisonError(told, 502)

    def _poisoned(self, trip: Trip, member: Member, visit: Visit, error: PoolError) -> bool:
        """Whether it is the request that is to blame; then its failures are taken off the endpoints."""
        trip.visits.append((member.name, visit))
        if not self.standings.poisoned(trip.mark, trip.need.request, member.name, visit, error):
            return False
        for name, one in trip.visits:
            self.standings.forgive(name, one)
        return True

    def _fared(self, trip: Trip, visit: Visit) -> None:
        """An answer is over: a request that fared well breaks nobody."""
        if visit.outcome == "ok" and trip.rough in self.standings.suspects:
            self.standings.suspects.cleared(trip.mark)

    def may_retry(self, trip: Trip) -> bool:
        """Whether a further try is within the count, the deadline and the pool's bucket; takes it from the bucket."""
        now = self._clock()
        return trip.attempts <= self._config.retries and now < trip.until and self._budget.take(now)

    async def _further(self, trip: Trip, start: Start[T], first: PoolError) -> Started[T]:
        """The tries after the first, whose error is tenacity's first outcome: it costs more than all else of a try."""
        failed: list[PoolError] = [first]

        async def attempt() -> Started[T]:
            if failed:
                raise failed.pop()
            return await self._attempt(trip, start)

        started: Started[T] = await self._retrying(trip)(attempt)
        return started

    def _retrying(self, trip: Trip) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception(lambda error: self._again(trip, error)),
            wait=lambda state: self._pause(trip, state),
            stop=lambda state: self._spent(trip, state),
            reraise=True,
        )

    def _again(self, trip: Trip, error: BaseException) -> bool:
        """Whether sending it again may help. A model that went away is looked for anew, once."""
        if isinstance(error, ModelMissingError) and not trip.rerouted:
            trip.rerouted = True
            return True
        if isinstance(error, MisconfiguredError):  # wrong for good, but for nobody else
            return any(member.name not in trip.tried for member in alive(self.members(trip.need.tier)))
        if isinstance(error, OverloadError) and error.stage is not None:  # our own queue turned it down
            return False
        return isinstance(error, (OverloadError, TransientError, NoEndpointError))

    def _spent(self, trip: Trip, state: RetryCallState) -> bool:
        """Whether the count, the deadline or the pool's bucket allows no further try."""
        return self._clock() + state.upcoming_sleep >= trip.until or not self.may_retry(trip)

    def _pause(self, trip: Trip, state: RetryCallState) -> float:
        """Seconds before the next try: none while the tier holds an endpoint that this request has not tried."""
        names = {member.name for member in alive(self.members(trip.need.tier))}
        ready = [s.name for s in self.sites(trip.need.tier) if s.name in names and s.cooling <= 0]
        if any(name not in trip.tried for name in ready):
            return 0.0
        trip.tried.clear()
        return BACKOFF(state) if ready or not names else 0.0  # one that cools is waited for in the queue

    async def _attempt(self, trip: Trip, start: Start[T]) -> Started[T]:
        trip.attempts += 1
        try:
            if trip.calls:
                await self.know(trip.need.tier, trip.calls)
            lease = await self._place(trip)
        except PoolError as error:
            trip.last = error
            raise
        with ExitStack() as stack:
            stack.enter_context(lease)
            return await self._there(trip, start, lease, stack)

    async def _there(self, trip: Trip, start: Start[T], lease: Lease, stack: ExitStack) -> Started[T]:
        """Begin at the endpoint that was chosen."""
        member = self._roster.members.get(lease.endpoint)
        if member is None:
            raise TransientError(f"endpoint {lease.endpoint}: it has just left the pool")
        stack.enter_context(member.hold())
        visit = stack.enter_context(self.standings.visit(member.name, (trip.need.caller, trip.need.session)))
        watch = trip.watch = self._watch(trip, lease)
        try:
            value = await self._patiently(member, watch, start(member, lease))
        except ModelMissingError as error:
            trip.last = error
            await member.probe()
            raise
        except PoolError as error:
            raise self.blame(trip, member, visit, error) from error.__cause__
        member.learn("request_ok")
        member.misfit = ""
        self.standings.well(member.name, visit)
        if trip.rough in self.standings.suspects:
            self.standings.suspects.began(trip.mark)
        stack.callback(self._fared, trip, visit)
        return Started(value, member, lease, watch, visit, stack.pop_all(), trip.need.request, trip.attempts)

    def _watch(self, trip: Trip, lease: Lease) -> Watch:
        need, decision = trip.need, lease.decision
        first = first_budget(self._config.first_byte_timeout, need.prompt.tokens, forecast=decision.expected_ttft)
        if need.whole:
            first += (need.ceiling or need.output_tokens) / TOKENS_A_SECOND
        return Watch(first=first, idle=self._config.idle_timeout, until=trip.until, sent=self._clock())

    async def _patiently(self, member: Member, watch: Watch, asking: Awaitable[T]) -> T:
        """Await an answer for as long as its engine moves; a request that is given up is dropped at the server too.

        Raises StalledError once it stood still for too long.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:  # in this very task: another one would cost every request
                with Lookout(member, watch, self._clock, lambda: limit.reschedule(loop.time())):
                    return await asking
        except TimeoutError:
            if not limit.expired():
                raise
            raise StalledError(f"endpoint {member.name}: {watch.verdict}") from None

    async def _place(self, trip: Trip) -> Lease:
        """A place; looks at the tier once more before giving up. Raises why nobody fits."""
        tier, ask = trip.need.tier, trip.ask(self._clock())
        looked = False
        while True:
            try:
                trip.placing = True  # and stays so when this is broken off
                lease = await self._dispatch.place(ask, lambda: self.sites(tier), frozenset(trip.tried))
            except ContextOverflowError as error:
                if error.window is None or ask.output_tokens == 1 or ask.prompt.tokens > MISJUDGED * error.window:
                    raise
                ask = fitted(ask, error.window)
            except NoEndpointError as error:
                if looked:
                    raise self._why_nobody(trip, error) from error
                await self.look(tier)
                looked = True
            else:
                trip.placing = False
                return lease

    def _why_nobody(self, trip: Trip, error: NoEndpointError) -> PoolError:
        need, living = trip.need, alive(self.members(trip.need.tier))
        if not living:
            return self.nobody(need.tier)
        names = ", ".join(member.name for member in living)
        if trip.calls and not any(member.seen(trip.calls) for member in living):
            if any(member.seen(trip.calls) is None for member in living):
                return TransientError(f"tier {need.tier!r}: could not find out whether {names} can call tools")
            where = f"tier {need.tier!r}" if need.tier else f"model {need.model!r}"
            told = f"{where}: no endpoint there makes native tool calls ({lacking(living, trip.calls)})"
            return CapabilityError(f"{told}; until then speak them as text, or ask another tier", "tools")
        if need.model is not None:
            return ModelMissingError(f"none of {names} serves the model {need.model!r} as it is asked for", 404)
        return error


def lacking(members: list[Member], capability: Capability) -> str:
    """Which members lack a capability, what that rests on, and the flag that would enable it, as status shows it."""
    found: dict[tuple[str, str], list[str]] = {}
    for member in members:
        told = member.record.traits.get(capability) if member.record else None
        found.setdefault((told.evidence, told.mend) if told else ("not tried yet", ""), []).append(member.name)
    return "; ".join(
        f"{_some(names)}: {evidence}{f'; mend: {mend}' if mend else ''}" for (evidence, mend), names in found.items()
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def alive(members: list[Member]) -> list[Member]:
    """Those that may be asked: not known to be dead nor on their way out. A suspect is alive: it may only be busy."""
    return [m for m in members if m.state in ("up", "suspect") and not m.draining and m.config.role != "prefill"]


def _names(trip: Trip) -> str:
    return ", ".join(dict.fromkeys(name for name, _ in trip.visits))
