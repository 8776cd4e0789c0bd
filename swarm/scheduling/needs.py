"""What becomes of a task that needs others, from how those stand; and which needs can never be met. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarm.types import TaskState

GOOD = frozenset({TaskState.DELIVERED, TaskState.NO_CHANGE})
"""Ends of a needed task after which the others may start."""


@dataclass(frozen=True)
class Need:
    """A needed task as it stands. ``pending`` tells that the broker may yet deliver what ended undecided."""

    task: str
    state: TaskState
    pending: bool = False


@dataclass(frozen=True)
class Standing:
    """``waiting`` needs are not done; ``bad`` says why they never will be by themselves, empty while they may."""

    waiting: int
    bad: str = ""


def standing(needs: Sequence[Need]) -> Standing:
    """How a task stands, from all that it needs."""
    open_ = [need for need in needs if need.state not in GOOD]
    ended = [need for need in open_ if need.state.final and not need.pending]
    bad = "; ".join(f"it needs task {need.task}, which ended as {need.state.value}" for need in ended[:3])
    mend = f"; put that right first: swarm retry {ended[0].task}" if ended else ""
    return Standing(len(open_), bad + mend)


def cycle(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Tasks that need one another in a ring, in the order of their need; empty when there is none."""
    done: set[str] = set()
    for start in needs:
        path: list[str] = []
        on_path: set[str] = set()
        stack = [(start, False)]
        while stack:
            task, leaving = stack.pop()
            if leaving:
                path.pop()
                on_path.discard(task)
                done.add(task)
            elif task in on_path:
                return (*path[path.index(task) :], task)
            elif task not in done:
                path.append(task)
                on_path.add(task)
                stack.append((task, True))
                stack.extend((other, False) for other in needs.get(task, ()))
    return ()
