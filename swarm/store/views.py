"""Rows into values: a task as a person sees it, put together from facts and never stored."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from swarm.budgets.sums import granted, total
from swarm.store import clocks
from swarm.store.schema import attempts, tasks
from swarm.types import Attempt, AttemptResult, Budget, Spent, Task, TaskRequest, TaskState, TaskView


def task_of(row: sa.Row[Any]) -> Task:
    """A task with the budget that it has by now: what it came with, and as much again for each retry by a person."""
    budget = granted(Budget.model_validate_json(row.budget), row.grants)
    return Task(id=row.id, request=TaskRequest.model_validate_json(row.request), budget=budget, created=row.created)


def attempt_of(row: sa.Row[Any]) -> Attempt:
    """One attempt."""
    return Attempt(
        id=row.id,
        task=row.task,
        number=row.number,
        tier=row.tier,
        strategy=row.strategy,
        started=row.started,
        ended=row.ended,
        ending=row.ending,
        detail=row.detail,
        spent=spent_of(row),
        salvage=row.salvage,
        failure=row.failure,
        way=_way_of(row),
    )


def _way_of(row: sa.Row[Any]) -> str:
    """The way that `auto`, or one of several in turn, came to in the end, and why it was chosen."""
    result = result_of(row)
    if result is None or not result.conclusion.strategy:
        return ""
    ended = result.conclusion
    return f"{ended.strategy} ({ended.why})" if ended.why else ended.strategy


def result_of(row: sa.Row[Any]) -> AttemptResult | None:
    """What an attempt came to; None while it runs."""
    return AttemptResult.model_validate_json(row.result) if row.result else None


def verdict_of(row: sa.Row[Any]) -> dict[str, Any] | None:
    """The broker's word on an attempt, in its own keys; ``kind`` is "receipt", "refusal" or "waiting"."""
    return json.loads(row.verdict) if row.verdict else None


def spent_of(row: sa.Row[Any]) -> Spent:
    """What an attempt has spent."""
    return Spent(attempts=1, **{name: getattr(row, name) for name in Spent.model_fields if name != "attempts"})


def assemble(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> tuple[TaskView, ...]:
    """The views of task rows, in their order, with three queries however many there are."""
    ids = tuple(row.id for row in rows)
    query = sa.select(attempts).where(attempts.c.task.in_(ids)).order_by(attempts.c.number)
    tried: dict[str, list[sa.Row[Any]]] = defaultdict(list)
    for row in connection.execute(query):
        tried[row.task].append(row)
    seconds = clocks.seconds_of(connection, ids)
    return tuple(_view(row, tried[row.id], seconds.get(row.id, {})) for row in rows)


def one(connection: sa.Connection, task: str) -> TaskView:
    """One task's view; the row must be there."""
    return assemble(connection, [connection.execute(sa.select(tasks).where(tasks.c.id == task)).one()])[0]


def _view(row: sa.Row[Any], tried: Sequence[sa.Row[Any]], seconds: dict[str, float]) -> TaskView:
    seen = tuple(attempt_of(each) for each in tried)
    results = [result for each in tried if (result := result_of(each)) is not None]
    receipts = [word for each in tried if (word := verdict_of(each)) and word["kind"] == "receipt"]
    receipt = receipts[-1] if receipts else {}
    return TaskView(
        task=_shown(task_of(row)),
        state=TaskState(row.state),
        reason=row.reason,
        spent=total(attempt.spent for attempt in seen),
        attempts=seen,
        report=results[-1].report if results else None,
        pull_request=receipt.get("url") or receipt.get("pull_request"),
        branch=receipt.get("branch"),
        commit=receipt.get("commit"),
        timings=seconds,
        updated=row.updated,
        failure=row.failure,
        user=row.user,
        host=row.host,
    )


def _shown(task: Task) -> Task:
    """A task without its capability: nobody who looks at a task needs the right to deliver it."""
    return task.model_copy(update={"request": task.request.model_copy(update={"capability": ""})})
