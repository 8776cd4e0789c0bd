"""Rings the bell for what other hosts wrote: looks, a few times a second and only while somebody waits.

A NOTIFY in every transaction would be told sooner, and makes all transactions of a server commit one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

import sqlalchemy as sa

from swarm.store.journal import EVERYTHING, Bell
from swarm.store.schema import changes, steps, tasks

EVERY = 0.5  # seconds between two looks
AT_ONCE = 1000  # tasks that one look is for
_MOVES = ""  # where the position of the last move stands among the tasks' last lines

log = logging.getLogger(__name__)


async def ring(engine: sa.Engine, bell: Bell) -> None:
    """Look for ever. An outage is waited for; whoever listens hears of what was written in it afterwards."""
    known: dict[str, int] = {}
    while True:
        await asyncio.sleep(EVERY)
        followed = bell.followed()[:AT_ONCE]
        if not followed:
            known = {}
            continue
        try:
            found = await asyncio.to_thread(_look, engine, followed)
        except sa.exc.SQLAlchemyError as error:
            log.debug("no news from the database: %s", error)
            continue
        for task, last in found.items():
            if known.get(task) != last:
                bell.ring(task)
        known = found


def _look(engine: sa.Engine, followed: Collection[str]) -> dict[str, int]:
    last = sa.select(sa.func.max(steps.c.seq)).where(steps.c.task == tasks.c.id).scalar_subquery()
    with engine.begin() as connection:
        query = sa.select(tasks.c.id, sa.func.coalesce(last, 0)).where(tasks.c.id.in_(followed))
        found = {str(task): int(seq) for task, seq in connection.execute(query)}
        if EVERYTHING in followed:
            unread = sa.select(sa.func.count()).select_from(changes).where(changes.c.position.is_(None))
            highest = sa.select(sa.func.coalesce(sa.func.max(changes.c.position), 0))
            found[_MOVES] = sum(connection.execute(query).scalar_one() for query in (unread, highest))
    return found
