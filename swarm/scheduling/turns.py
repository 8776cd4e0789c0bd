"""Whose turn it is among lanes of tasks, so that a thousand tasks of one do not starve the others. Pure.

A lane holds tasks of one user, repository, tier and demand on a host, in the order of their rank. Users take turns, and
among the lanes of one user his repositories do: each start costs the user a turn, and the repository one among his.
The fewest turns go next, where ten points of a first task's priority are worth a turn. Who was away comes back at the
others' count, with no turns saved up (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996).

It is two levels and no sum over user and repository, since sums starve: where half of all starts are one user's in many
repositories and half are one repository's for many users, that user's task in that repository would never be least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from swarm.scheduling.facts import Candidate

POINTS = 10.0  # of priority that are worth one turn


@dataclass(frozen=True)
class Turns:
    """Turns taken so far by scope ("user:NAME", and "pair:USER\nREPOSITORY" among those of that user), and how many
    count for one who is new, by kind of scope ("user", and "pair:USER")."""

    taken: Mapping[str, float]
    floors: Mapping[str, float] = field(default_factory=dict)

    def of(self, scope: str) -> float:
        """Turns that count for a scope."""
        return max(self.taken.get(scope, 0.0), self.floors.get(kind_of(scope), 0.0))


def next_of(heads: Sequence[Candidate], turns: Turns) -> Candidate | None:
    """Which of the lanes' first tasks starts next; None when there is none."""
    first = min(heads, key=lambda head: _key(head, turns, scopes(head)[0]), default=None)
    if first is None:
        return None
    own = [head for head in heads if head.user == first.user]
    return min(own, key=lambda head: _key(head, turns, scopes(head)[1]))


def after(heads: Sequence[Candidate], chosen: Candidate, turns: Turns) -> Turns:
    """The turns once ``chosen`` has started."""
    floors: dict[str, float] = {}
    for scope in {scope for head in heads for scope in scopes(head)}:
        kind = kind_of(scope)
        floors[kind] = min(floors.get(kind, turns.of(scope)), turns.of(scope))
    return Turns(taken={scope: turns.of(scope) + 1.0 for scope in scopes(chosen)}, floors=floors)


def scopes(head: Candidate) -> tuple[str, str]:
    """Whose turns a start counts for: the user's, and among his those of the repository."""
    return f"user:{head.user}", f"pair:{head.user}\n{head.repository}"


def kind_of(scope: str) -> str:
    """Among whom a scope takes turns."""
    kind, _, name = scope.partition(":")
    return kind if kind == "user" else f"{kind}:{name.partition(chr(10))[0]}"


def _key(head: Candidate, turns: Turns, scope: str) -> tuple[float, float, str]:
    return turns.of(scope) - head.priority / POINTS, head.rank, head.task
