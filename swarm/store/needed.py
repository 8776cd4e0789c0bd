"""What a task is told of those that it needs, and the right that is drawn for it once they are done."""

from __future__ import annotations

import sqlalchemy as sa

from swarm.store import rows, views
from swarm.store.database import Database
from swarm.store.rows import Claim, Row
from swarm.store.schema import attempts, needs, tasks
from swarm.types import Needed, Task, TaskRequest, TaskState


class Needs:
    """The needs of a database's tasks. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def results(self, task: str) -> tuple[Needed, ...]:
        """What became of everything that a task needs, in the order in which it names them."""

        def act(connection: sa.Connection) -> tuple[Needed, ...]:
            asked = sa.select(tasks).join(needs, needs.c.needed == tasks.c.id).where(needs.c.task == task)
            found = {row.id: _result(connection, row) for row in connection.execute(asked).all()}
            order = TaskRequest.model_validate_json(rows.exactly(connection, task).request).needs
            return tuple(found[name] for name in dict.fromkeys(order) if name in found)

        return await self._db.do(act)

    async def granted(self, claim: Claim, capability: str, base: str, base_commit: str) -> Task:
        """Write the right that was drawn for a task into it, in place of the standing one. Raises StaleClaimError."""

        def act(connection: sa.Connection) -> Task:
            row = rows.held(connection, claim)
            right = {"capability": capability, "base": base, "base_commit": base_commit, "standing": False}
            request = TaskRequest.model_validate_json(row.request).model_copy(update=right)
            connection.execute(tasks.update().where(tasks.c.id == row.id).values(request=request.model_dump_json()))
            return views.task_of(rows.exactly(connection, row.id))

        return await self._db.do(act)


def _result(connection: sa.Connection, row: Row) -> Needed:
    request = TaskRequest.model_validate_json(row.request)
    judged = rows.last_judged(connection, row.id)
    word = (views.verdict_of(judged) if judged else None) or {}
    last = (
        judged
        or connection.execute(
            sa.select(attempts)
            .where(attempts.c.task == row.id, attempts.c.result.is_not(None))
            .order_by(attempts.c.number.desc())
            .limit(1)
        ).one_or_none()
    )
    result = views.result_of(last) if last else None
    conclusion = result.conclusion if result else None
    return Needed(
        task=row.id,
        repository=row.repository,
        state=TaskState(row.state),
        title=(request.title or (conclusion.title if conclusion else ""))[:200],
        summary=(conclusion.summary if conclusion else "")[:4000],
        branch=word.get("branch"),
        pull_request=word.get("url") or word.get("pull_request"),
        commit=word.get("commit"),
    )
