"""What became of the attempts at a repository, way by way, for `auto` to learn from. Read from what is kept anyway."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from swarm.store import views
from swarm.store.database import Database
from swarm.store.rows import Row
from swarm.store.schema import attempts, tasks
from swarm.types import AttemptResult, Experience

MOST = 200  # of the last attempts that are looked at
_OWN = ("task.", "lineage.", "part.")


class Outcomes:
    """The outcomes of a database. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def of(self, repository: str) -> tuple[Experience, ...]:
        """Those of a repository's attempts that say something of the way they were made, the newest first."""

        def act(connection: sa.Connection) -> tuple[Experience, ...]:
            query = (
                sa.select(attempts)
                .join(tasks, tasks.c.id == attempts.c.task)
                .where(tasks.c.repository == repository, attempts.c.ended.is_not(None), attempts.c.carries.is_(None))
                .order_by(attempts.c.ended.desc(), attempts.c.id)
                .limit(MOST)
            )
            return tuple(one for row in connection.execute(query) for one in _outcomes(row))

        return await self._db.do(act)


def _outcomes(row: Row) -> Iterator[Experience]:
    result = views.result_of(row)
    solved = None if result is None else solved_by(result)
    if result is None or solved is None:
        return
    did = result.conclusion.strategy or row.strategy
    for way, tokens in (result.conclusion.tried or {did: row.tokens}).items():
        yield Experience(strategy=way, tier=row.tier, solved=solved and way == did, tokens=tokens, at=row.ended)


def solved_by(result: AttemptResult) -> bool | None:
    """Whether an attempt solved its task, as the checks have it; None where its end says nothing of how it worked.

    Broken machinery, a person who cancelled or was asked, and a day's budget that ran out are no way's doing.
    """
    ended = result.conclusion
    if result.fault is not None or ended.ending in {"cancelled", "infra_failed", "asked", "no_change"}:
        return None
    if ended.ending == "limit_hit" and ended.limit and not ended.limit.startswith(_OWN):
        return None
    if ended.ending == "finished":
        if result.report is None or result.report.verdict == "not_run":
            return None
        return result.report.verdict == "passed"
    return False
