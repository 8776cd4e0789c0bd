"""Every change of a task's state, in one place: the move itself, its line in the journal, and what others wait for.

A task that ends sets those free that need it, in the same transaction. An end that was missed all the same (another
version, a restored database) is found by `queue.Queue.sweep`, which asks again with `recount`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from swarm import lifecycle
from swarm.errors import TaskError
from swarm.failures import BY_STATE
from swarm.scheduling.needs import Need, Standing, standing
from swarm.store import rows, views
from swarm.store.database import Database
from swarm.store.rows import Plan, Row
from swarm.store.schema import attempts, needs, tasks
from swarm.types import AttemptResult, Conclusion, TaskRequest, TaskState

AT_ONCE = 1000  # dependents that one transaction sees to; the sweep does what is left


def move(
    db: Database,
    connection: sa.Connection,
    row: Row,
    to: TaskState,
    reason: str,
    *,
    attempt: str | None = None,
    **extra: Any,
) -> bool:
    """Move a task on, and see to what needs it. False when it was queued and ended at once, by what it needs itself.

    ``row`` is the task as it was read in this transaction; ``extra`` are further columns. A task that is queued gets
    its place anew. An attempt that waits for a worker ends with its task. Raises IllegalMoveError.
    """
    _move(db, connection, row, to, reason, attempt=attempt, **extra)
    stands = to is not TaskState.QUEUED or recount(db, connection, row.id)
    if to.final or not stands:
        release(db, connection, row.id)
    return stands


def conclude(connection: sa.Connection, attempt: Row, now: float, why: str) -> None:
    """End an attempt that no worker ends, as cancelled."""
    result = AttemptResult(conclusion=Conclusion(ending="cancelled", summary=why))
    values = {"ended": now, "ending": "cancelled", "detail": why, "result": result.model_dump_json()}
    connection.execute(attempts.update().where(attempts.c.id == attempt.id).values(values))


def bind(db: Database, connection: sa.Connection, task: str, needed: Sequence[str]) -> None:
    """Write down what a new task needs. Raises TaskError: it needs itself, or a task that is not there."""
    if not needed:
        return
    wanted = tuple(dict.fromkeys(needed))
    if task in wanted:
        raise TaskError(f"task {task} needs itself", "leave it out of what it needs")
    there = set(connection.execute(sa.select(tasks.c.id).where(tasks.c.id.in_(wanted))).scalars())
    if absent := [name for name in wanted if name not in there]:
        mend = "hand in what is needed first, and name it by its whole id: swarm list"
        raise TaskError(f"it needs {', '.join(absent[:5])}, and there is no such task", mend)
    connection.execute(needs.insert(), [{"task": task, "needed": name} for name in wanted])
    recount(db, connection, task)


def release(db: Database, connection: sa.Connection, task: str) -> None:
    """Have every queued task that needs ``task`` look at its needs again, and whatever needs those that end by it."""
    left = [task]
    seen = 0
    while left and seen < AT_ONCE:
        waiting = sa.select(tasks.c.id).join(needs, needs.c.task == tasks.c.id)
        waiting = waiting.where(needs.c.needed == left.pop(), tasks.c.state == TaskState.QUEUED.value)
        for name in connection.execute(waiting.limit(AT_ONCE)).scalars().all():
            seen += 1
            if not recount(db, connection, name):
                left.append(name)


def recount(db: Database, connection: sa.Connection, task: str) -> bool:
    """Look at what a queued task needs, as often as you like. False when it ended because that can never be met."""
    row = connection.execute(sa.select(tasks).where(tasks.c.id == task).with_for_update()).one()
    if row.state != TaskState.QUEUED.value:
        return True
    found = standing_of(connection, task)
    if found.waiting != row.waiting:
        connection.execute(tasks.update().where(tasks.c.id == task).values(waiting=found.waiting))
    if found.bad:
        _move(db, connection, row, TaskState.NEEDS_PERSON, found.bad, failure="person")
    return not found.bad


def standing_of(connection: sa.Connection, task: str) -> Standing:
    """How a task stands, from all that it needs."""
    asked = sa.select(tasks).join(needs, needs.c.needed == tasks.c.id).where(needs.c.task == task)
    return standing([_need(connection, row) for row in connection.execute(asked.order_by(tasks.c.id)).all()])


def enter(
    db: Database,
    connection: sa.Connection,
    request: TaskRequest,
    plan: Plan,
    *,
    root: str | None = None,
    reason: str = "submitted",
) -> str:
    """A new task, queued; its id. Raises TaskError for needs that cannot be."""
    task = request.task or secrets.token_hex(4)
    now = db.now(connection)
    connection.execute(
        tasks.insert().values(
            id=task,
            key=request.idempotency_key,
            request=request.model_dump_json(),
            created=now,
            updated=now,
            budget=plan.budget.model_dump_json(),
            grants=1,
            state=TaskState.QUEUED.value,
            reason="",
            fence=0,
            tier=plan.tier,
            strategy=plan.strategy,
            queued=now,
            not_before=now,
            cancelling=False,
            pausing=False,
            repository=request.repository,
            user=plan.user,
            root=root or rows.root_of(connection, request.follows) or task,
            follows=request.follows,
            batch=request.batch,
            priority=request.priority,
            rank=rows.rank(now, request.priority),
            lane=rows.lane(request, plan.user, plan.tier),
            waiting=len(request.needs),
            mutex=request.mutex,
            expires=now + expires if (expires := request.expires or plan.expires) else None,
        )
    )
    db.note(connection, task, "state", {"from": None, "to": "queued", "reason": reason})
    bind(db, connection, task, request.needs)
    return task


def begin(db: Database, connection: sa.Connection, row: Row, host: str) -> Row:
    """A new attempt at a task, on a host. It goes on from where the last one did, when that did from anywhere."""
    last = rows.last_attempt(connection, row.id)
    continues = (last.continues, last.point) if last and last.continues else None
    return _begin(db, connection, row, host, continues)


def begin_at(db: Database, connection: sa.Connection, task: str, continues: tuple[str, int | None] | None) -> Row:
    """A new attempt at a queued task that waits for its claim.

    ``continues`` is an attempt, and a line of its journal, to go on from; None for one that begins with the base.
    """
    return _begin(db, connection, rows.exactly(connection, task), None, continues)


def _begin(
    db: Database, connection: sa.Connection, row: Row, host: str | None, continues: tuple[str, int | None] | None
) -> Row:
    last = rows.last_attempt(connection, row.id)
    number = last.number + 1 if last else 1
    salvage = last.salvage if last and last.id == row.carry else None
    # The random end keeps an id apart from one of an earlier database whose git objects are still there.
    name = f"{row.id}-{number}-{secrets.token_hex(2)}"
    connection.execute(
        attempts.insert().values(
            id=name,
            task=row.id,
            number=number,
            tier=row.tier,
            strategy=row.strategy,
            carries=row.carry,
            salvage=salvage,
            started=db.clock(),
            detail="",
            steps=0,
            tokens=0,
            wall=0.0,
            host=host,
            continues=continues[0] if continues else None,
            point=continues[1] if continues else None,
        )
    )
    data = {"number": number, "tier": row.tier, "strategy": row.strategy, "carries": row.carry}
    told = {"host": host, "continues": continues[0] if continues else None}
    data |= {key: value for key, value in told.items() if value}
    db.note(connection, row.id, "attempt", data, attempt=name)
    return connection.execute(sa.select(attempts).where(attempts.c.id == name)).one()


def place(connection: sa.Connection, row: Row, values: dict[str, Any]) -> dict[str, Any]:
    """The columns that put a queued task where it belongs, given those that change with it."""
    last = rows.last_attempt(connection, row.id)
    begun = last.host if last is not None and last.ended is None and last.salvage else None
    now = {**row._mapping, **values}  # noqa: SLF001 - SQLAlchemy's public name for it
    return {
        "rank": rows.rank(now["queued"], now["priority"]),
        "lane": rows.lane(TaskRequest.model_validate_json(row.request), row.user, now["tier"], begun or ""),
    }


def _move(
    db: Database,
    connection: sa.Connection,
    row: Row,
    to: TaskState,
    reason: str,
    *,
    attempt: str | None = None,
    **extra: Any,
) -> None:
    lifecycle.why_legal(TaskState(row.state), to)
    if to.final and TaskState(row.state) in {TaskState.QUEUED, TaskState.PAUSED}:
        last = rows.last_attempt(connection, row.id)
        if last is not None and last.ended is None:
            conclude(connection, last, db.clock(), reason)
    values = {"state": to.value, "reason": reason, "updated": db.clock(), "failure": BY_STATE[to], **extra}
    if to not in {TaskState.RUNNING, TaskState.DELIVERING}:
        values = {"host": None, "lease": None, **values}
    if to is TaskState.QUEUED:
        values = {"queued": db.clock(), **values}
        values |= place(connection, row, values)
    connection.execute(tasks.update().where(tasks.c.id == row.id).values(values))
    db.note(connection, row.id, "state", {"from": row.state, "to": to.value, "reason": reason}, attempt=attempt)


def _need(connection: sa.Connection, row: Row) -> Need:
    state = TaskState(row.state)
    last = rows.last_judged(connection, row.id) if state in lifecycle.HELD else None
    word = views.verdict_of(last) if last else None
    return Need(row.id, state, pending=word is not None and lifecycle.may_still_pass(word))
