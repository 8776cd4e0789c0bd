"""Which rows of the tasks a filter means."""

from __future__ import annotations

import sqlalchemy as sa

from swarm.answers import TaskFilter
from swarm.store.schema import tasks


def fitting(wanted: TaskFilter) -> list[sa.ColumnElement[bool]]:
    """The conditions that all have to hold; none for a filter that says nothing."""
    found: list[sa.ColumnElement[bool]] = []
    if wanted.state:
        found.append(tasks.c.state.in_([state.value for state in wanted.state]))
    for column, value in (
        (tasks.c.repository, wanted.repository),
        (tasks.c.user, wanted.user),
        (tasks.c.batch, wanted.batch),
    ):
        if value is not None:
            found.append(column == value)
    if wanted.since is not None:
        found.append(tasks.c.created >= wanted.since)
    return found
