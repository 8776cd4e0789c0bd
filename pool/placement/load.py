"""What stands in each endpoint: own work in requests and tokens, and other people's as far as scrapes tell. No I/O.

Own counts are the truth between two scrapes; nothing but a reservation and its end changes them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """What stands in one endpoint. ``pending_tokens`` wait for their prefill, ``context_tokens`` are those of requests
    in flight, live ones those of sessions that will probably come back; ``foreign`` are other people's requests, None
    where nobody knows."""

    in_flight: int = 0
    pending_tokens: int = 0
    context_tokens: int = 0
    live_sessions: int = 0
    live_tokens: int = 0
    foreign: float | None = None


class Lane:
    """The numbers of one endpoint that a choice reads: its load, its prices in seconds, and how far its hits come true.

    ``base``, ``token``, ``pair``, ``step`` and ``seat`` are those of `pool.placement.cost`; ``stay`` are the seconds
    that a request of ours stays in it, ``trust`` is the share of foreseen hits that came true, both averaged.
    ``kv_tokens`` fit its KV cache where it tells, ``kv_free`` of its prefix cache without an eviction;
    ``kv_oldest`` is when that was used which would go first.
    """

    __slots__ = (
        "_prompt_tokens",
        "base",
        "context",
        "foreign",
        "foreign_waiting",
        "in_flight",
        "kv_free",
        "kv_oldest",
        "kv_tokens",
        "live_sessions",
        "live_tokens",
        "name",
        "pair",
        "pending",
        "scraped_at",
        "seat",
        "stay",
        "step",
        "token",
        "trust",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight = self.pending = self.context = 0
        self.live_sessions = self.live_tokens = 0
        self.kv_tokens: int | None = None
        self.kv_free = self.kv_oldest = 0.0
        self.stay = 5.0
        self.trust = 1.0
        self.base = self.token = self.pair = self.step = self.seat = 0.0
        self.foreign = self.foreign_waiting = 0.0
        self.scraped_at: float | None = None
        self._prompt_tokens: int | None = None

    def scraped(self, now: float, running: int | None, waiting: int | None) -> None:
        """Take a scrape: what is in the endpoint beyond our own is other people's. None leaves it unknown."""
        if running is None:
            self.scraped_at = None
            return
        self.scraped_at = now
        self.foreign = float(max(0, running + (waiting or 0) - self.in_flight))
        self.foreign_waiting = min(self.foreign, float(waiting or 0))

    def counted(self, prompt_tokens: int | None) -> bool:
        """Whether a counter that only grows went back: another process answers now."""
        before = self._prompt_tokens
        self._prompt_tokens = before if prompt_tokens is None else prompt_tokens
        return before is not None and prompt_tokens is not None and prompt_tokens < before

    def believed(self, now: float, fresh_for: float) -> float:
        """How far the last scrape still holds, from 1 to 0. An old one fades: it neither fills nor empties anybody."""
        if self.scraped_at is None:
            return 0.0
        over = now - self.scraped_at - fresh_for
        return 1.0 if over <= 0 else 0.5 ** (over / fresh_for)

    def stayed(self, seconds: float) -> None:
        """A request of ours was in it for so long."""
        self.stay += 0.1 * (seconds - self.stay)


class Share:
    """One request's part of a lane, counted from the choice to its end, exactly once however it ends."""

    __slots__ = ("_lane", "_open", "context", "pending")

    def __init__(self, lane: Lane, uncached: int, context: int) -> None:
        self._lane = lane
        self._open = True
        self.pending = uncached
        self.context = context
        lane.in_flight += 1
        lane.pending += uncached
        lane.context += context

    @property
    def open(self) -> bool:
        """Whether it still counts."""
        return self._open

    def prefilled(self) -> None:
        """The first token came: nothing of it waits for its prefill any more."""
        if self._open:
            self._lane.pending -= self.pending
            self.pending = 0

    def grew(self, tokens: int) -> None:
        """Its context grew by so many tokens."""
        if self._open and tokens > 0:
            self.context += tokens
            self._lane.context += tokens

    def close(self) -> bool:
        """Give back all that it holds; whether this call did."""
        if not self._open:
            return False
        self.prefilled()
        self._open = False
        self._lane.in_flight -= 1
        self._lane.context -= self.context
        return True
