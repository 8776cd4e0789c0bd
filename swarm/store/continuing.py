"""Attempts that go on where another one stood, of the same task or of one that it was forked from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from swarm.errors import TaskError
from swarm.store.rows import Row
from swarm.store.schema import attempts, steps
from swarm.types import Step

DEEPEST = 32  # attempts that one may go on from, one after the other
PAGE = 5000  # lines of a journal that one transaction reads

_LINE = (steps.c.task, steps.c.attempt, steps.c.seq, steps.c.at, steps.c.kind, steps.c.data)


class Link(NamedTuple):
    """One of a chain of attempts, and the last line of its journal that the next one knows of; None for all."""

    task: str
    attempt: str
    until: int | None


def chain(connection: sa.Connection, attempt: str) -> tuple[Link, ...]:
    """An attempt after all those that it goes on from, the first of them first."""
    links: list[Link] = []
    name: str | None = attempt
    point: int | None = None
    while name is not None and len(links) <= DEEPEST:
        row = connection.execute(sa.select(attempts).where(attempts.c.id == name)).one()
        links.append(Link(row.task, row.id, point))
        name, point = row.continues, row.point
    return tuple(reversed(links))


def page(connection: sa.Connection, link: Link, after: int) -> tuple[Row, ...]:
    """The next lines of a link's attempt, as far as its follower knows them; see `read`."""
    query = sa.select(*_LINE).where(*_known(link), steps.c.seq > after).order_by(steps.c.seq).limit(PAGE)
    return tuple(connection.execute(query))


def read(lines: Sequence[Row]) -> list[Step]:
    """Lines as they lie in the database. No work on the database: it takes longer than to fetch them."""
    return [Step.model_validate({**line._mapping, "data": json.loads(line.data)}) for line in lines]  # noqa: SLF001


def source(connection: sa.Connection, task: str, attempt: str | None) -> Row:
    """The attempt of a task that can be gone on from: the one that is named, else the last that kept any work.

    Raises TaskError where there is none.
    """
    kept = _kept(connection, task, attempt)
    if kept is None:
        what = f"attempt {attempt} of task {task}" if attempt else f"task {task}"
        raise TaskError(f"{what} left no work that could be gone on from", f"see its attempts: swarm show {task}")
    return kept


def start(connection: sa.Connection, task: str, attempt: str | None) -> tuple[str, int | None]:
    """Where a task that ended goes on: at that `source`, or where it began, for a fork that has kept nothing yet."""
    begun = beginning(connection, task)
    if attempt is None and begun is not None and _kept(connection, task, None) is None:
        return begun
    return source(connection, task, attempt).id, None


def beginning(connection: sa.Connection, task: str) -> tuple[str, int | None] | None:
    """The attempt, and the line of its journal, that a task was forked at; None for one that was not."""
    origin = attempts.alias()
    query = sa.select(attempts.c.continues, attempts.c.point).join(origin, origin.c.id == attempts.c.continues)
    query = query.where(attempts.c.task == task, origin.c.task != task).order_by(attempts.c.number).limit(1)
    found = connection.execute(query).one_or_none()
    return None if found is None else (found.continues, found.point)


def last_line(connection: sa.Connection, attempt: Row) -> int:
    """The number of the last line that an attempt has written."""
    query = sa.select(sa.func.coalesce(sa.func.max(steps.c.seq), 0))
    return int(connection.execute(query.where(*_known(Link(attempt.task, attempt.id, None)))).scalar_one())


def tree_at(connection: sa.Connection, attempt: str, point: int) -> str | None:
    """The tree of an attempt's workspace as it was saved last up to a line of the journal; None where none was."""
    for link in reversed(chain(connection, attempt)):
        until = point if link.attempt == attempt else link.until
        query = sa.select(steps.c.data).where(*_known(link._replace(until=until)), steps.c.kind == "salvage")
        found = connection.execute(query.order_by(steps.c.seq.desc()).limit(1)).scalar_one_or_none()
        if found is not None:
            return str(json.loads(found)["tree"])
    return None


def _kept(connection: sa.Connection, task: str, attempt: str | None) -> Row | None:
    query = sa.select(attempts).where(attempts.c.task == task, attempts.c.salvage.is_not(None))
    if attempt is not None:
        query = query.where(attempts.c.id == attempt)
    found = connection.execute(query.order_by(attempts.c.number.desc())).all()
    return next((row for row in found if row.salvage), None)


def _known(link: Link) -> tuple[sa.ColumnElement[bool], ...]:
    whole = (steps.c.task == link.task, steps.c.attempt == link.attempt)
    return whole if link.until is None else (*whole, steps.c.seq <= link.until)
