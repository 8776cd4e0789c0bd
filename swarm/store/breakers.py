"""The breakers of repositories and images: read by every claim, written by every end of an attempt."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from swarm.scheduling import breaker as rules
from swarm.scheduling.breaker import Breaker
from swarm.store.database import Database
from swarm.store.rows import Row
from swarm.store.schema import breakers

LISTED = 1000


class Breakers:
    """The breakers of a database. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def listed(self) -> tuple[Breaker, ...]:
        """All that have counted a failure, those that are open first."""
        query = sa.select(breakers).order_by(breakers.c.until.is_(None), breakers.c.name).limit(LISTED)
        return await self._db.do(lambda connection: tuple(_breaker(row) for row in connection.execute(query)))

    async def reset(self, name: str) -> bool:
        """Close one and forget its failures; False when there was nothing to forget."""

        def act(connection: sa.Connection) -> bool:
            return connection.execute(breakers.delete().where(breakers.c.name == name)).rowcount > 0

        return await self._db.do(act)


def opened(connection: sa.Connection) -> tuple[Breaker, ...]:
    """Those that are open or half open."""
    found = connection.execute(sa.select(breakers).where(breakers.c.until.is_not(None)).limit(LISTED))
    return tuple(_breaker(row) for row in found)


def let_through(connection: sa.Connection, names: Collection[str], task: str, now: float) -> None:
    """A task of these names was claimed: where a trial is due, it is the one."""
    for each in _named(connection, names):
        _write(connection, each, rules.trying(each, task, now))


def heard(connection: sa.Connection, names: Collection[str], task: str, failure: str, now: float) -> None:
    """How an attempt ended: ``failure`` is the machinery's, in words, empty for none."""
    known = {each.name: each for each in _named(connection, names)}
    for name in names:
        before = known.get(name, Breaker(name))
        if failure:
            _write(connection, before, rules.failed(before, task, failure[:500], now))
        else:
            _write(connection, before, rules.worked(before))


def _named(connection: sa.Connection, names: Collection[str]) -> tuple[Breaker, ...]:
    query = sa.select(breakers).where(breakers.c.name.in_(sorted(names))).order_by(breakers.c.name)
    return tuple(_breaker(row) for row in connection.execute(query.with_for_update()))


def _write(connection: sa.Connection, before: Breaker, now: Breaker) -> None:
    if now == before:
        return
    connection.execute(breakers.delete().where(breakers.c.name == now.name))
    if now.failures:
        values = {"failures": now.failures, "until": now.until, "trial": now.trial, "reason": now.reason}
        connection.execute(breakers.insert().values(name=now.name, **values))


def _breaker(row: Row) -> Breaker:
    return Breaker(row.name, row.failures, row.until, row.trial, row.reason)
