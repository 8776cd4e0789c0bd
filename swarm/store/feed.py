"""The moves of all tasks in one order, for whoever watches everything: a position each, never changed, never skipped.

A position is given when somebody reads, not when the move is written: two hosts that write at once end their
transactions in any order, and a reader who came between them would never see the one with the smaller number.
"""

from __future__ import annotations

import json

import sqlalchemy as sa

from swarm.answers import Change, TaskFilter
from swarm.store.database import Database
from swarm.store.filters import fitting
from swarm.store.schema import changes, steps, tasks
from swarm.types import TaskState

AT_ONCE = 1000  # moves that get their positions in one transaction


class Feed:
    """Reads the moves. Every method raises StoreError."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def last(self) -> int:
        """The position of the newest move; 0 before the first."""

        def act(connection: sa.Connection) -> int:
            while self._number(connection) == AT_ONCE:
                pass
            return _highest(connection)

        return await self._db.do(act)

    async def changes(self, after: int, wanted: TaskFilter, limit: int) -> tuple[tuple[Change, ...], int]:
        """Moves after a position that fit, oldest first, out of the next ``limit``; and the last position looked at."""

        def act(connection: sa.Connection) -> tuple[tuple[Change, ...], int]:
            self._number(connection)
            window = sa.select(changes.c.position).where(changes.c.position > after)
            window = window.order_by(changes.c.position).limit(limit)
            reached = connection.execute(sa.select(sa.func.max(window.subquery().c.position))).scalar_one()
            if reached is None:
                return (), after
            found = connection.execute(_moves(after, reached, wanted)).all()
            return tuple(
                change for row in found if (change := _change(row)).state in (wanted.state or TaskState)
            ), reached

        return await self._db.do(act)

    def _number(self, connection: sa.Connection) -> int:
        """Give the moves that have none a position, in the order of their times; how many there were."""
        fresh = (
            sa.select(changes).where(changes.c.position.is_(None)).order_by(changes.c.at, changes.c.task, changes.c.seq)
        )
        if connection.execute(fresh.limit(1)).first() is None:
            return 0
        self._db.alone(connection, "changes")
        last = _highest(connection)
        rows = connection.execute(fresh.limit(AT_ONCE)).all()
        values = [{"t": row.task, "s": row.seq, "p": last + number} for number, row in enumerate(rows, 1)]
        if values:
            here = (changes.c.task == sa.bindparam("t")) & (changes.c.seq == sa.bindparam("s"))
            connection.execute(changes.update().where(here).values(position=sa.bindparam("p")), values)
        return len(values)


def _highest(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(sa.func.coalesce(sa.func.max(changes.c.position), 0))).scalar_one())


def _moves(after: int, reached: int, wanted: TaskFilter) -> sa.Select[tuple[object, ...]]:
    query = sa.select(
        changes.c.position,
        steps.c.task,
        steps.c.seq,
        steps.c.at,
        steps.c.data,
        tasks.c.repository,
        tasks.c.user,
        tasks.c.batch,
    )
    query = query.join(steps, (steps.c.task == changes.c.task) & (steps.c.seq == changes.c.seq))
    query = query.join(tasks, tasks.c.id == changes.c.task)
    query = query.where(changes.c.position > after, changes.c.position <= reached)
    return query.where(*fitting(wanted.model_copy(update={"state": ()}))).order_by(changes.c.position)


def _change(row: sa.Row[tuple[object, ...]]) -> Change:
    data = json.loads(row.data)
    return Change(
        position=row.position,
        task=row.task,
        seq=row.seq,
        at=row.at,
        before=data.get("from"),
        state=data["to"],
        reason=data.get("reason") or "",
        repository=row.repository,
        user=row.user,
        batch=row.batch,
    )
