"""What admission tells of itself: who waits and for what, and what it has done; data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pool.admission.classes import RANKS
from pool.admission.presence import Live
from pool.errors import Stage
from pool.types import RequestClass


@dataclass(frozen=True, slots=True)
class Waiting:
    """One waiting request: for how many seconds, and what it waits for."""

    request: str
    session: str
    program: str
    request_class: RequestClass
    tier: str
    seconds: float
    why: str


@dataclass(slots=True)
class Stats:
    """Counts since the start, by class or by stage; ``waited`` are seconds in all, of those that got a place."""

    placed: dict[RequestClass, int] = field(default_factory=lambda: dict.fromkeys(RANKS, 0))
    waited: dict[RequestClass, float] = field(default_factory=lambda: dict.fromkeys(RANKS, 0.0))
    refused: dict[Stage | Literal["no endpoint"], int] = field(default_factory=dict)
    withdrawn: int = 0
    forced: int = 0
    in_flight: int = 0
    waiting: dict[RequestClass, int] = field(default_factory=dict)
    live: dict[str, Live] = field(default_factory=dict)
