"""How our own requests fared at each endpoint: its breaker, is it full, which request broke it. Makes the sites.

Decided at each request from what is known then; nothing here waits for a cycle, for a log or for the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pool.breaker import Breaker, Outcome, State, Who
from pool.errors import (
    BrokenError,
    EndpointDeadError,
    MisconfiguredError,
    PoolError,
    StalledError,
    TornError,
    TransientError,
)
from pool.member import Clock, Member
from pool.placement.view import Site
from pool.poison import Failure, Mark, Suspects
from pool.types import Card

FULL_FIRST, FULL_LONGEST = 0.25, 4.0  # seconds that a full server is left alone where it does not say for how long
SILENT = (BrokenError, EndpointDeadError, StalledError, TornError)  # where the server did not just say that it failed
WAIT_LONGEST = 60.0  # seconds that its word counts: it may be wrong by days, and is asked again meanwhile


def model_mark(model: str) -> str:
    """The name under which serving one model counts as a capability."""
    return f"model:{model}"


@dataclass(slots=True)
class Visit:
    """A request inside an endpoint since ``sent``, for its breaker. It leaves with the outcome that stands here at its
    end."""

    ticket: int
    who: Who = ("", "")
    sent: float = 0.0
    outcome: Outcome = "neutral"

    def blame(self, error: PoolError) -> None:
        """What an error says of the endpoint: refusals and overload say nothing.

        One that is set up wrongly fails everybody, so it is left alone at once; a 403 may be of one request's making.
        """
        if isinstance(error, TransientError):
            self.outcome = "dead" if isinstance(error, EndpointDeadError) else "failed"
        elif isinstance(error, MisconfiguredError):
            self.outcome = "failed" if error.status == 403 else "dead"


class Standings:
    """The standing of every member. One that leaves the pool is forgotten with `forget`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.suspects = Suspects(lambda name: self._breaker(name).succeeded)
        self._breakers: dict[str, Breaker] = {}
        self._refusals: dict[str, int] = {}
        self._marks: dict[str, tuple[frozenset[str], tuple[Card, ...], frozenset[str]]] = {}

    def state(self, name: str) -> State:
        """Where an endpoint's breaker stands."""
        return self._breaker(name).state(self._clock())

    @contextmanager
    def visit(self, name: str, who: Who = ("", "")) -> Iterator[Visit]:
        """A request of somebody's goes to an endpoint for as long as the block runs."""
        breaker = self._breaker(name)
        now = self._clock()
        visit = Visit(breaker.enter(now), who, now)
        try:
            yield visit
        finally:
            if visit.outcome == "ok":
                self._refusals.pop(name, None)
            breaker.leave(visit.ticket, visit.outcome, self._clock(), who)

    def well(self, name: str, visit: Visit) -> None:
        """An answer began well there."""
        visit.outcome = "ok"
        self._breaker(name).well(visit.ticket, self._clock())

    def poisoned(self, mark: Mark, request: str, name: str, visit: Visit, error: PoolError) -> bool:
        """A request failed there; whether it is the request that is to blame."""
        self._breaker(name).unwell(visit.ticket)
        failure = Failure(
            name, visit.who, request, visit.sent, self._clock(),
            answered=not isinstance(error, SILENT), begun=isinstance(error, TornError),
        )  # fmt: skip
        return self.suspects.failed(mark, failure)

    def forgive(self, name: str, visit: Visit) -> None:
        """A failure there was the request's own."""
        if visit.outcome == "failed":
            visit.outcome = "neutral"
            self._breaker(name).forgive(visit.ticket, visit.who)

    def full(self, member: Member, retry_after: float | None) -> None:
        """A server said that it is full: leave it alone for as long as it said, else for a moment that grows."""
        if retry_after is None:
            count = self._refusals[member.name] = min(16, self._refusals.get(member.name, 0) + 1)
            retry_after = min(FULL_LONGEST, FULL_FIRST * 2 ** (count - 1))
        member.cooling_until = max(member.cooling_until, self._clock() + min(retry_after, WAIT_LONGEST))

    def returned(self, name: str) -> None:
        """An endpoint was started anew: it is cold, and broke by itself whatever broke before."""
        self.suspects.gone(name)
        self._breaker(name).returned(self._clock())

    def forget(self, name: str) -> None:
        """An endpoint left the pool."""
        self.suspects.gone(name)
        for known in (self._breakers, self._refusals, self._marks):
            known.pop(name, None)

    def sites(self, members: Sequence[Member], in_flight: Callable[[str], int]) -> list[Site]:
        """The members as placement sees them.

        The last endpoint rule: where every one that lives is only kept back by its breaker, the first to come back is
        asked now, since a refusal would help nobody (BerriAI/litellm#3646, llm-d/llm-d-router#2408, #2547).
        """
        now = self._clock()
        waits = {member.name: self._breaker(member.name).wait(now) for member in members}
        living = [m.name for m in members if m.state in ("up", "suspect") and not m.draining]
        if living and all(waits[name] > 0 for name in living):
            waits[min(living, key=lambda name: waits[name])] = 0.0
        return [self._site(member, waits[member.name], in_flight(member.name), now) for member in members]

    def _site(self, member: Member, wait: float, in_flight: int, now: float) -> Site:
        abilities, cards = member.abilities, member.record.cards if member.record else ()
        known = self._marks.get(member.name)
        if known is None or known[0] is not abilities or known[1] != cards:
            marked = abilities | {model_mark(card.id) for card in cards}
            known = self._marks[member.name] = (abilities, cards, marked)
        warmth = self._breaker(member.name).warmth(now)
        return member.site(in_flight, cooling=wait, warmth=warmth, capabilities=known[2])

    def _breaker(self, name: str) -> Breaker:
        if name not in self._breakers:
            self._breakers[name] = Breaker()
        return self._breakers[name]
