"""The tables of the embedded database, and how a file becomes one of ours: SQLite with a write-ahead log."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event

from swarm.errors import StoreError

VERSION = 2
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
    sa.Column("pausing", sa.Boolean, nullable=False, default=False),
    sa.Column("repository", sa.Text, nullable=False, default=""),
    sa.Column("user", sa.Text, nullable=False, default="", comment="who submitted it, as the door saw them"),
    sa.Column("root", sa.Text, nullable=False, default="", comment="first task of its lineage, itself included"),
    sa.Column("follows", sa.Text),
    sa.Column("batch", sa.Text),
    sa.Column("schedule", sa.Text),
    sa.Column("priority", sa.Integer, nullable=False, default=50),
    sa.Column("rank", sa.Float, nullable=False, default=0.0, comment="smaller is sooner: see `scheduling`"),
    sa.Column("mutex", sa.Text, comment="no two tasks with the same one run at a time"),
    sa.Column("expires", sa.Float, comment="when it leaves the queue unclaimed"),
    sa.Column("host", sa.Text, comment="who holds its lease"),
    sa.Column("lease", sa.Float, comment="until when, unless renewed"),
    sa.Column("failure", sa.Text, comment="whose fault a bad end was: see `types.FailureKind`"),
)
sa.Index("tasks_by_state", tasks.c.state, tasks.c.rank)
sa.Index("tasks_by_root", tasks.c.root)

needs = sa.Table(
    "needs",
    metadata,
    sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("needed", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
)
sa.Index("needs_by_needed", needs.c.needed)

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
    sa.Column("host", sa.Text),
    sa.Column("gpu_seconds", sa.Float, nullable=False, default=0.0),
    sa.Column("money", sa.Float, nullable=False, default=0.0),
    sa.Column("failure", sa.Text),
    sa.UniqueConstraint("task", "number"),
)

hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("life", sa.Text, nullable=False, comment="random, of this start of its daemon"),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("labels", sa.Text, nullable=False, comment="JSON object"),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("beat", sa.Float, nullable=False, comment="last heartbeat"),
    sa.Column("draining", sa.Boolean, nullable=False),
)

spending = sa.Table(
    "spending",
    metadata,
    sa.Column("day", sa.Text, primary_key=True, comment="UTC, as 2026-11-30"),
    sa.Column("scope", sa.Text, primary_key=True, comment="repository:NAME, user:NAME, or fleet"),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("gpu_seconds", sa.Float, nullable=False),
    sa.Column("money", sa.Float, nullable=False),
)

times = sa.Table(
    "times",
    metadata,
    sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("part", sa.Text, primary_key=True, comment="queued, pool, prefill, decode, tools, checks, broker, ..."),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
)

fleet_times = sa.Table(
    "fleet_times",
    metadata,
    sa.Column("day", sa.Text, primary_key=True, comment="UTC"),
    sa.Column("repository", sa.Text, primary_key=True),
    sa.Column("part", sa.Text, primary_key=True),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
)

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("attempt", sa.Text, comment="which has read it"),
)

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("timezone", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("next", sa.Float),
    sa.Column("last", sa.Float),
    sa.Column("last_task", sa.Text),
)

breakers = sa.Table(
    "breakers",
    metadata,
    sa.Column("name", sa.Text, primary_key=True, comment="repository:NAME or image:NAME"),
    sa.Column("failures", sa.Integer, nullable=False, comment="of the machinery, one after the other"),
    sa.Column("until", sa.Float, comment="nothing of it is claimed before"),
    sa.Column("reason", sa.Text, nullable=False),
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("ref", sa.Text, primary_key=True),
    sa.Column("repository", sa.Text, primary_key=True),
    sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), nullable=False),
    sa.Column("attempt", sa.Text, nullable=False),
    sa.Column("base", sa.Text, nullable=False),
    sa.Column("tree", sa.Text, nullable=False),
    sa.Column("pack", sa.LargeBinary, nullable=False, comment="what the tree needs beyond the base"),
    sa.Column("at", sa.Float, nullable=False),
)
sa.Index("snapshots_by_task", snapshots.c.task)

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
