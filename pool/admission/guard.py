"""Narrows an endpoint's live set when it is seen to thrash, and widens it again; pure.

Signs are preemptions, and answers that had far less in the cache than was promised. Multiplicative decrease, additive
increase, as in congestion control; the spiral that it breaks: prime-rl#3255 (hit rate 98 to 5 %).
"""

from __future__ import annotations

SHRINK = 0.8
LEAST = 0.25
RECOVER = 0.01  # of the whole, a second
COOL = 5.0  # seconds between two steps down: the effect of the first must have time to show
PROMISED = 256  # tokens; smaller promises tell nothing
POOR = 0.7  # share of the promised tokens that were really cached
FORGET = 300.0  # seconds without a sign after which a bound that was only learned is given up


class Guard:
    """The state of one endpoint. ``share`` of the bound given by its KV cache may be used."""

    def __init__(self) -> None:
        self._share = 1.0
        self._learned: float | None = None
        self._at = float("-inf")
        self._kept = 1.0
        self._preemptions: int | None = None

    def bound(self, whole: float | None, now: float) -> float | None:
        """Tokens that the live sessions may need, given those that fit; None for no bound."""
        if self._learned is None:  # never seen to thrash
            return whole
        since = now - self._at
        if whole is not None:
            return whole * min(1.0, self._share + RECOVER * since)
        if since > FORGET:
            return None
        return self._learned * (1.0 + RECOVER * since)

    def preempted(self, total: int | None, live: float, now: float) -> None:
        """Take the server's counter of preemptions. One that went back is a server started anew."""
        before, self._preemptions = self._preemptions, total
        if total is not None and before is not None and total > before:
            self._shrink(live, now)

    def answered(self, promised: int, cached: int | None, live: float, now: float) -> None:
        """Take what of the promised prefix was really cached; None says nothing, which is not zero."""
        if cached is None or promised < PROMISED:
            return
        self._kept += 0.15 * (min(1.0, cached / promised) - self._kept)
        if self._kept < POOR:
            self._kept = (1.0 + POOR) / 2
            self._shrink(live, now)

    def _shrink(self, live: float, now: float) -> None:
        if now - self._at < COOL:
            return
        share = self._share if self._at == float("-inf") else min(1.0, self._share + RECOVER * (now - self._at))
        self._share, self._learned, self._at = max(LEAST, share * SHRINK), live * SHRINK, now
