"""Attempts that go on where another one stood, of the same task or of one that it was forked from."""

from __future__ import annotations

import sqlalchemy as sa

from swarm.errors import TaskError
from swarm.store import journal
from swarm.store.rows import Row
from swarm.store.schema import attempts
from swarm.types import Step

DEEPEST = 32  # attempts that one may go on from, one after the other
PAGE = 5000  # lines of a journal that one query reads


def past(connection: sa.Connection, attempt: str) -> tuple[Step, ...]:
    """All that an attempt knows of: the lines of those that it goes on from, as far as it does, then its own."""
    links: list[tuple[Row, int | None]] = []
    name: str | None = attempt
    point: int | None = None
    while name is not None and len(links) <= DEEPEST:
        row = connection.execute(sa.select(attempts).where(attempts.c.id == name)).one()
        links.append((row, point))
        name, point = row.continues, row.point
    return tuple(step for row, until in reversed(links) for step in _lines(connection, row, until))


def source(connection: sa.Connection, task: str, attempt: str | None) -> Row:
    """The attempt of a task that can be gone on from: the one that is named, else the last that kept any work.

    Raises TaskError where there is none.
    """
    query = sa.select(attempts).where(attempts.c.task == task).order_by(attempts.c.number.desc())
    found = connection.execute(query).all()
    if attempt is not None:
        found = [row for row in found if row.id == attempt]
    kept = next((row for row in found if row.salvage), None)
    if kept is None:
        what = f"attempt {attempt} of task {task}" if attempt else f"task {task}"
        raise TaskError(f"{what} left no work that could be gone on from", f"see its attempts: swarm show {task}")
    return kept


def tree_at(connection: sa.Connection, attempt: str, point: int | None) -> str | None:
    """The tree of an attempt's workspace as it was saved last up to a line of the journal; None where none was."""
    saves = (step for step in past(connection, attempt) if step.kind == "salvage")
    trees = [step.data["tree"] for step in saves if point is None or step.attempt != attempt or step.seq <= point]
    return str(trees[-1]) if trees else None


def _lines(connection: sa.Connection, row: Row, until: int | None) -> list[Step]:
    found: list[Step] = []
    while True:
        after = found[-1].seq if found else 0
        page = journal.read(connection, row.task, after=after, attempt=row.id, limit=PAGE)
        found += [step for step in page if until is None or step.seq <= until]
        if len(page) < PAGE or len(found) == 0 or found[-1].seq != page[-1].seq:
            return found
