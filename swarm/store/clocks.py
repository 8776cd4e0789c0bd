"""Where the time went, kept with each line of the journal that tells of time, in its own transaction.

The sums are read by their keys, so an answer costs the same after a million steps. A task of an earlier version has no
clock; its sums are made from its lines once, when the next one comes or `times.Times` catches up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from swarm.budgets.parts import PARTS, Clock, Part, advance, whole
from swarm.budgets.scopes import day_of
from swarm.shown import PartTime
from swarm.store import journal, sums
from swarm.store.schema import clocks, fleet_times, tasks, times
from swarm.types import Step

PAGE = 5_000  # lines of a journal that are read at once

_STANDS = (
    sa.select(tasks.c.repository, tasks.c.host, clocks.c.at, clocks.c.part)
    .select_from(tasks.outerjoin(clocks, clocks.c.task == tasks.c.id))
    .where(tasks.c.id == sa.bindparam("id"))
)


def told(connection: sa.Connection, line: Step) -> None:
    """Count what a line tells that was just written."""
    if advance(None, line) is None:
        return
    row = connection.execute(_STANDS, {"id": line.task}).one()
    if row.at is None and line.seq > 1:
        rebuild(connection, line.task)
        return
    clock = None if row.at is None else Clock(row.at, row.part)
    stepped = advance(clock, line)
    if stepped is not None:
        _write(connection, line.task, (row.repository, row.host or ""), stepped[0], [(line, stepped[1])])


def rebuild(connection: sa.Connection, task: str) -> None:
    """Make the sums of a task that has none from all its lines; of hosts that do so at once the first one alone."""
    connection.execute(sa.select(tasks.c.id).where(tasks.c.id == task).with_for_update())
    row = connection.execute(_STANDS, {"id": task}).one()
    if row.at is not None:
        return
    found = list(whole(_lines(connection, task)))
    clock = found[-1][0] if found else Clock(0.0)
    told = [(line, parts) for _clock, parts, line in found]
    _write(connection, task, (row.repository, row.host or ""), clock, told)


def _lines(connection: sa.Connection, task: str) -> Iterator[Step]:
    after = 0
    while page := journal.read(connection, task, after=after, limit=PAGE):
        yield from page
        after = page[-1].seq


def _write(
    connection: sa.Connection,
    task: str,
    whose: tuple[str, str],
    clock: Clock,
    found: list[tuple[Step, tuple[Part, ...]]],
) -> None:
    """``whose`` are the task's repository and the host that works on it."""
    repository, host = whose
    sums.put(connection, clocks, {"task": task, "at": clock.at, "part": clock.part})
    own: dict[Any, list[Part]] = defaultdict(list)
    days: dict[Any, list[Part]] = defaultdict(list)
    for line, parts in found:
        day = day_of(line.at)
        for part in parts:
            own[part.name].append(part)
            days[day, part.name].append(part)
    sums.add(connection, times, [{"task": task, "part": name, **_sum(parts)} for name, parts in own.items()])
    shard = {"repository": repository, "host": host}
    rows = [{"day": day, "part": name, **shard, **_sum(parts)} for (day, name), parts in days.items()]
    sums.add(connection, fleet_times, rows)


def _sum(parts: list[Part]) -> dict[str, Any]:
    return {name: sum(getattr(part, name) for part in parts) for name in ("seconds", "count", "tokens")}


def part_of(row: sa.Row[Any]) -> PartTime:
    """A sum."""
    count = row._mapping["count"]  # noqa: SLF001 - a row is a tuple, whose method hides the column
    return PartTime(part=row.part, seconds=float(row.seconds), count=int(count), tokens=int(row.tokens))


def ordered(parts: dict[str, PartTime]) -> tuple[PartTime, ...]:
    """In the order in which a task goes through them, what knows no time behind."""
    places = {name: place for place, name in enumerate(PARTS)}
    return tuple(parts[name] for name in sorted(parts, key=lambda name: (places.get(name, len(places)), name)))


def seconds_of(connection: sa.Connection, ids: Iterable[str]) -> dict[str, dict[str, float]]:
    """Seconds by task and part, for views of many tasks."""
    query = sa.select(times).where(times.c.task.in_(tuple(ids)), times.c.seconds > 0)
    found: dict[str, dict[str, PartTime]] = defaultdict(dict)
    for row in connection.execute(query):
        found[row.task][row.part] = part_of(row)
    return {task: {part.part: part.seconds for part in ordered(parts)} for task, parts in found.items()}
