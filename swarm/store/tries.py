"""What became of a task's earlier attempts, for the next one to learn from."""

from __future__ import annotations

import sqlalchemy as sa

from swarm.store import views
from swarm.store.database import Database
from swarm.store.schema import attempts
from swarm.types import Attempt, AttemptResult

MOST = 3  # of the last attempts that are told of


class Tries:
    """The attempts of a database's tasks as experience. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def before(self, task: str, number: int) -> tuple[tuple[Attempt, AttemptResult], ...]:
        """The last attempts of a task before its ``number``-th that came to a result, the earliest first."""

        def act(connection: sa.Connection) -> tuple[tuple[Attempt, AttemptResult], ...]:
            ended = (attempts.c.task == task, attempts.c.number < number, attempts.c.result.is_not(None))
            query = sa.select(attempts).where(*ended).order_by(attempts.c.number.desc()).limit(MOST)
            found = [(views.attempt_of(row), views.result_of(row)) for row in connection.execute(query)]
            return tuple((attempt, result) for attempt, result in reversed(found) if result is not None)

        return await self._db.do(act)
