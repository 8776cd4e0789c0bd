"""The embedded database: a SQLite file with a write-ahead log, private to its owner."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event

from swarm.errors import StoreAwayError, StoreError
from swarm.store.migrating import migrate, require_present
from swarm.store.schema import keep_private

BUSY = 30_000  # milliseconds that a writer waits for another process's transaction

# What may be over the next time: another writer, a disk that is full or fails, no memory. See sqlite.org/rescode.html.
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)


def open_engine(path: Path, *, reading: bool = False) -> sa.Engine:
    """The database behind ``path``, made when absent and brought to this version; only looked at when ``reading``.

    Raises StoreError for a file that is damaged or too new, and when reading for one that is absent or too old.
    """
    if not reading:
        keep_private(path)
    elif not path.exists():
        raise StoreError(f"there is no database {path}", "start the daemon once: it makes it (swarm daemon)")
    address = f"file:{quote(str(path.absolute()))}?mode={'ro' if reading else 'rw'}"
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(address, uri=True, check_same_thread=False),
        poolclass=sa.pool.QueuePool,
        pool_reset_on_return=None,  # each transaction here ends in its own block
        hide_parameters=True,
    )
    event.listen(engine, "connect", partial(_configure, reading=reading))
    event.listen(engine, "begin", partial(_begin, how="DEFERRED" if reading else "IMMEDIATE"))
    try:
        with engine.begin() as connection:
            if reading:
                require_present(connection, str(path))
            else:
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


def failed(error: sa.exc.DBAPIError) -> StoreError:
    """What to tell of a statement that went wrong; a StoreAwayError where it may not the next time."""
    what = f"the database failed: {error.orig}"
    if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _PASSING:
        return StoreAwayError(what, "free some disk where the state folder is; work waits, and goes on by itself")
    return StoreError(what, "is the file damaged, or the state folder gone?")


def _configure(connection: sqlite3.Connection, _record: object, *, reading: bool) -> None:
    # Transactions are begun by us, at once as writers: two that read first and write later would deadlock.
    connection.isolation_level = None
    how = ("query_only=ON",) if reading else ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")
    for pragma in (f"busy_timeout={BUSY}", *how):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection, *, how: str) -> None:
    connection.exec_driver_sql(f"BEGIN {how}")


def _require_sound(connection: sa.Connection, path: Path) -> None:
    damage = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if damage != "ok":
        raise StoreError(f"the database {path} is damaged: {damage}", f"restore it, or move it away: mv {path} /tmp")
