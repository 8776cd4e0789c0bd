"""Decides when an endpoint that fails is left alone for a moment, and how it is let back in; pure.

It differs from its kind in open projects where those have open bugs: a client's own mistake (4xx) is no failure
(vllm-project/router#60, sgl-project/sglang#25811, #26713); half-open always leaves, also where a probe is lost
(sgl-project/sglang#31206); few failures open nothing and an open one is short (vime#371); it is asked at each request,
not by a cycle in the background (BerriAI/litellm#34836); no state hangs on a log line (BerriAI/litellm#32574). Every
caller, and every session of one, has one vote, so that nobody alone can keep the others from an endpoint.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Literal

State = Literal["closed", "open", "half-open"]
Outcome = Literal["ok", "failed", "dead", "neutral"]
"""``neutral``: nothing was learnt, as from a refusal, an overload, a request that was cancelled."""

WINDOW = 10.0  # seconds for which an outcome counts
VOLUME = 5  # outcomes in the window below which nothing opens
SHARE = 0.5  # of failures among them, from which it opens
SHORTEST = 1.0  # seconds open the first time; doubled each time that the probe fails
LONGEST = 15.0
PROBES = 2  # requests at a time that a half-open one lets through
LOST = 30.0  # seconds after which a probe counts as lost, so that its place is free again
RAMP = 10.0  # seconds of slow start after a return
VOTERS = 32  # callers whose outcomes are kept, sessions of each, and outcomes of each of these
COLD = 0.1  # share of its load that an endpoint gets at the beginning of the ramp


Who = tuple[str, str]
"""Who sent a request: its caller and its session."""


class Breaker:
    """The breaker of one endpoint. Times are seconds of the pool's clock."""

    def __init__(self) -> None:
        self._well: deque[tuple[float, int]] = deque(maxlen=8)
        self._votes: OrderedDict[str, OrderedDict[str, deque[tuple[float, bool, int]]]] = OrderedDict()
        self._opened_by = 0
        self._opened: float | None = None
        self._open_for = SHORTEST
        self._probes: dict[int, float] = {}
        self._returned: float | None = None
        self._tickets = 0

    def state(self, now: float) -> State:
        """Where it stands at this moment; time alone makes an open one half-open."""
        if self._opened is None:
            return "closed"
        return "open" if now < self._opened + self._open_for else "half-open"

    def wait(self, now: float) -> float:
        """Seconds until a request may be sent; 0 when one may now."""
        if self._opened is None:
            return 0.0
        if (left := self._opened + self._open_for - now) > 0:
            return left
        running = [at for at in self._probes.values() if now - at < LOST]
        return 0.0 if len(running) < PROBES else max(0.01, min(running) + LOST - now)

    def enter(self, now: float) -> int:
        """A request goes out; gives the ticket to hand in with its outcome."""
        self._tickets += 1
        if self._opened is not None:
            self._probes = {ticket: at for ticket, at in self._probes.items() if now - at < LOST}
            self._probes[self._tickets] = now
        return self._tickets

    @property
    def succeeded(self) -> float | None:
        """When an answer last began or ended well; None while none did."""
        return self._well[-1][0] if self._well else None

    def well(self, ticket: int, now: float) -> None:
        """An answer began well."""
        self._well.append((now, ticket))

    def unwell(self, ticket: int) -> None:
        """What began well broke off: it bears witness of nothing."""
        kept = [told for told in self._well if told[1] != ticket]
        self._well.clear()
        self._well.extend(kept)

    def leave(self, ticket: int, outcome: Outcome, now: float, who: Who = ("", "")) -> None:
        """A request came back. A ticket that was handed in before changes nothing."""
        probe = self._probes.pop(ticket, None) is not None
        if outcome == "neutral":
            return
        if outcome == "ok":
            self.well(ticket, now)
        self._vote(who, (now, outcome == "ok", ticket))
        if self._opened is None:
            if outcome == "dead" or (outcome == "failed" and self._too_many(now)):
                self._open(now, SHORTEST)
                self._opened_by = ticket
        elif probe and outcome == "ok":
            self._close(now)
        elif probe:  # what others bring, that went out before it opened, says nothing of now
            self._open(now, min(LONGEST, self._open_for * 2))

    def forgive(self, ticket: int, who: Who) -> None:
        """A failure turned out to be the request's own: take it back, and what it opened."""
        caller, session_name = who
        if (session := self._votes.get(caller, OrderedDict()).get(session_name)) is not None:
            kept = [vote for vote in session if vote[2] != ticket]
            session.clear()
            session.extend(kept)
        if self._opened is not None and self._opened_by == ticket:
            self._opened, self._open_for = None, SHORTEST
            self._probes.clear()

    def returned(self, now: float) -> None:
        """The endpoint came back from death or was started anew: it is cold, so it is let in slowly."""
        self._close(now)

    def warmth(self, now: float) -> float:
        """From 0 to 1: the share of its load that the endpoint should get, below 1 for a while after a return."""
        if self._returned is None or now - self._returned >= RAMP:
            return 1.0
        return COLD + (1 - COLD) * (now - self._returned) / RAMP

    def _too_many(self, now: float) -> bool:
        """Every caller has one vote, which its sessions share: the failed part of what each sent lately."""
        count, shares = 0, []
        for sessions in self._votes.values():
            recent = [[ok for at, ok, _ in votes if now - at <= WINDOW] for votes in sessions.values()]
            told = [votes.count(False) / len(votes) for votes in recent if votes]
            count += sum(map(len, recent))
            if told:
                shares.append(sum(told) / len(told))
        return count >= VOLUME and sum(shares) >= SHARE * len(shares)

    def _vote(self, who: Who, vote: tuple[float, bool, int]) -> None:
        caller, session = who
        sessions = self._votes.setdefault(caller, OrderedDict())
        sessions.setdefault(session, deque(maxlen=VOTERS)).append(vote)
        for kept, name in ((self._votes, caller), (sessions, session)):
            kept.move_to_end(name)
            if len(kept) > VOTERS:
                kept.popitem(last=False)

    def _open(self, now: float, seconds: float) -> None:
        self._opened, self._open_for = now, seconds
        self._opened_by = 0
        self._votes.clear()

    def _close(self, now: float) -> None:
        self._opened, self._open_for = None, SHORTEST
        self._returned = now
        self._probes.clear()
        self._votes.clear()
