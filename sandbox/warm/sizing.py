"""How many sandboxes to hold ready: pure, from how often they are asked for and how long starting one takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sandbox.types import MIB

IDLE_COST = 32 * MIB  # of memory that one ready sandbox takes: its supervisor, and the engine's process for it
_FORGET = 60.0  # seconds in which an arrival comes to count for a third
_SPREAD = 2.0  # standard deviations of chance arrivals that are covered
_LEARN = 0.3  # of a new start's time that goes into the average
_PER_PROCESSOR = 4


@dataclass(frozen=True)
class Bounds:
    """What may be held ready. ``memory`` in bytes, ``idle`` in seconds since a spec was last asked for."""

    count: int
    memory: int
    processors: int
    idle: float

    @property
    def total(self) -> int:
        """How many there may be, of all specs together."""
        return max(0, min(self.count, self.memory // IDLE_COST, self.processors * _PER_PROCESSOR))


@dataclass(frozen=True)
class Demand:
    """How often sandboxes of one spec are asked for, and how many seconds one takes to start."""

    level: float = 0.0
    last: float = -math.inf
    start: float = 0.5

    def asked(self, now: float) -> Demand:
        """One more was asked for."""
        return replace(self, level=self._left(now) + 1.0, last=max(now, self.last))

    def started(self, seconds: float) -> Demand:
        """Starting one took this long."""
        return replace(self, start=self.start + _LEARN * (max(0.0, seconds) - self.start))

    def rate(self, now: float) -> float:
        """How many a second are asked for lately."""
        return self._left(now) / _FORGET

    def _left(self, now: float) -> float:
        return self.level * math.exp(-max(0.0, now - self.last) / _FORGET) if self.level else 0.0


def wanted(demand: Demand, now: float, idle: float) -> int:
    """How many to hold for one spec: those asked for while one starts, and some for chance. None once it is idle."""
    if not demand.level or now - demand.last > idle:
        return 0
    mean = demand.rate(now) * demand.start
    return max(1, math.ceil(mean + _SPREAD * math.sqrt(mean)))


def share(demands: Mapping[str, Demand], now: float, bounds: Bounds) -> dict[str, int]:
    """How many to hold of each spec within the bounds: one of each first, those asked for last first, then in turns."""
    wants = {key: wanted(demand, now, bounds.idle) for key, demand in demands.items()}
    order = sorted(wants, key=lambda key: (-demands[key].last, key))
    given, left = dict.fromkeys(wants, 0), bounds.total
    while left and any(given[key] < wants[key] for key in order):
        for key in order:
            if left and given[key] < wants[key]:
                given[key] += 1
                left -= 1
    return given


def starters(processors: int) -> int:
    """How many may start at once: one on small machines, where a start takes a processor from what runs."""
    return max(1, min(4, processors // 4))


def back_off(failures: int) -> float:
    """Seconds to wait after that many failed starts in a row."""
    return min(60.0, 2.0 ** min(failures - 1, 10)) if failures > 0 else 0.0
