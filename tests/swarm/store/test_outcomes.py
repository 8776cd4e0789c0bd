"""What `auto` learns from: each repository's own attempts, solved by the checks' word; bad luck is no outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swarm.config_database import Address
from swarm.scheduling.facts import HostFacts
from swarm.store.outcomes import solved_by
from swarm.store.rows import Plan, Settlement
from swarm.store.store import Store
from swarm.types import (
    AttemptResult,
    Budget,
    CheckReport,
    Conclusion,
    Failure,
    Fault,
    Spent,
    TaskRequest,
    TaskState,
)

PLAN = Plan(budget=Budget(), tier="small", strategy="auto")
GOOD = CheckReport(base=None, proposal=None, verdict="passed")
BAD = CheckReport(base=None, proposal=None, verdict="failed")


@pytest.fixture
async def store(where: Path | Address) -> AsyncIterator[Store]:
    async with Store(where) as opened:
        yield opened


async def ended(store: Store, task: str, repository: str, result: AttemptResult, tokens: int = 7) -> None:
    """One attempt to its end."""
    await store.add(TaskRequest(repository=repository, instructions="fix it", task=task), PLAN)
    claim = await store.queue.claim(HostFacts("one", slots=10))
    assert claim is not None
    store.budgets.spend(claim.attempt.id, Spent(tokens=tokens))
    assert await store.settle(claim, Settlement(TaskState.GAVE_UP, "so", result))


def finished(report: CheckReport | None, **more: object) -> AttemptResult:
    return AttemptResult(conclusion=Conclusion(ending="finished", **more), report=report)


async def test_each_way_of_a_repository_is_told_the_newest_first(store: Store) -> None:
    await ended(store, "t1", "web", finished(GOOD, strategy="agent"), tokens=100)
    await ended(store, "t2", "web", finished(BAD, strategy="review"), tokens=300)
    found = await store.outcomes.of("web")
    assert [(one.strategy, one.tier, one.solved, one.tokens) for one in found] == [
        ("review", "small", False, 300),
        ("agent", "small", True, 100),
    ]
    assert found[0].at >= found[1].at


async def test_another_repository_is_not_affected(store: Store) -> None:
    await ended(store, "t1", "web", finished(GOOD, strategy="agent"))
    assert await store.outcomes.of("api") == ()


async def test_of_ways_in_turn_those_that_gave_up_did_not_solve_it(store: Store) -> None:
    tried = {"mutation_repair": 0, "agent": 90}
    await ended(store, "t1", "web", finished(GOOD, strategy="agent", tried=tried), tokens=90)
    found = await store.outcomes.of("web")
    assert {(one.strategy, one.solved, one.tokens) for one in found} == {
        ("mutation_repair", False, 0),
        ("agent", True, 90),
    }


async def test_an_attempt_that_runs_is_no_outcome(store: Store) -> None:
    await store.add(TaskRequest(repository="web", instructions="fix it", task="t1"), PLAN)
    assert await store.queue.claim(HostFacts("one", slots=10)) is not None
    assert await store.outcomes.of("web") == ()


FAULT = Fault(kind="passing", failure=Failure(what="the sandbox", why="is gone"))


@pytest.mark.parametrize(
    ("result", "solved"),
    [
        (finished(GOOD), True),
        (finished(BAD), False),
        (finished(None), None),
        (finished(CheckReport(base=None, proposal=None, verdict="not_run")), None),
        (AttemptResult(conclusion=Conclusion(ending="gave_up")), False),
        (AttemptResult(conclusion=Conclusion(ending="limit_hit", limit="task.tokens")), False),
        (AttemptResult(conclusion=Conclusion(ending="limit_hit", limit="fleet.money")), None),
        (AttemptResult(conclusion=Conclusion(ending="cancelled")), None),
        (AttemptResult(conclusion=Conclusion(ending="asked")), None),
        (AttemptResult(conclusion=Conclusion(ending="no_change")), None),
        (AttemptResult(conclusion=Conclusion(ending="infra_failed"), fault=FAULT), None),
        (AttemptResult(conclusion=Conclusion(ending="finished"), report=GOOD, fault=FAULT), None),
    ],
)
def test_what_counts_as_solved(result: AttemptResult, solved: bool | None) -> None:
    assert solved_by(result) is solved
