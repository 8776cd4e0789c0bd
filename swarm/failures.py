"""Whose doing a bad end is: one table over all endings, for attempts and tasks alike. Pure.

infrastructure  our machinery, a host, the disk, the broker out of reach, an image or a set-up
model           no model server could answer
agent           what the agent did, or did not get done within its own budget
policy          a rule of the broker's, or a budget of the operator's
person          someone stopped it, or only someone can decide what follows

Passing faults of the first two are retried on the one count of attempts that a task has; what an agent did is never
merely repeated, and neither is a request that a server calls wrong (`faults.fault_of` tells which these are).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from swarm.types import AttemptResult, FailureKind, Fault, TaskState

S = TaskState

BY_STATE: Mapping[TaskState, FailureKind | None] = MappingProxyType(
    {
        S.QUEUED: None,
        S.RUNNING: None,
        S.DELIVERING: None,
        S.PAUSED: None,
        S.DELIVERED: None,
        S.NO_CHANGE: None,
        S.LIMIT_HIT: "agent",
        S.GAVE_UP: "agent",
        S.CHECKS_FAILED: "agent",
        S.INFRA_FAILED: "infrastructure",
        S.REFUSED: "policy",
        S.NEEDS_PERSON: "person",
        S.CANCELLED: "person",
        S.EXPIRED: "infrastructure",
    }
)
"""Where nothing more is known than the state: of a queue that nobody served, the machinery is too small."""


def failure_of(
    to: TaskState, result: AttemptResult, verdict: Mapping[str, Any] | None = None, fault: Fault | None = None
) -> FailureKind | None:
    """Whose doing the end of an attempt was; None for a good one.

    ``to`` is where its task goes, ``verdict`` the broker's word, ``fault`` why it could not be delivered.
    """
    broke = fault or (result.fault if to in {S.QUEUED, S.INFRA_FAILED, S.NEEDS_PERSON} else None)
    if broke is not None:
        return broke.whose
    match to:
        case S.QUEUED:  # the next tier tries what this one could not
            return "agent"
        case S.LIMIT_HIT if not _own(result.conclusion.limit):
            return "policy"
        case S.NEEDS_PERSON if verdict is not None:
            return "policy"
        case _:
            return BY_STATE[to]


def _own(limit: str) -> bool:
    """Whether a limit is the task's, or its lineage's, and no day's of the operator."""
    return not limit or limit.startswith(("task.", "lineage."))
