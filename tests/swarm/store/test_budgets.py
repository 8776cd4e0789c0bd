"""What was spent, by whom and when: exact, whatever is written twice, late, or by two hosts at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swarm.budgets.scopes import DayBudget, DayBudgets, Standing
from swarm.config_database import Address
from swarm.scheduling.facts import HostFacts
from swarm.store.hosts import Member
from swarm.store.rows import Claim, Plan, Settlement
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, Conclusion, Spent, TaskRequest, TaskState

NOON = 1_764_504_000.0  # 2025-11-30 12:00 UTC
DAY = 86_400.0
LIMITS = DayBudgets(
    fleet=DayBudget(tokens=1000), repositories={"web": DayBudget(tokens=100)}, user=DayBudget(money=2.0)
)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(where: Path | Address, clock: Clock) -> AsyncIterator[Store]:
    async with Store(where, clock=clock) as opened:
        opened.budgets.limits = LIMITS
        yield opened


async def add(store: Store, task: str, repository: str = "web", user: str = "ann", follows: str | None = None) -> None:
    request = TaskRequest(repository=repository, instructions="fix it", task=task, follows=follows)
    await store.add(request, Plan(Budget(steps=10, tokens=500), tier="small", strategy="auto", user=user))


async def claim(store: Store, host: str = "one") -> Claim | None:
    return await store.queue.claim(HostFacts(host, slots=100))


async def began(store: Store, task: str, **more: str) -> str:
    await add(store, task, **more)
    found = await claim(store)
    assert found is not None
    assert found.task.id == task
    return found.attempt.id


async def spent(store: Store) -> dict[str, Spent]:
    return {one.scope: one.spent for one in (await store.budgets.view()).scopes}


async def test_what_an_attempt_spends_counts_in_each_scope_once(store: Store) -> None:
    attempt = await began(store, "t1")
    for _ in range(3):  # a sum that is written again is no new spending
        store.budgets.spend(attempt, Spent(steps=2, tokens=30, gpu_seconds=4.0, money=0.5, wall=9.0))
    found = await spent(store)
    assert set(found) == {"fleet", "repository:web", "user:ann"}
    assert set(found.values()) == {Spent(steps=2, tokens=30, gpu_seconds=4.0, money=0.5)}
    view = await store.view("t1")
    assert view.spent == Spent(steps=2, tokens=30, gpu_seconds=4.0, money=0.5, wall=9.0, attempts=1)


async def test_a_sum_that_comes_late_takes_nothing_back(store: Store) -> None:
    attempt = await began(store, "t1")
    store.budgets.spend(attempt, Spent(tokens=30))
    store.budgets.spend(attempt, Spent(tokens=20))
    store.budgets.spend(attempt, Spent(tokens=35))
    assert (await spent(store))["fleet"].tokens == 35
    assert (await store.view("t1")).spent.tokens == 35


async def test_two_hosts_at_once_are_both_counted(where: Path | Address, clock: Clock) -> None:
    async with Store(where, clock=clock) as one, Store(where, clock=clock) as two:
        attempts = [await began(one, "t1"), await began(one, "t2")]
        for tokens in range(1, 40):
            one.budgets.spend(attempts[0], Spent(tokens=tokens))
            two.budgets.spend(attempts[1], Spent(tokens=2 * tokens))
        await asyncio.gather(one.counts(), two.counts())
        assert (await spent(one))["repository:web"].tokens == 39 * 3


async def test_a_spent_day_holds_back_its_repository_until_midnight_and_says_so(store: Store, clock: Clock) -> None:
    await store.hosts.register(Member(HostFacts("one", slots=100), home="h", life="l"))
    store.budgets.spend(await began(store, "t1"), Spent(tokens=100))
    await add(store, "t2")
    await add(store, "t3", repository="api", user="bob")
    found = await claim(store)
    assert found is not None
    assert found.task.id == "t3"
    assert await claim(store) is None
    waits = (await store.view("t2")).waits_for
    assert "the day's budget of repository web is spent (100 of 100 tokens)" in waits
    assert "00:00 UTC" in waits
    clock.now += DAY / 2
    found = await claim(store)
    assert found is not None
    assert found.task.id == "t2"


async def test_a_larger_budget_lets_it_go_on_at_once(store: Store) -> None:
    store.budgets.spend(await began(store, "t1"), Spent(tokens=100))
    await add(store, "t2")
    assert await claim(store) is None
    store.budgets.limits = DayBudgets()
    assert await claim(store) is not None


@pytest.mark.parametrize(("more", "who"), [({"money": 2.0}, "user ann"), ({"tokens": 1000}, "all tasks")])
async def test_a_user_and_all_together_have_budgets_as_well(store: Store, more: dict[str, float], who: str) -> None:
    store.budgets.spend(await began(store, "t1", repository="api"), Spent.model_validate(more))
    await add(store, "t2", repository="other")
    assert await claim(store) is None
    view = await store.budgets.view()
    assert next(one.shut for one in view.scopes if one.shut).startswith(f"the day's budget of {who} is spent")


async def test_whoever_spends_hears_how_the_budgets_around_it_stand(store: Store) -> None:
    heard: list[tuple[Standing, ...]] = []
    attempt = await began(store, "t1")
    store.budgets.spend(attempt, Spent(tokens=40, money=0.5), heard.append)
    now = await store.budgets.standings(attempt)
    assert heard == [now]
    assert {one.scope: dict(one.limits) for one in now} == {
        "repository:web": {"tokens": 100.0},
        "user:ann": {"money": 2.0},
        "fleet": {"tokens": 1000.0},
    }
    assert {one.spent.tokens for one in now} == {40}


async def test_all_that_comes_of_a_task_spends_from_its_budget(store: Store) -> None:
    """Follow-ups count together with the first task; a retry by a person grants its budget once more."""
    store.budgets.limits = DayBudgets()
    await add(store, "t1")
    first = await claim(store)
    assert first is not None
    assert await store.budgets.standings(first.attempt.id) == ()
    store.budgets.spend(first.attempt.id, Spent(steps=4, tokens=40))
    end = Settlement(TaskState.DELIVERED, "done", AttemptResult(conclusion=Conclusion(ending="finished")))
    assert await store.deliver(first, "it passes")
    assert await store.settle(first, end)
    await add(store, "t2", follows="t1")
    second = await claim(store)
    assert second is not None
    store.budgets.spend(second.attempt.id, Spent(steps=7, tokens=1))
    (lineage,) = await store.budgets.standings(second.attempt.id)
    assert (lineage.scope, lineage.limits["steps"], lineage.spent.steps) == ("lineage", 10.0, 11)
    end = Settlement(TaskState.LIMIT_HIT, "spent", AttemptResult(conclusion=Conclusion(ending="limit_hit")))
    assert await store.settle(second, end)
    await store.verbs.retry("t2")
    (lineage,) = await store.budgets.standings(second.attempt.id)
    assert (lineage.limits["steps"], lineage.limits["tokens"], lineage.spent.steps) == (20.0, 1000.0, 11)
    assert "money" not in lineage.limits


async def test_a_day_without_spending_shows_the_budgets_that_have_a_name(store: Store) -> None:
    view = await store.budgets.view()
    assert view.day == "2025-11-30"
    assert [(one.scope, one.limits) for one in view.scopes] == [
        ("fleet", {"tokens": 1000.0}),
        ("repository:web", {"tokens": 100.0}),
    ]
