"""How long each tool usually takes, from its last few runs; pure.

Tool times have a heavy tail (TraceLab: half under 0.3 s, calls over a minute are 4 % and take most of the time), so the
middle of the runs is told, never their mean, and what has run long is expected to go on for long.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict, deque

KEPT = 32  # runs of each tool
FEWEST = 3  # runs that tell something


class Durations:
    """Runs of at most ``cap`` tools; beyond, the one that ran longest ago is forgotten."""

    def __init__(self, cap: int = 1_000) -> None:
        self._cap = cap
        self._runs: OrderedDict[str, tuple[deque[float], list[float]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def learn(self, tool: str, seconds: float) -> None:
        """One run is over."""
        recent, ordered = self._runs.setdefault(tool, (deque(), []))
        self._runs.move_to_end(tool)
        recent.append(seconds)
        insort(ordered, seconds)
        if len(recent) > KEPT:
            ordered.remove(recent.popleft())
        while len(self._runs) > self._cap:
            self._runs.popitem(last=False)

    def left(self, tool: str, elapsed: float = 0.0) -> float | None:
        """Seconds that a run which has lasted ``elapsed`` goes on: the middle of those that lasted longer.

        As long again where none did; None for a tool of which too little is known.
        """
        runs = self._runs.get(tool)
        if runs is None or len(runs[1]) < FEWEST:
            return None
        ordered = runs[1]
        longer = bisect_right(ordered, elapsed) if elapsed > 0 else 0
        if longer == len(ordered):
            return elapsed
        return ordered[(longer + len(ordered)) // 2] - elapsed
