"""Chooses the endpoint of a request: filter, then pick; pure.

A session stays where its KV cache is. A new one goes where the fewest of our own requests are, since our own count is
the truth between two scrapes; ties go to fewer sessions, then to the lower scraped load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pool.types import LifeState


@dataclass(frozen=True, slots=True)
class Candidate:
    """An endpoint of the asked tier as the choice sees it. ``cooling`` is in seconds, 0 when it may be asked."""

    name: str
    state: LifeState
    in_flight: int = 0
    room: int = 1
    sessions: int = 0
    load: int | None = None
    cooling: float = 0.0
    native_tools: bool | None = None


def alive(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Those not known to be dead. A suspect is alive: it may only be busy."""
    return tuple(c for c in candidates if c.state in ("up", "suspect"))


def fit(candidates: Iterable[Candidate], *, tried: Collection[str], tools: bool) -> tuple[Candidate, ...]:
    """The living ones that this request may go to: not yet tried by it, and able to call tools if it needs that."""
    return tuple(c for c in alive(candidates) if c.name not in tried and (c.native_tools or not tools))


def pick(candidates: Iterable[Candidate], pinned: str | None) -> Candidate | None:
    """The one to ask now among those fit, or None when every one is full or cooling."""
    free = [c for c in candidates if c.room > 0 and c.cooling <= 0]
    for candidate in free:
        if candidate.name == pinned:
            return candidate
    return min(free, key=_cost, default=None)


def keeps_pin(candidates: Iterable[Candidate], pinned: str | None) -> bool:
    """Whether a session keeps its place although this request goes elsewhere: its endpoint is merely full."""
    return any(c.name == pinned and c.room <= 0 and c.cooling <= 0 for c in candidates)


def _cost(candidate: Candidate) -> tuple[bool, int, int, int, str]:
    load = candidate.load or 0
    return (candidate.state != "up", candidate.in_flight, candidate.sessions, load, candidate.name)
