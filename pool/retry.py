"""Bounds retries over the whole pool, so that they cannot multiply a fault into an outage; pure.

One owner of retries and one budget (openclaw#134281, Vibe-Trading#1208): a request has a count, and the pool has a
bucket that retries drain and requests fill. Source: Gateway API GEP-3388, which names a share and a floor.
"""

from __future__ import annotations

from tenacity import wait_random_exponential

BACKOFF = wait_random_exponential(multiplier=0.25, max=10)  # seconds, once every endpoint of the tier was tried
SHARE = 0.2  # retries for each request
FLOOR = 10.0  # retries a second that are always allowed, or a quiet pool could retry nothing
MOST = 200.0  # retries that may be saved up


class Budget:
    """A bucket of retries. Times are seconds of the pool's clock."""

    def __init__(self, now: float, *, share: float = SHARE, floor: float = FLOOR, most: float = MOST) -> None:
        self._share, self._floor, self._most = share, floor, most
        self._left, self._at = most, now

    def asked(self) -> None:
        """A request came in."""
        self._left = min(self._most, self._left + self._share)

    def take(self, now: float) -> bool:
        """Whether a retry may be made; takes it when it may."""
        self._left = min(self._most, self._left + self._floor * max(0.0, now - self._at))
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
