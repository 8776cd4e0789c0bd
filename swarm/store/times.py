"""Where the time went: of one task, and of all of them by day. Read from sums, never from the journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import sqlalchemy as sa

from swarm.budgets.scopes import day_of
from swarm.shown import DayTimes, FleetTimes, PartTime, TaskTimes
from swarm.shown import Times as Sums
from swarm.store import clocks as keeping
from swarm.store import rows
from swarm.store.clocks import ordered, part_of
from swarm.store.database import Database
from swarm.store.schema import clocks, fleet_times, tasks, times
from swarm.types import TaskState

BATCH = 20  # tasks of an earlier version whose sums one transaction makes
DAY = 86_400.0


class Times:
    """The sums of a database. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def task(self, task: str) -> TaskTimes:
        """Where the time of a task went, until now where it has not ended. Raises TaskNotFoundError."""

        def act(connection: sa.Connection) -> TaskTimes:
            row = rows.row_of(connection, task)
            clock = connection.execute(sa.select(clocks).where(clocks.c.task == row.id)).one_or_none()
            if clock is None:
                keeping.rebuild(connection, row.id)
                clock = connection.execute(sa.select(clocks).where(clocks.c.task == row.id)).one()
            found = connection.execute(sa.select(times).where(times.c.task == row.id)).all()
            parts = {each.part: part_of(each) for each in found}
            now = max(self._db.clock(), clock.at)
            if clock.part:
                part = parts.get(clock.part, PartTime(part=clock.part))
                parts[clock.part] = part.model_copy(update={"seconds": part.seconds + now - clock.at})
            until = now if clock.part else clock.at
            return TaskTimes(task=row.id, state=TaskState(row.state), until=until, times=Sums.of(ordered(parts)))

        return await self._db.do(act)

    async def fleet(self, days: int, repository: str | None = None) -> FleetTimes:
        """Where the time of all tasks went, or of one repository's, by day in UTC, today the last of so many days.

        What a task does counts when it is over: a night's work counts for the day on which the line was written.
        """
        since = day_of(self._db.clock() - (days - 1) * DAY)
        query = sa.select(
            fleet_times.c.day,
            fleet_times.c.part,
            *(sa.func.sum(fleet_times.c[name]).label(name) for name in ("seconds", "count", "tokens")),
        ).where(fleet_times.c.day >= since)
        if repository is not None:
            query = query.where(fleet_times.c.repository == repository)

        def act(connection: sa.Connection) -> FleetTimes:
            found: dict[str, dict[str, PartTime]] = defaultdict(dict)
            for row in connection.execute(query.group_by(fleet_times.c.day, fleet_times.c.part)):
                found[row.day][row.part] = part_of(row)
            by_day = tuple(DayTimes(day=day, times=Sums.of(ordered(found[day]))) for day in sorted(found))
            total = Sums.of(ordered(_together(found.values())))
            return FleetTimes(days=days, repository=repository, total=total, by_day=by_day)

        return await self._db.do(act)

    async def catch_up(self) -> int:
        """Make the sums of some tasks that an earlier version left without; how many these were."""
        without = sa.select(tasks.c.id).outerjoin(clocks, clocks.c.task == tasks.c.id).where(clocks.c.task.is_(None))

        def act(connection: sa.Connection) -> int:
            found = connection.execute(without.limit(BATCH)).scalars().all()
            for task in found:
                keeping.rebuild(connection, task)
            return len(found)

        return await self._db.do(act)


def _together(days: Iterable[dict[str, PartTime]]) -> dict[str, PartTime]:
    found: dict[str, list[PartTime]] = defaultdict(list)
    for parts in days:
        for part in parts.values():
            found[part.part].append(part)
    return {
        name: PartTime(
            part=name,
            seconds=sum(each.seconds for each in parts),
            count=sum(each.count for each in parts),
            tokens=sum(each.tokens for each in parts),
        )
        for name, parts in found.items()
    }
