"""The live sessions of one endpoint, bounded by the KV cache that they are forecast to need; pure.

A session is live while it has a turn running and between turns as long as it is expected back. A turn that runs is
never touched: a session is paused between turns, and its next turn waits (ThunderAgent; the time held is Continuum's).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from pool.admission.footprint import Demand, Footprint
from pool.admission.guard import Guard

USUAL = 0.02  # weight of one answer in what is usual
Price = Callable[[str, int], float | None]


@dataclass(slots=True)
class Seat:
    """One live session. ``turns`` are running ones; between turns it is held ``until`` and expected ``back``."""

    footprint: Footprint
    turns: int = 0
    until: float = math.inf
    back: float = 0.0


class Waste:
    """Which share of the prompt tokens an endpoint had to prefill a second time, as a moving average."""

    __slots__ = ("_lost", "_prompts")

    def __init__(self) -> None:
        self._lost = self._prompts = 0.0

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self._lost / self._prompts if self._prompts else 0.0

    def answered(self, had: int, prompt: int, cached: int | None) -> None:
        """One answer: its session ``had`` so many tokens before. A prompt that got shorter was compacted: no news."""
        if cached is None or prompt < had:
            return
        self._lost += USUAL * (max(0, had - cached) - self._lost)
        self._prompts += USUAL * (prompt - self._prompts)


class LiveSet:
    """Who is live on one endpoint: ``most`` sessions, and as many as fit the share ``headroom`` of ``kv_tokens``."""

    def __init__(self, headroom: float, most: int | None) -> None:
        self.seats: dict[str, Seat] = {}
        self.guard = Guard()
        self.paused = 0
        self.waste = Waste()
        self.kv_tokens: int | None = None
        self._headroom = headroom
        self._most = most
        self._demand = Demand()
        self._ahead = 0
        self._ends: list[tuple[float, str]] = []

    @property
    def tokens(self) -> int:
        """KV tokens that the live sessions are forecast to need."""
        return self._demand.tokens + self._ahead

    @property
    def needed(self) -> int:
        """KV tokens that they have now."""
        return self._demand.tokens

    def bound(self, now: float) -> float | None:
        """Tokens that they may need; None where nobody knows, which is neither full nor empty."""
        return self._bound(self._headroom, now)

    def _bound(self, share: float, now: float) -> float | None:
        return self.guard.bound(None if self.kv_tokens is None else self.kv_tokens * share, now)

    def fits(self, session: str, footprint: Footprint, now: float) -> bool:
        """Whether a session is live or may become so. One that is alone always may, however large it is."""
        if self._ends and self._ends[0][0] <= now:
            self.expire(now)
        if session in self.seats or not self.seats:
            return True
        if self._most is not None and len(self.seats) >= self._most:
            return False
        bound = self.bound(now)
        if bound is None:
            return True
        left = bound - self._demand.tokens - self._ahead - footprint.ahead
        return footprint.tokens <= left or self._demand.added_by(footprint) <= left

    def enter(self, session: str, footprint: Footprint) -> None:
        """A turn begins."""
        seat = self.seats.get(session)
        turns = seat.turns if seat else 0
        self._put(session, Seat(footprint, turns + 1))

    def leave(self, session: str, footprint: Footprint, until: float, back: float) -> None:
        """A turn is over; the session is held ``until`` then unless another of its turns runs."""
        seat = self.seats.get(session)
        if seat is None:
            return
        turns = max(0, seat.turns - 1)
        self._put(session, Seat(footprint, turns))
        if not turns:
            self.hold(session, until, back)

    def hold(self, session: str, until: float, back: float) -> None:
        """Keep a session that is between turns until then."""
        seat = self.seats.get(session)
        if seat is None or seat.turns:
            return
        seat.until, seat.back = until, back
        heapq.heappush(self._ends, (until, session))
        if len(self._ends) > 64 + 4 * len(self.seats):
            self._ends = [(s.until, name) for name, s in self.seats.items() if not s.turns]
            heapq.heapify(self._ends)

    def returned(self, session: str, now: float) -> None:
        """Its next turn has come and waits for a place: nothing runs out meanwhile."""
        seat = self.seats.get(session)
        if seat is not None and not seat.turns:
            seat.until, seat.back = math.inf, now

    def drop(self, session: str) -> bool:
        """Take a session's place away; whether it had one."""
        seat = self.seats.pop(session, None)
        if seat is not None:
            self._demand.remove(seat.footprint)
            self._ahead -= seat.footprint.ahead
        return seat is not None

    def expire(self, now: float) -> None:
        """Let go of those that did not come back in time."""
        while self._ends and self._ends[0][0] <= now:
            until, session = heapq.heappop(self._ends)
            seat = self.seats.get(session)
            if seat is not None and not seat.turns and seat.until <= until:
                self.drop(session)

    def relieve(self, now: float) -> None:
        """Pause sessions between turns, the one expected back last first, until the rest fits the KV cache.

        What they need now counts, not what lies ahead: who was let in with room to grow may use it, and the room that
        is kept from newcomers.
        """
        self.expire(now)
        bound = self._bound(1.0, now)
        if bound is None or self.needed <= bound:
            return
        idle = sorted((s for s in self.seats if not self.seats[s].turns), key=lambda s: self.seats[s].back)
        while idle and self.needed > bound and len(self.seats) > 1:
            self.drop(idle.pop())
            self.paused += 1

    def displace(self, session: str, footprint: Footprint, now: float, price: Price, budget: float) -> float | None:
        """Pause sessions between turns, the cheapest first, so that one who waited too long fits.

        ``price`` gives the seconds that it costs to pause one of so many tokens, None for who may not be paused. Told
        is the sum; None, and nobody paused, where it would be more than ``budget``.
        """
        idle = ((price(name, seat.footprint.tokens), name) for name, seat in self.seats.items() if not seat.turns)
        offers = sorted(((cost, name) for cost, name in idle if cost is not None and cost <= budget), reverse=True)
        gone: list[tuple[str, Seat]] = []
        spent = 0.0
        while not self.fits(session, footprint, now):
            cost, name = offers.pop() if offers else (math.inf, "")
            spent += cost
            if spent > budget:
                for before, seat in gone:
                    self._put(before, seat)
                return None
            gone.append((name, self.seats[name]))
            self.drop(name)
        self.paused += len(gone)
        return spent

    def _put(self, session: str, seat: Seat) -> None:
        self.drop(session)
        self._demand.add(seat.footprint)
        self._ahead += seat.footprint.ahead
        self.seats[session] = seat
