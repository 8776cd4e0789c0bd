"""Rows that only ever grow: what is added to one, made where it is absent, whoever else adds at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def add(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows to those of the same key: all columns outside the key are sums. One row a key at most."""
    if rows:
        # In one order everywhere, so that two transactions cannot hold what the other one waits for.
        keys = [column.name for column in table.primary_key]
        ordered = sorted(rows, key=lambda row: [row[key] for key in keys])
        connection.execute(_adding(table, connection.dialect.name), ordered)


def put(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
    """Write a row over the one of the same key."""
    connection.execute(_putting(table, connection.dialect.name), row)


@cache
def _adding(table: sa.Table, dialect: str) -> Any:
    insert = _INSERTS[dialect](table)
    sums = {column.name: column + insert.excluded[column.name] for column in table.c if not column.primary_key}
    return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=sums)


@cache
def _putting(table: sa.Table, dialect: str) -> Any:
    insert = _INSERTS[dialect](table)
    values = {column.name: insert.excluded[column.name] for column in table.c if not column.primary_key}
    return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=values)
