"""How a database is opened and configured: a SQLite file with a write-ahead log, private to its owner."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event

from swarm.errors import StoreError
from swarm.store.migrating import migrate
from swarm.store.schema import keep_private

BUSY = 30_000  # milliseconds that a writer waits for another process's transaction


def open_engine(path: Path) -> sa.Engine:
    """The database behind ``path``, made when absent. Raises StoreError for a file that is damaged or too new."""
    keep_private(path)
    engine = sa.create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    try:
        with engine.begin() as connection:
            _require_sound(connection, path)
            migrate(connection, str(path), path)
    except sa.exc.OperationalError as error:  # a full disk, a lost folder: the file itself may be whole
        engine.dispose()
        mend = f"see whether the disk of {path.parent} is full or failing; the file may be whole, so leave it there"
        raise StoreError(f"the database {path} cannot be used: {error.orig}", mend) from error
    except sa.exc.DatabaseError as error:
        engine.dispose()
        raise StoreError(
            f"the database {path} cannot be used: {error.orig}",
            f"move it away (mv {path} {path}.broken) and start again; work that was salvaged stays in the git folder",
        ) from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    # Transactions are begun by us, at once as writers: two that read first and write later would deadlock.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _require_sound(connection: sa.Connection, path: Path) -> None:
    damage = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if damage != "ok":
        raise StoreError(f"the database {path} is damaged: {damage}", f"restore it, or move it away: mv {path} /tmp")
