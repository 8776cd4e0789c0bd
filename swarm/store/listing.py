"""Tasks a page at a time, and how many there are: by keys and not by numbers, so that new ones move nobody's page."""

from __future__ import annotations

import base64
import binascii
import json

import sqlalchemy as sa

from swarm.answers import Page, TaskFilter
from swarm.errors import TaskError
from swarm.store import views
from swarm.store.database import Database
from swarm.store.filters import fitting
from swarm.store.schema import tasks
from swarm.types import TaskState, TaskView


class Listing:
    """Reads the tasks. Every method raises StoreError."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, wanted: TaskFilter, cursor: str | None, limit: int) -> Page[TaskView]:
        """The newest first, after the one that ``cursor`` names. Raises TaskError for a cursor of no page."""
        query = sa.select(tasks).where(*fitting(wanted)).order_by(tasks.c.created.desc(), tasks.c.id.desc())
        if cursor is not None:
            created, task = _read(cursor)
            query = query.where(sa.tuple_(tasks.c.created, tasks.c.id) < sa.tuple_(created, task))

        def act(connection: sa.Connection) -> Page[TaskView]:
            rows = connection.execute(query.limit(limit + 1)).all()
            shown = rows[:limit]
            more = _written(shown[-1].created, shown[-1].id) if len(rows) > limit else None
            return Page(items=views.assemble(connection, shown), next=more)

        return await self._db.do(act)

    async def counts(self, wanted: TaskFilter) -> dict[TaskState, int]:
        """How many tasks are in each state; states without any are left out. An index alone tells it of all tasks."""
        query = sa.select(tasks.c.state, sa.func.count()).where(*fitting(wanted)).group_by(tasks.c.state)
        return await self._db.do(
            lambda connection: {TaskState(state): count for state, count in connection.execute(query)}
        )


def _written(created: float, task: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([created, task]).encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[float, str]:
    try:
        created, task = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        return float(created), str(task)
    except (ValueError, TypeError, binascii.Error):
        raise TaskError("the cursor is that of no page", "hand back `next` of the page before, as it is") from None
