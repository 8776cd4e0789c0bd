"""The one brain of the pool: who waits, who goes next and where, decided and counted in one step on the event loop.

A request gets its place and is counted there before anything else runs, so two cannot take one place; it is given back
exactly once, by its lease. Everything but `place` is plain synchronous code without a clock of its own.
Over 400 lines, since who waits, who swaps and who is counted change together in one step.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from pool.admission.chooser import Chooser
from pool.admission.classes import RANKS, Classes
from pool.admission.fairness import Service, used, weight
from pool.admission.footprint import Footprint
from pool.admission.line import Line, Scene, Sites, able
from pool.admission.presence import Presence
from pool.admission.queue import NOT_LIVE, Lane, Ticket, rank_of
from pool.admission.refusals import awaited, expired, full, hopeless, late, nobody
from pool.admission.report import Stats, Waiting
from pool.admission.sessions import Session
from pool.config import PoolConfig
from pool.errors import OverloadError, PoolError
from pool.lease import Lease
from pool.placement.placer import Placer
from pool.placement.view import Ask, Decision
from pool.types import Usage
from pool.wire.metrics import Snapshot

TICK = 0.25  # seconds between looks while somebody waits, for what no event tells of
IDLE_TICK = 0.05  # the same while an endpoint has nothing to do
LOOKS, TICK_LOOKS = 8, 256  # waiting requests that one event, or one tick, may look at in vain
OPEN: frozenset[Lane] = frozenset()
ENTERING: frozenset[Lane] = frozenset({"paused", "new"})
Outcome = Lease | PoolError
Clock = Callable[[], float]


class Dispatch:
    """Use `place`; or, without an event loop, `submit`, `withdraw` and `tick`."""

    def __init__(self, settings: PoolConfig, clock: Clock, placer: Placer) -> None:
        self._clock = clock
        self._placer = placer
        self._classes = Classes(settings.admission)
        self._service = Service(settings.admission.half_life)
        self._presence = Presence(settings.admission, placer.prefill_seconds)
        self._patience = settings.admission.force_after
        self._chooser = Chooser(placer, self._presence, self._service, self._patience)
        self._lines: dict[str, Line] = {}
        self._bound: dict[int, tuple[Session, Footprint, Callable[[Outcome], None]]] = {}
        self._held: Counter[str] = Counter()
        self._rested: dict[str, float] = {}
        self._stats = Stats()
        self._number = 0
        self._draining = False
        self._again: list[Line] = []
        self._timer: asyncio.TimerHandle | None = None

    async def place(self, ask: Ask, sites: Sites, tried: frozenset[str] = frozenset()) -> Lease:
        """A place for a request, waited for where there is none.

        ``sites`` gives the sites of the ask's tier as they are now. Endpoints in ``tried`` are left out as long as
        another one lives. Raises NoEndpointError where none of the tier can ever take it, and OverloadError, which
        names the stage and when to come back.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)
            elif isinstance(outcome, Lease):  # cancelled, and not run since
                outcome.fail()

        ticket = self.submit(ask, sites, tried, settle)
        if ticket.waiting:
            self._arm()
        try:
            outcome = await future
        except asyncio.CancelledError:
            self.withdraw(ticket)
            if future.done() and not future.cancelled() and isinstance(granted := future.result(), Lease):
                granted.fail()
            raise
        if isinstance(outcome, PoolError):
            raise outcome
        return outcome

    def submit(self, ask: Ask, sites: Sites, tried: frozenset[str], settle: Callable[[Outcome], None]) -> Ticket:
        """Ask for a place. ``settle`` is called once, maybe at once, unless the ticket is withdrawn before."""
        now = self._clock()
        line = self._line(ask.tier)
        line.sites = sites
        program = ask.program or ask.session or ask.request
        lasting = bool(ask.session)
        if not lasting:  # nobody will come back to it
            ask = replace(ask, session=f"request {ask.request}")
        session, need = self._presence.arrived(ask, program, now, lasting=lasting)
        ticket = self._ticket(ask, tried, program, now)
        ticket.lane, ticket.last_used = self._presence.lane(session, ask.tier), session.ended
        if 0 < self._classes.of(ticket.rank).queue <= line.queue.count(ticket.rank):
            ticket.waiting = False
            self._presence.withdrew(session, ask.tier, now)
            self._refuse(settle, full(line, ticket, self._classes))
            return ticket
        self._bound[ticket.number] = (session, need, settle)
        try:
            if not self._at_once(line, ticket):
                line.queue.push(ticket)
                self._drain(line, LOOKS, [name for name in line.names if not self._held[name]])
        except BaseException:
            self.withdraw(ticket, look=False)
            raise
        if ticket.waiting and (error := hopeless(line, ticket, self._classes, now)):
            self._end(line, ticket, error)
        return ticket

    def withdraw(self, ticket: Ticket, *, look: bool = True) -> None:
        """Nobody waits for this ticket any more. One that is settled is left alone."""
        if ticket.waiting:
            line = self._lines[ticket.ask.tier]
            line.queue.remove(ticket)
            session, _, _ = self._bound.pop(ticket.number)
            self._presence.withdrew(session, line.tier, self._clock())
            self._stats.withdrawn += 1
            if look:
                self._drain(line, LOOKS)

    def tick(self) -> None:
        """Look at everybody who waits: time alone has changed something."""
        for line in list(self._lines.values()):
            self._drain(line, TICK_LOOKS, line.names)

    def news(self, endpoint: str = "", snapshot: Snapshot | None = None) -> None:
        """A probe came in; what the server said of its load is passed on to placement."""
        if endpoint and snapshot is not None:
            self._placer.observe(
                endpoint,
                running=snapshot.running,
                waiting=snapshot.waiting,
                prompt_tokens=snapshot.prompt_tokens,
            )
            self._presence.preempted(endpoint, snapshot.preemptions, self._clock())
        self.tick()

    def gone(self, endpoint: str, *, removed: bool = False) -> None:
        """An endpoint was removed, or came back with an empty cache."""
        self._presence.gone(endpoint)
        if removed:
            self._held += Counter()  # drops the zeros
            self._rested.pop(endpoint, None)
            self._placer.forget(endpoint)
        else:
            self._placer.restarted(endpoint)
        self.tick()

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:
        """A session runs a tool between two turns, for about so many seconds where that is known."""
        if self._presence.acting(session, tool, expected, self._clock()):
            self.tick()

    def end_session(self, session: str) -> None:
        """A session has had its last turn."""
        self._placer.forget_session(session)
        if self._presence.end(session):
            self.tick()

    def in_flight(self, endpoint: str) -> int:
        """Requests of ours at an endpoint, from the moment that they were sent there."""
        return self._held[endpoint]

    def waiting(self) -> tuple[Waiting, ...]:
        """Everybody who waits."""
        now = self._clock()
        return tuple(
            Waiting(
                request=ticket.ask.request,
                session=ticket.ask.session,
                program=ticket.program,
                request_class=ticket.ask.request_class,
                tier=line.tier,
                seconds=now - ticket.entered,
                why=awaited(line, ticket),
            )
            for line in self._lines.values()
            for ticket in line.queue
        )

    def stats(self) -> Stats:
        """Counts as they stand now."""
        waiting = {name: sum(line.queue.count(rank) for line in self._lines.values()) for name, rank in RANKS.items()}
        return replace(
            self._stats,
            placed=dict(self._stats.placed),
            waited=dict(self._stats.waited),
            refused=dict(self._stats.refused),
            forced=self._chooser.forced,
            in_flight=sum(sum(line.held) for line in self._lines.values()),
            waiting=waiting,
            live=self._presence.live(self._clock()),
        )

    def _ticket(self, ask: Ask, tried: frozenset[str], program: str, now: float) -> Ticket:
        self._number += 1
        rank = rank_of(ask)
        return Ticket(
            ask=ask,
            entered=now,
            number=self._number,
            program=program,
            rank=rank,
            level=rank,
            expires=min(ask.deadline, now + self._classes.of(rank).timeout),
            tried=tried,
        )

    def _line(self, tier: str) -> Line:
        line = self._lines.get(tier)
        if line is None:
            line = self._lines[tier] = Line(tier, self._classes, self._service, self._patience)
        return line

    def _at_once(self, line: Line, ticket: Ticket) -> bool:
        """Settle a ticket that finds nobody waiting, past the queue: the usual case, and the cheapest."""
        if self._draining or len(line.queue):
            return False
        self._draining = True
        try:
            line.pace.idle()
            scene = Scene(line, self._clock())
            return scene.open and self._try(line, scene, ticket)
        finally:
            self._draining = False
            while self._again:
                self._drain(self._again.pop(), LOOKS)

    def _drain(self, line: Line, looks: int, swapping: Collection[str] = ()) -> None:
        """Give places away until nobody who waits may have one. Called from within itself, it is done once more.

        On endpoints ``swapping`` who waited too long may get the place of another.
        """
        if self._draining:
            if line not in self._again:
                self._again.append(line)
            return
        self._draining = True
        try:
            self._pour(line, looks, swapping)
            while self._again:
                self._pour(self._again.pop(), LOOKS)
        finally:
            self._draining = False
            self._again.clear()

    def _pour(self, line: Line, looks: int, swapping: Collection[str] = ()) -> None:
        now = self._clock()
        for ticket in line.queue.advance(now):
            self._settle(ticket, expired(line, ticket, now))
        line.again = None
        if not len(line.queue):
            line.pace.idle()
            return
        scene = Scene(line, now)
        over: list[Ticket] = []
        try:
            for level in line.queue.levels():
                self._level(line, scene, level, (over, looks))
        finally:
            line.closed = scene.closed
            for ticket in over:
                line.queue.back(ticket)
        for name in tuple(swapping):
            self._rotate(line, scene, name)

    def _rotate(self, line: Line, scene: Scene, endpoint: str) -> None:
        """Give those who waited too long the places of others that are between turns; on an idle endpoint, anybody."""
        for level in line.queue.levels():
            while scene.free > 0:
                idle = self._idle(endpoint, scene.now)
                ticket = line.queue.longest(level) or (line.queue.head(level, NOT_LIVE) if idle else None)
                if ticket is None or self._kept(line, scene, ticket):
                    break
                session, need, _ = self._bound[ticket.number]
                decision = self._chooser.rotate(scene, ticket, (session, need), endpoint, idle)
                if decision is None:
                    if idle:
                        line.again = min(IDLE_TICK, line.again or IDLE_TICK)
                    break
                self._conclude(line, scene, ticket, decision)

    def _idle(self, endpoint: str, now: float) -> float:
        """Seconds since the last request of ours left an endpoint; 0 while one is there."""
        return 0.0 if self._held[endpoint] else now - self._rested.get(endpoint, now)

    def _kept(self, line: Line, scene: Scene, ticket: Ticket) -> bool:
        """Whether the free places are kept for a better class."""
        return scene.free - self._classes.reserved(ticket.rank, scene.capacity, line.held) <= 0

    def _level(self, line: Line, scene: Scene, level: int, vain: tuple[list[Ticket], int]) -> None:
        """Serve one level, until nobody in it may have a place or enough of them were looked at in vain."""
        over, looks = vain
        while scene.open:
            ticket = line.queue.head(level, ENTERING if scene.closed else OPEN)
            if ticket is None or len(over) >= looks:
                return
            session = self._bound[ticket.number][0]
            lane = self._presence.lane(session, line.tier)
            if lane != ticket.lane:
                line.queue.refile(ticket, lane, session.ended)
            elif not self._try(line, scene, ticket):
                line.queue.step_over(ticket)
                over.append(ticket)

    def _try(self, line: Line, scene: Scene, ticket: Ticket) -> bool:
        """Settle a ticket if that can be done now; else say in it what it waits for."""
        ask = ticket.ask
        if not any(able(site, ask) for site in scene.living):
            self._end(line, ticket, nobody(line, ask))
            return True
        if self._kept(line, scene, ticket):
            ticket.why = "the free places are kept for a better class"
            return False
        session, need, _ = self._bound[ticket.number]
        decision = self._chooser.choose(line, scene, ticket, session, need)
        if decision.endpoint is None:
            return False
        self._conclude(line, scene, ticket, decision)
        return True

    def _conclude(self, line: Line, scene: Scene, ticket: Ticket, decision: Decision) -> None:
        """Grant what was decided, or refuse where it would be too late."""
        error, endpoint = late(decision, ticket.ask, scene.now), str(decision.endpoint)
        if error and self._chooser.believes(line, endpoint, scene.now):
            self._end(line, ticket, error)
        else:
            self._grant(line, scene, ticket, decision)

    def _grant(self, line: Line, scene: Scene, ticket: Ticket, decision: Decision) -> None:
        ask, now = ticket.ask, scene.now
        reserved = self._placer.reserve(ask, decision)
        session, need, settle = self._bound.pop(ticket.number)
        line.queue.remove(ticket)
        self._presence.began(session, need, line.tier, scene.take(str(decision.endpoint)))
        line.held[ticket.rank] += 1
        self._held[str(decision.endpoint)] += 1
        charged = weight(ask.prompt.tokens, ask.output_tokens, decision.expected_hit)
        self._charge(ticket.program, charged, now)
        self._stats.placed[ask.request_class] += 1
        self._stats.waited[ask.request_class] += now - ticket.entered
        ended = partial(self._ended, line, ticket, session, charged)
        settle(Lease(ask, decision, reserved, ended, waited=now - ticket.entered))

    def _ended(
        self, line: Line, ticket: Ticket, session: Session, charged: float, lease: Lease, usage: Usage | None
    ) -> None:
        """A lease is over."""
        now = self._clock()
        line.held[ticket.rank] -= 1
        self._held[lease.endpoint] -= 1
        if not self._held[lease.endpoint]:
            self._rested[lease.endpoint] = now
        if not self._presence.ended(session, lease, usage, now):
            self._placer.forget_session(session.name)
        self._charge(ticket.program, (used(usage) if usage else 0.0) - charged, now)
        if len(line.queue):
            line.pace.released(now)
        for other in self._lines.values():
            if len(other.queue) and lease.endpoint in other.names:
                self._drain(other, LOOKS, (lease.endpoint,))

    def _charge(self, program: str, tokens: float, now: float) -> None:
        self._service.charge(program, tokens, now)
        for line in self._lines.values():
            if len(line.queue):
                line.queue.touch(program)

    def _end(self, line: Line, ticket: Ticket, error: PoolError) -> None:
        """Refuse one that waits."""
        line.queue.remove(ticket)
        self._settle(ticket, error)

    def _settle(self, ticket: Ticket, error: PoolError) -> None:
        session, _, settle = self._bound.pop(ticket.number)
        self._presence.withdrew(session, ticket.ask.tier, self._clock())
        self._refuse(settle, error)

    def _refuse(self, settle: Callable[[Outcome], None], error: PoolError) -> None:
        stage = error.stage if isinstance(error, OverloadError) else None
        name = stage or "no endpoint"
        self._stats.refused[name] = self._stats.refused.get(name, 0) + 1
        settle(error)

    def _arm(self) -> None:
        """Tick once more while somebody waits."""
        if self._timer is None and any(len(line.queue) for line in self._lines.values()):
            self._timer = asyncio.get_running_loop().call_later(self._pause(), self._rang)

    def _rang(self) -> None:
        self._timer = None
        self.tick()
        self._arm()

    def _pause(self) -> float:
        now, soonest = self._clock(), TICK
        for line in self._lines.values():
            if not len(line.queue):
                continue
            due = line.queue.next_due()
            cooling = [s.cooling for s in line.sites() if s.cooling > 0]
            for left in (
                *cooling,
                *(() if due is None else (due - now,)),
                *(() if line.again is None else (line.again,)),
            ):
                soonest = min(soonest, left)
        return max(0.002, soonest)
