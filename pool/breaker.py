"""Decides when an endpoint that fails is left alone for a moment, and how it is let back in; pure.

It differs from its kind in open projects where those have open bugs: a client's own mistake (4xx) is no failure
(vllm-project/router#60, sgl-project/sglang#25811, #26713); half-open always leaves, also where a probe is lost
(sgl-project/sglang#31206); few failures open nothing and an open one is short (vime#371); it is asked at each request,
not by a cycle in the background (BerriAI/litellm#34836); no state hangs on a log line (BerriAI/litellm#32574).
"""

from __future__ import annotations

from collections import deque
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
COLD = 0.1  # share of its load that an endpoint gets at the beginning of the ramp


class Breaker:
    """The breaker of one endpoint. Times are seconds of the pool's clock."""

    def __init__(self) -> None:
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=64)
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

    def leave(self, ticket: int, outcome: Outcome, now: float) -> None:
        """A request came back. A ticket that was handed in before changes nothing."""
        probe = self._probes.pop(ticket, None) is not None
        if outcome == "neutral":
            return
        self._outcomes.append((now, outcome == "ok"))
        if self._opened is None:
            if outcome == "dead" or (outcome == "failed" and self._too_many(now)):
                self._open(now, SHORTEST)
        elif probe and outcome == "ok":
            self._close(now)
        elif probe:  # what others bring, that went out before it opened, says nothing of now
            self._open(now, min(LONGEST, self._open_for * 2))

    def returned(self, now: float) -> None:
        """The endpoint came back from death or was started anew: it is cold, so it is let in slowly."""
        self._close(now)

    def warmth(self, now: float) -> float:
        """From 0 to 1: the share of its load that the endpoint should get, below 1 for a while after a return."""
        if self._returned is None or now - self._returned >= RAMP:
            return 1.0
        return COLD + (1 - COLD) * (now - self._returned) / RAMP

    def _too_many(self, now: float) -> bool:
        recent = [ok for at, ok in self._outcomes if now - at <= WINDOW]
        return len(recent) >= VOLUME and recent.count(False) >= SHARE * len(recent)

    def _open(self, now: float, seconds: float) -> None:
        self._opened, self._open_for = now, seconds
        self._outcomes.clear()

    def _close(self, now: float) -> None:
        self._opened, self._open_for = None, SHORTEST
        self._returned = now
        self._probes.clear()
        self._outcomes.clear()
