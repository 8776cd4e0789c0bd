"""What people say to the agents of tasks."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from swarm.errors import TaskError
from swarm.store import rows
from swarm.store.database import Database
from swarm.store.rows import Claim
from swarm.store.schema import messages
from swarm.types import Step, TaskMessage

LONGEST = 20_000  # characters of one message
MOST = 200  # messages of people to one task

_AFTER = (
    sa.select(messages)
    .where(messages.c.task == sa.bindparam("whose"), messages.c.seq > sa.bindparam("after"))
    .order_by(messages.c.seq)
)

_AUTHOR = messages.c.author  # empty where the daemon says something itself


class Messages:
    """The messages of a database. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, task: str, text: str, author: str, key: str | None = None) -> TaskMessage:
        """Leave a message for a task's agent; the same ``key`` again is the same message.

        Raises TaskError for an empty or long one, or one too many.
        """
        words = text.strip()
        if not words or len(words) > LONGEST:
            raise TaskError(f"a message has 1 to {LONGEST} characters, this one has {len(words)}", "say it shorter")

        def act(connection: sa.Connection) -> TaskMessage:
            name = rows.locked(connection, task).id
            if key is not None:
                query = sa.select(messages).where(messages.c.task == name, messages.c.key == key)
                if (known := connection.execute(query).one_or_none()) is not None:
                    return _said(known)
            return add_message(self._db, connection, name, words, author, key)

        return await self._db.do(act, ring=lambda said: said.task)

    async def of(self, task: str, *, after: int = 0) -> tuple[TaskMessage, ...]:
        """A task's messages after number ``after``, oldest first. Raises TaskNotFoundError."""

        def act(connection: sa.Connection) -> tuple[TaskMessage, ...]:
            name = rows.row_of(connection, task).id
            return tuple(_said(row) for row in connection.execute(_AFTER, {"whose": name, "after": after}))

        return await self._db.do(act)

    async def told(self, claim: Claim, seq: int, data: dict[str, Any]) -> Step:
        """Write into the journal that an attempt was told a message, and remember which. Raises StaleClaimError."""

        def act(connection: sa.Connection) -> Step:
            rows.held(connection, claim)
            one = (messages.c.task == claim.task.id, messages.c.seq == seq)
            connection.execute(messages.update().where(*one).values(attempt=claim.attempt.id))
            return self._db.note(connection, claim.task.id, "message", data, attempt=claim.attempt.id)

        return await self._db.do(act, ring=lambda step: step.task)


def add_message(
    db: Database, connection: sa.Connection, task: str, text: str, author: str, key: str | None = None
) -> TaskMessage:
    """Leave a message inside the caller's transaction, in which the task is locked. Raises TaskError."""
    told = sa.select(sa.func.coalesce(sa.func.max(messages.c.seq), 0), sa.func.count(sa.func.nullif(_AUTHOR, "")))
    last, count = connection.execute(told.where(messages.c.task == task)).one()
    if author and count >= MOST:
        raise TaskError(f"task {task} has {MOST} messages already", "fork it, or submit another task")
    said = TaskMessage(task=task, seq=last + 1, at=db.clock(), author=author, text=text)
    connection.execute(messages.insert().values(**said.model_dump(exclude={"when"}), key=key))
    return said


def _said(row: rows.Row) -> TaskMessage:
    return TaskMessage(task=row.task, seq=row.seq, at=row.at, author=row.author, text=row.text, attempt=row.attempt)
