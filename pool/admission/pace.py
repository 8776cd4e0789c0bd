"""How fast places come free while somebody waits for one; pure."""

from __future__ import annotations

from collections import deque

KEPT = 32
FEWEST = 8  # releases that tell something


class Pace:
    """Releases of one tier while it was full. Idle time says nothing of its speed, so it is not counted."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=KEPT)

    def released(self, now: float) -> None:
        """A place came free while somebody waited."""
        self._times.append(now)

    def idle(self) -> None:
        """Nobody waits."""
        self._times.clear()

    def wait(self, ahead: int) -> float | None:
        """Seconds until a request with so many before it gets a place; None while too little was seen."""
        if len(self._times) < FEWEST:
            return None
        return (self._times[-1] - self._times[0]) / (len(self._times) - 1) * (ahead + 1)
