"""Which sessions are live on which endpoint, how long each is held between turns, and who must wait; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pool.admission.footprint import Footprint, footprint, kept
from pool.admission.liveset import LiveSet
from pool.admission.queue import Lane
from pool.admission.sessions import Session, Sessions
from pool.config import AdmissionConfig
from pool.placement.view import Ask, Decision, Site
from pool.types import Usage

LEAST_HOLD = 2.0  # seconds
BURST = 1.0  # seconds of prefill that stay saved up after a swap
UNKNOWN = 1.0  # seconds that a swap is reckoned with where no prefill was seen yet
Speed = Callable[[str, int], float | None]


class Turn(Protocol):
    """One turn that had a place; ``called`` are the tools that its answer wants run, None where it was offered none."""

    @property
    def ask(self) -> Ask:
        """What was asked for."""

    @property
    def decision(self) -> Decision:
        """Where it went."""

    @property
    def called(self) -> tuple[str, ...] | None:
        """Names of tools."""


@dataclass(frozen=True, slots=True)
class Live:
    """The live set of one endpoint. ``bound`` is in tokens, None where its KV cache is not known."""

    sessions: int
    tokens: int
    bound: int | None
    paused: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Whose place a session that waited too long may get: contexts of at most ``largest`` tokens that ``may`` go.

    One that is ``starving`` gets a place in any case. ``idle`` are the seconds for which the endpoint had nothing to
    do, in which anybody may go; ``idling`` is one that has not waited too long, and gets a place in no other case.
    """

    now: float
    largest: float
    starving: bool
    may: Callable[[Session], bool]
    idle: float = 0.0
    idling: bool = False


class Presence:
    """All live sets. ``speed(endpoint, tokens)`` gives the seconds of a prefill, None until it was learned."""

    def __init__(self, settings: AdmissionConfig, speed: Speed) -> None:
        self.sessions = Sessions()
        self._settings = settings
        self._speed = speed
        self._sets: dict[str, LiveSet] = {}
        self._saved: dict[str, float] = {}

    def arrived(self, ask: Ask, program: str, now: float, *, lasting: bool = True) -> tuple[Session, Footprint]:
        """A turn is asked for. Its session, and the KV that it will need. One not ``lasting`` has one turn only."""
        for old in self.sessions.outdated(now):
            self._leave_all(old)
        session = self.sessions.arrived(ask, program, now) if lasting else Session(ask.session, program, now)
        live = self._live_at(session, ask.tier)
        if live is not None:
            live.expire(now)
            live.returned(session.name, now)
        ahead = self.sessions.ahead(session, self._settings.turns_ahead) if lasting else 0
        return session, footprint(ask.prompt, ask.output_tokens, ahead)

    def lane(self, session: Session, tier: str) -> Lane:
        """Where a session stands: live, paused, or not seen there before."""
        if self._live_at(session, tier) is not None:
            return "live"
        return "paused" if tier in session.homes else "new"

    def fits(self, session: Session, need: Footprint, site: Site, now: float) -> bool:
        """Whether a session is live on an endpoint or may become so."""
        return self._set(site).fits(session.name, need, now)

    def began(self, session: Session, need: Footprint, tier: str, site: Site) -> None:
        """A turn begins; a place elsewhere in the tier is given up."""
        before = session.homes.get(tier)
        if before is not None and before != site.name and before in self._sets:
            seat = self._sets[before].seats.get(session.name)
            if seat is not None and not seat.turns:
                self._sets[before].drop(session.name)
        session.homes[tier] = site.name
        session.turns += 1
        seat = self._set(site).seats.get(session.name)
        session.promised = kept(seat.footprint, need) if seat else 0
        self._set(site).enter(session.name, need)

    def ended(self, session: Session, turn: Turn, usage: Usage | None, now: float) -> bool:
        """A turn is over; whether the session lasts.

        After a failure the session's place is free at once: nobody knows what is left of its KV.
        """
        ask, decision = turn.ask, turn.decision
        self.sessions.ended_turn(session, now, turn.called, answered=usage is not None)
        lasts = self.sessions.get(session.name) is session
        endpoint = str(decision.endpoint)
        live = self._sets.get(endpoint)
        if live is None:
            return lasts
        if usage is not None:
            promised = max(decision.expected_hit, session.promised)
            live.waste.answered(session.had, usage.prompt_tokens, usage.cached_tokens)
            session.had = usage.prompt_tokens + usage.completion_tokens
            live.guard.answered(promised, usage.cached_tokens, live.needed, now)
        if usage is None or not lasts:
            self._give_up(live, session.name)
        else:
            grown = max(0, usage.prompt_tokens - ask.prompt.tokens) + usage.completion_tokens
            need = footprint(ask.prompt, grown, self.sessions.ahead(session, self._settings.turns_ahead))
            live.leave(session.name, need, *self._until(session, ask.tier, now))
        live.relieve(now)
        return lasts

    def acting(self, name: str, tool: str, expected: float | None, now: float) -> bool:
        """A session runs a tool; whether it gave up a place for it."""
        session = self.sessions.acting(name, tool, expected, now)
        if session is None:
            return False
        for tier, endpoint in session.homes.items():
            if endpoint in self._sets:
                self._sets[endpoint].hold(name, *self._until(session, tier, now))
                self._sets[endpoint].expire(now)
        return any(self._live_at(session, tier) is None for tier in session.homes)

    def withdrew(self, session: Session, tier: str, now: float) -> None:
        """A turn that was asked for will not come: its session is between turns again."""
        live = self._live_at(session, tier)
        if live is not None:
            live.hold(session.name, now + self._settings.hold, now + self._settings.hold)

    def end(self, name: str) -> bool:
        """A session is over; whether it was known."""
        session = self.sessions.end(name)
        if session is not None:
            self._leave_all(session)
        return session is not None

    def gone(self, endpoint: str) -> None:
        """An endpoint was removed, or came back with an empty cache: nobody between turns is live there."""
        live = self._sets.get(endpoint)
        if live is None:
            return
        for name in [name for name, seat in live.seats.items() if not seat.turns]:
            live.drop(name)
        if not live.seats:
            del self._sets[endpoint]
            self._saved.pop(endpoint, None)

    def preempted(self, endpoint: str, total: int | None, now: float) -> None:
        """Take an endpoint's counter of preemptions."""
        live = self._sets.get(endpoint)
        if live is not None:
            live.guard.preempted(total, live.needed, now)
            live.relieve(now)

    def swap(self, session: Session, need: Footprint, site: Site, swap: Swap) -> bool:
        """Make room on an endpoint for a session that waited too long, at the price of others between turns.

        Each costs the prefill of its context when it comes back, so the cheapest go first, and the endpoint saves up
        for them a share of its time: one that does little else than prefill anew serves nobody. Who is starving gets in
        beside the others where nobody can go, since a session may never be between turns.

        An endpoint that idles longer than that prefill takes loses nothing by it, and is not kept waiting. Who has been
        away for long comes back the more seldom, so its place counts for less.
        """
        share, name, live = self._settings.swap_share, site.name, self._set(site)

        def loss(other: str, tokens: int) -> float:
            known, took = self.sessions.get(other), self._speed(name, tokens) or 0.0
            away = swap.idle if known is None else max(swap.idle, swap.now - known.ended)
            return took * took / (took + away) if took else 0.0

        if swap.idle > 0 and live.displace(session.name, need, swap.now, loss, swap.idle) is not None:
            return True
        if swap.idling or (live.waste.share > self._settings.most_waste and not swap.starving):
            return False
        budget = share * (swap.now - self._saved.setdefault(name, swap.now - BURST / share))

        def took(tokens: int) -> float:
            return UNKNOWN if (seconds := self._speed(name, tokens)) is None else seconds

        def price(other: str, tokens: int) -> float | None:
            known = self.sessions.get(other)
            return took(tokens) if tokens <= swap.largest and (known is None or swap.may(known)) else None

        spent = live.displace(session.name, need, swap.now, price, budget)
        if spent is None and swap.starving:
            spent = took(need.tokens)
        if spent is None or spent > budget:
            return False
        self._saved[name] = swap.now - min(budget - spent, BURST) / share
        return True

    def live(self, now: float) -> dict[str, Live]:
        """All live sets as they stand."""
        found = {}
        for name, live in self._sets.items():
            live.expire(now)
            bound = live.bound(now)
            found[name] = Live(len(live.seats), live.tokens, None if bound is None else int(bound), live.paused)
        return found

    def _until(self, session: Session, tier: str, now: float) -> tuple[float, float]:
        """Until when a session between turns is held, and when it is expected back.

        To hold it costs its tokens for that time; to lose it costs the endpoint the time of its prefill, all tokens of
        the cache waiting. They are even after the time in which the whole cache could be prefilled (Continuum). It is
        held while that is expected to cost less, by what was seen of such absences, and not at all where the agent
        itself told of something that takes longer.
        """
        endpoint = session.homes.get(tier, "")
        kv_tokens = self._sets[endpoint].kv_tokens if endpoint in self._sets else None
        tokens = max(1, session.prompt)
        took = self._speed(endpoint, tokens)
        hold = self._settings.hold if took is None or kv_tokens is None else took * kv_tokens / tokens
        hold = min(self._settings.max_hold, max(LEAST_HOLD, hold))
        left = self.sessions.left(session, now)
        if session.told and left > hold:
            return now, now + left
        return now + self.sessions.worth(session, now, hold, self._settings.max_hold), now + left

    def _live_at(self, session: Session, tier: str) -> LiveSet | None:
        live = self._sets.get(session.homes.get(tier, ""))
        return live if live is not None and session.name in live.seats else None

    def _set(self, site: Site) -> LiveSet:
        live = self._sets.get(site.name)
        if live is None:
            live = LiveSet(self._settings.headroom, self._settings.max_live_sessions)
            self._sets[site.name] = live
        live.kv_tokens = site.kv_tokens
        return live

    def _leave_all(self, session: Session) -> None:
        for endpoint in set(session.homes.values()):
            live = self._sets.get(endpoint)
            if live is not None and session.name in live.seats and not live.seats[session.name].turns:
                live.drop(session.name)

    @staticmethod
    def _give_up(live: LiveSet, name: str) -> None:
        seat = live.seats.get(name)
        if seat is not None:
            seat.turns = max(0, seat.turns - 1)
            if not seat.turns:
                live.drop(name)
