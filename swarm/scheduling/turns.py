"""Whose turn it is among lanes of tasks, so that a thousand tasks of one do not starve the others. Pure.

A lane holds tasks of one user, repository, tier and demand on a host, in the order of their rank. Lanes take turns:
each start costs its user and its repository one turn, and the lane with the fewest turns goes next, where ten points of
its first task's priority are worth a turn. Who was away comes back at the others' count, with no turns saved up
(start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996), so everyone is served however busy the others are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarm.scheduling.facts import Candidate

POINTS = 10.0  # of priority that are worth one turn


@dataclass(frozen=True)
class Turns:
    """Turns taken so far by scope ("user:NAME", "repository:NAME"), and how many count for one who is new."""

    taken: Mapping[str, float]
    floor: float = 0.0

    def of(self, scope: str) -> float:
        """Turns that count for a scope."""
        return max(self.taken.get(scope, 0.0), self.floor)


def next_of(heads: Sequence[Candidate], turns: Turns) -> Candidate | None:
    """Which of the lanes' first tasks starts next; None when there is none."""
    return min(heads, key=lambda head: _key(head, turns), default=None)


def after(heads: Sequence[Candidate], chosen: Candidate, turns: Turns) -> Turns:
    """The turns once ``chosen`` has started."""
    scopes = {scope for head in heads for scope in _scopes(head)}
    floor = max(turns.floor, min((turns.of(scope) for scope in scopes), default=turns.floor))
    taken = {scope: turns.of(scope) + 1.0 for scope in _scopes(chosen)}
    return Turns(taken=taken, floor=floor)


def _scopes(head: Candidate) -> tuple[str, str]:
    return f"user:{head.user}", f"repository:{head.repository}"


def _key(head: Candidate, turns: Turns) -> tuple[float, float, str]:
    count = sum(turns.of(scope) for scope in _scopes(head))
    return count - head.priority / POINTS, head.rank, head.task
