"""When a queued task is done, from how long finished ones took: a range, or nothing where too little is known. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 3  # finished tasks below which nothing is said
LIKELY = (0.25, 0.9)  # of the finished ones, those from here to there


@dataclass(frozen=True)
class Range:
    """Seconds from now, at best and at worst of what is likely."""

    low: float
    high: float


def eta(place: int, running: Sequence[float], slots: int, durations: Sequence[float]) -> Range | None:
    """When the task at ``place`` (1 is next) is done. None when it cannot be told.

    ``running`` are how many seconds each running task has taken so far, ``durations`` what finished ones like it took,
    ``slots`` how many may run at a time.
    """
    if len(durations) < FEWEST or slots < 1 or place < 1:
        return None
    low, high = (_quantile(durations, share) for share in LIKELY)
    return Range(_done(place, running, slots, low), _done(place, running, slots, high))


def _done(place: int, running: Sequence[float], slots: int, each: float) -> float:
    """If every task took ``each``: the free slots are filled in order, each start waits for the soonest end."""
    busy = sorted(max(0.0, each - taken) for taken in sorted(running, reverse=True)[:slots])
    ends = sorted([0.0] * (slots - len(busy)) + busy)
    rounds, last = divmod(place - 1, slots)
    return ends[last] + rounds * each + each


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
