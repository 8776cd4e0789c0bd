"""The tables of the embedded database, and how a file becomes one of ours: SQLite with a write-ahead log."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event

from swarm.errors import StoreError

VERSION = 1
BUSY = 30_000  # milliseconds that a writer waits for another process's transaction

metadata = sa.MetaData()

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, unique=True, comment="idempotency key"),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("budget", sa.Text, nullable=False),
    sa.Column("grants", sa.Integer, nullable=False, comment="how often the budget was granted: once, and per retry"),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("updated", sa.Float, nullable=False),
    sa.Column("fence", sa.Integer, nullable=False, comment="grows with every claim; a smaller number is stale"),
    sa.Column("tier", sa.Text, nullable=False, comment="of the next attempt"),
    sa.Column("strategy", sa.Text, nullable=False),
    sa.Column("carry", sa.Text, comment="attempt whose sealed tree the next one only delivers"),
    sa.Column("queued", sa.Float, nullable=False),
    sa.Column("not_before", sa.Float, nullable=False),
    sa.Column("cancelling", sa.Boolean, nullable=False),
)
sa.Index("tasks_by_state", tasks.c.state, tasks.c.queued)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("tier", sa.Text, nullable=False),
    sa.Column("strategy", sa.Text, nullable=False),
    sa.Column("carries", sa.Text),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
    sa.Column("ending", sa.Text),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("wall", sa.Float, nullable=False),
    sa.Column("salvage", sa.Text),
    sa.Column("result", sa.Text),
    sa.Column("verdict", sa.Text),
    sa.UniqueConstraint("task", "number"),
)

steps = sa.Table(
    "steps",
    metadata,
    sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Text),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

_APPEND_ONLY = [
    f"CREATE TRIGGER steps_no_{verb} BEFORE {verb} ON steps BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END"
    for verb in ("update", "delete")
]


def open_engine(path: Path) -> sa.Engine:
    """The database behind ``path``, made when absent. Raises StoreError for a file that is damaged or too new."""
    keep_private(path)
    engine = sa.create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    try:
        with engine.begin() as connection:
            _migrate(connection, path)
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


def keep_private(path: Path) -> None:
    """Make the file before SQLite does, for its owner alone: capabilities are in it. Raises StoreError."""
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
    except OSError as error:
        raise StoreError(f"the database {path} cannot be used: {error.strerror}", "see daemon.state") from error


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    # Transactions are begun by us, at once as writers: two that read first and write later would deadlock.
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _migrate(connection: sa.Connection, path: Path) -> None:
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    if version > VERSION:
        raise StoreError(
            f"the database {path} was written by a newer version (schema {version}; this one knows {VERSION})",
            "install the newer version again, or give this one a state folder of its own",
        )
    damage = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if damage != "ok":
        raise StoreError(f"the database {path} is damaged: {damage}", f"restore it, or move it away: mv {path} /tmp")
    if version == 0:
        metadata.create_all(connection)
        for statement in _APPEND_ONLY:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
