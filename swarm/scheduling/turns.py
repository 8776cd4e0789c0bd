"""Whose turn it is among lanes of tasks, so that a thousand tasks of one do not starve the others. Pure.

A lane holds tasks of one user, repository, tier and demand on a host, in the order of their rank. Lanes take turns:
each start costs its user, its repository and the pair of both one turn, and the lane with the fewest turns goes next,
where ten points of its first task's priority are worth a turn. Without the pair, a lane would wait for ever whose user
is busy elsewhere and whose repository is busy with others. Who was away comes back at the others' count, with no turns
saved up (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996), so everyone is served however busy others are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from swarm.scheduling.facts import Candidate

POINTS = 10.0  # of priority that are worth one turn


@dataclass(frozen=True)
class Turns:
    """Turns taken so far by scope ("user:NAME", "repository:NAME", "pair:..."), and how many count for one who is new,
    by the first word of the scope."""

    taken: Mapping[str, float]
    floors: Mapping[str, float] = field(default_factory=dict)

    def of(self, scope: str) -> float:
        """Turns that count for a scope."""
        return max(self.taken.get(scope, 0.0), self.floors.get(_kind(scope), 0.0))


def next_of(heads: Sequence[Candidate], turns: Turns) -> Candidate | None:
    """Which of the lanes' first tasks starts next; None when there is none."""
    return min(heads, key=lambda head: _key(head, turns), default=None)


def after(heads: Sequence[Candidate], chosen: Candidate, turns: Turns) -> Turns:
    """The turns once ``chosen`` has started."""
    floors: dict[str, float] = {}
    for scope in {scope for head in heads for scope in scopes(head)}:
        floors[_kind(scope)] = min(floors.get(_kind(scope), turns.of(scope)), turns.of(scope))
    return Turns(taken={scope: turns.of(scope) + 1.0 for scope in scopes(chosen)}, floors=floors)


def scopes(head: Candidate) -> tuple[str, str, str]:
    """Whose turns a start counts for."""
    return f"user:{head.user}", f"repository:{head.repository}", f"pair:{head.user}\n{head.repository}"


def _kind(scope: str) -> str:
    return scope.partition(":")[0]


def _key(head: Candidate, turns: Turns) -> tuple[float, float, str]:
    count = sum(turns.of(scope) for scope in scopes(head))
    return count - head.priority / POINTS, head.rank, head.task
