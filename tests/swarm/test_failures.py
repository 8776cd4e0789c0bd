"""Whose doing each bad end is: every ending, every error of a room, and that only two kinds are tried again."""

from __future__ import annotations

import pytest

from pool import errors as of_pool
from sandbox import errors as of_sandbox
from swarm import errors, lifecycle
from swarm.failures import BY_STATE, failure_of
from swarm.faults import broken, fault_of
from swarm.types import (
    Attempt,
    AttemptResult,
    Budget,
    Conclusion,
    Ending,
    Failure,
    FailureKind,
    Fault,
    Spent,
    TaskState,
)

S = TaskState
GOOD = {S.DELIVERED, S.NO_CHANGE}

ERRORS: list[tuple[Exception, FailureKind, bool]] = [
    (of_pool.OverloadError("full"), "model", True),
    (of_pool.TransientError("reset"), "model", True),
    (of_pool.NoEndpointError("none up"), "model", True),
    (of_pool.PermanentError("a request that is wrong"), "model", False),
    (of_pool.ContextOverflowError("long"), "model", False),
    (of_pool.PoolConfigError("no such tier"), "model", False),
    (of_sandbox.SandboxError("it broke"), "infrastructure", True),
    (of_sandbox.WorkspaceError("too large"), "infrastructure", False),
    (of_sandbox.SandboxUnavailableError("no backend"), "infrastructure", False),
    (of_sandbox.ImageError("no image"), "infrastructure", False),
    (of_sandbox.SetUpError("pip failed"), "infrastructure", False),
    (errors.BrokerUnreachableError("away"), "infrastructure", True),
    (errors.BrokerError("turned down"), "policy", False),
    (errors.BrokerShutError("stopped by a person"), "person", False),
    (errors.StoreError("disk full"), "infrastructure", False),
    (errors.ConfigError("no such agent"), "infrastructure", False),
    (KeyError("x"), "infrastructure", False),
]


def concluded(ending: Ending, limit: str = "", fault: Fault | None = None) -> AttemptResult:
    return AttemptResult(conclusion=Conclusion(ending=ending, limit=limit), fault=fault)


def test_every_state_has_its_place_and_every_bad_end_is_somebodys() -> None:
    assert set(BY_STATE) == set(TaskState)
    assert {state for state in TaskState if state.final and BY_STATE[state] is None} == GOOD
    assert all(BY_STATE[state] is None for state in TaskState if not state.final)


@pytest.mark.parametrize(("error", "whose", "again"), ERRORS, ids=lambda value: type(value).__name__)
def test_of_each_error_it_is_known_whose_doing_it_is_and_whether_it_is_tried_again(
    error: Exception, whose: FailureKind, again: bool
) -> None:
    """A permanent error of a request is never sent again, and no retry multiplies another (elizaOS#14104)."""
    result = broken(fault_of(error))
    attempt = Attempt(id="a", task="t", number=1, tier="small", strategy="agent", started=0.0)
    decision = lifecycle.decide(attempt, result, Budget(), Spent(attempts=1), ("small", "large"))
    assert (decision.kind == "retry") == again
    to = decision.state or S.QUEUED
    assert failure_of(to, result) == whose
    spent = lifecycle.decide(attempt, result, Budget(attempts=2), Spent(attempts=2), ("small", "large"))
    assert spent.kind == "end"


@pytest.mark.parametrize(
    ("to", "result", "whose"),
    [
        (S.GAVE_UP, concluded("gave_up"), "agent"),
        (S.CHECKS_FAILED, concluded("finished"), "agent"),
        (S.QUEUED, concluded("gave_up"), "agent"),
        (S.LIMIT_HIT, concluded("limit_hit", "task.tokens"), "agent"),
        (S.LIMIT_HIT, concluded("limit_hit", "lineage.money"), "agent"),
        (S.LIMIT_HIT, concluded("limit_hit"), "agent"),
        (S.LIMIT_HIT, concluded("limit_hit", "repository:web.money"), "policy"),
        (S.LIMIT_HIT, concluded("limit_hit", "fleet.tokens"), "policy"),
        (S.NEEDS_PERSON, concluded("finished"), "person"),
        (S.CANCELLED, concluded("cancelled"), "person"),
        (S.NO_CHANGE, concluded("no_change"), None),
    ],
)
def test_of_an_end_without_a_fault(to: TaskState, result: AttemptResult, whose: FailureKind | None) -> None:
    assert failure_of(to, result) == whose


def test_of_what_came_of_a_delivery() -> None:
    done = concluded("finished")
    away = fault_of(errors.BrokerUnreachableError("away"))
    assert failure_of(S.DELIVERED, done, {"kind": "receipt"}) is None
    assert failure_of(S.REFUSED, done, {"kind": "refusal"}) == "policy"
    assert failure_of(S.NEEDS_PERSON, done, {"kind": "waiting"}) == "policy"
    assert failure_of(S.NEEDS_PERSON, done, None, away) == "infrastructure"


def test_a_fault_that_was_stored_before_faults_had_an_owner_still_reads() -> None:
    old = Fault.model_validate_json('{"kind": "passing", "failure": {"what": "a", "why": "b"}}')
    assert old == Fault(kind="passing", failure=Failure(what="a", why="b"), whose="infrastructure")
