"""Own work inside each endpoint, in requests and tokens, and other people's as far as scrapes tell. No I/O.

Own counts are the truth between two scrapes; nothing but a reservation and its end changes them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """What stands in one endpoint. ``pending_tokens`` wait for their prefill, ``context_tokens`` are those of requests
    in flight, live ones those of sessions that will probably come back; ``foreign`` are other people's requests."""

    in_flight: int = 0
    pending_tokens: int = 0
    context_tokens: int = 0
    live_sessions: int = 0
    live_tokens: int = 0
    foreign: float | None = None


class Lane:
    """The counts of one endpoint. Changed by its reservations and by scrapes."""

    __slots__ = (
        "_foreign",
        "_foreign_kv",
        "_foreign_waiting",
        "_prompt_tokens",
        "_scraped_at",
        "context",
        "in_flight",
        "live_sessions",
        "live_tokens",
        "name",
        "pending",
        "stay",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight = 0
        self.pending = 0
        self.context = 0
        self.live_sessions = 0
        self.live_tokens = 0
        self.stay = 5.0  # seconds that a request of ours stays, averaged
        self._foreign = 0.0
        self._foreign_waiting = 0.0
        self._foreign_kv = 0.0
        self._prompt_tokens: int | None = None
        self._scraped_at: float | None = None

    def scraped(self, now: float, running: int | None, waiting: int | None, kv_usage: float | None) -> None:
        """Take a scrape: what is in the endpoint beyond our own is other people's. None leaves it unknown."""
        if running is None:
            self._scraped_at = None
            return
        self._scraped_at = now
        self._foreign = float(max(0, running + (waiting or 0) - self.in_flight))
        self._foreign_waiting = min(self._foreign, float(waiting or 0))
        self._foreign_kv = 0.0 if self.in_flight and not self._foreign else (kv_usage or 0.0)

    def counted(self, prompt_tokens: int | None) -> bool:
        """Whether a counter that only grows went back: another process answers now."""
        before, self._prompt_tokens = self._prompt_tokens, prompt_tokens
        return before is not None and prompt_tokens is not None and prompt_tokens < before

    def weight(self, now: float, fresh_for: float) -> float | None:
        """How far the last scrape still holds, from 1 to 0; None where there is none."""
        if self._scraped_at is None:
            return None
        over = now - self._scraped_at - fresh_for
        return 1.0 if over <= 0 else 0.5 ** (over / fresh_for)

    def foreign(self, now: float, fresh_for: float) -> tuple[float, float] | None:
        """Other people's requests and the waiting ones among them; None where nobody knows."""
        weight = self.weight(now, fresh_for)
        return None if weight is None else (self._foreign * weight, self._foreign_waiting * weight)

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
