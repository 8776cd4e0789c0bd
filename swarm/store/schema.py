"""The tables of the database, alike on SQLite and on Postgres. `migrations` makes the same of an older one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from swarm.errors import StoreError

VERSION = 2  # SQLite's user_version, by which versions that knew no migrations turn a newer file down

metadata = sa.MetaData()

Count = sa.Integer().with_variant(sa.BigInteger(), "postgresql")  # a day's tokens are more than 32 bits hold


class Words(sa.TypeDecorator[str]):
    """Text of anyone's: a NUL and a half character, which one or the other database refuses, become "?"."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        """What is stored for ``value``."""
        return None if value is None else value.replace("\0", "?").encode("utf-8", "replace").decode()

    def coerce_compared_value(self, op: Any, value: Any) -> Any:  # noqa: ARG002
        """What it is compared with is cleaned likewise."""
        return self


tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("key", Words, unique=True, doc="idempotency key"),
    sa.Column("request", Words, nullable=False),
    sa.Column("budget", Words, nullable=False),
    sa.Column("grants", sa.Integer, nullable=False, doc="how often the budget was granted: once, and per retry"),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("state", Words, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("updated", sa.Float, nullable=False),
    sa.Column("fence", sa.Integer, nullable=False, doc="grows with every claim; a smaller number is stale"),
    sa.Column("tier", Words, nullable=False, doc="of the next attempt"),
    sa.Column("strategy", Words, nullable=False),
    sa.Column("carry", Words, doc="attempt whose sealed tree the next one only delivers"),
    sa.Column("queued", sa.Float, nullable=False),
    sa.Column("not_before", sa.Float, nullable=False),
    sa.Column("cancelling", sa.Boolean, nullable=False),
    sa.Column("pausing", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("repository", Words, nullable=False, server_default=sa.text("''")),
    sa.Column(
        "user", Words, nullable=False, server_default=sa.text("''"), doc="who submitted it, as the door saw them"
    ),
    sa.Column(
        "root", Words, nullable=False, server_default=sa.text("''"), doc="first task of its lineage, itself included"
    ),
    sa.Column("follows", Words),
    sa.Column("batch", Words),
    sa.Column("schedule", Words),
    sa.Column("priority", sa.Integer, nullable=False, server_default="50"),
    sa.Column("rank", sa.Float, nullable=False, server_default="0", doc="smaller is sooner: see `scheduling`"),
    sa.Column("mutex", Words, doc="no two tasks with the same one run at a time"),
    sa.Column("expires", sa.Float, doc="when it leaves the queue unclaimed"),
    sa.Column("host", Words, doc="who holds its lease"),
    sa.Column("lease", sa.Float, doc="until when, unless renewed"),
    sa.Column("failure", Words, doc="whose fault a bad end was: see `types.FailureKind`"),
    sa.Column("lane", Words, nullable=False, server_default=sa.text("''"), doc="see `rows.lane`"),
    sa.Column("waiting", sa.Integer, nullable=False, server_default="0", doc="needed tasks that are not done"),
)
sa.Index("tasks_by_state", tasks.c.state, tasks.c.rank)
sa.Index("tasks_by_lane", tasks.c.state, tasks.c.waiting, tasks.c.lane, tasks.c.rank, tasks.c.created)
sa.Index("tasks_by_delay", tasks.c.state, tasks.c.not_before)
sa.Index("tasks_by_expiry", tasks.c.state, tasks.c.expires)
sa.Index("tasks_by_repository", tasks.c.repository, tasks.c.strategy, tasks.c.updated)
sa.Index("tasks_by_root", tasks.c.root)
sa.Index("tasks_by_created", tasks.c.created, tasks.c.id)
sa.Index("tasks_by_batch", tasks.c.batch)

needs = sa.Table(
    "needs",
    metadata,
    sa.Column("task", Words, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("needed", Words, sa.ForeignKey("tasks.id"), primary_key=True),
)
sa.Index("needs_by_needed", needs.c.needed)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("task", Words, sa.ForeignKey("tasks.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("tier", Words, nullable=False),
    sa.Column("strategy", Words, nullable=False),
    sa.Column("carries", Words),
    sa.Column("continues", Words, doc="attempt, also of another task, whose conversation and work it goes on with"),
    sa.Column("point", sa.Integer, doc="the last line of that one's journal that it knows of; all where absent"),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
    sa.Column("ending", Words),
    sa.Column("detail", Words, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("tokens", Count, nullable=False),
    sa.Column("wall", sa.Float, nullable=False),
    sa.Column("salvage", Words),
    sa.Column("result", Words),
    sa.Column("verdict", Words),
    sa.Column("host", Words),
    sa.Column("gpu_seconds", sa.Float, nullable=False, server_default="0"),
    sa.Column("money", sa.Float, nullable=False, server_default="0"),
    sa.Column("prompt_tokens", Count, nullable=False, server_default="0"),
    sa.Column("cached_tokens", Count, nullable=False, server_default="0"),
    sa.Column("failure", Words),
    sa.UniqueConstraint("task", "number"),
)

hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("life", Words, nullable=False, doc="random, of this start of its daemon"),
    sa.Column("home", Words, nullable=False, doc="random, of its state folder"),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("version", Words, nullable=False),
    sa.Column("labels", Words, nullable=False, doc="JSON array"),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("beat", sa.Float, nullable=False, doc="last heartbeat"),
    sa.Column("draining", sa.Boolean, nullable=False),
    sa.Column("patience", sa.Float, nullable=False, doc="seconds after its last heartbeat that it counts as alive"),
)

spending = sa.Table(
    "spending",
    metadata,
    sa.Column("day", Words, primary_key=True, doc="UTC, as 2026-11-30"),
    sa.Column("scope", Words, primary_key=True, doc="repository:NAME, user:NAME, or fleet"),
    sa.Column("host", Words, primary_key=True, doc="who spent it: hosts do not wait for one another's rows"),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("tokens", Count, nullable=False),
    sa.Column("gpu_seconds", sa.Float, nullable=False),
    sa.Column("money", sa.Float, nullable=False),
)

times = sa.Table(
    "times",
    metadata,
    sa.Column("task", Words, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("part", Words, primary_key=True, doc="queued, pool, prefill, decode, tools, checks, broker, ..."),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("tokens", Count, nullable=False),
)

clocks = sa.Table(
    "clocks",
    metadata,
    sa.Column("task", Words, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("at", sa.Float, nullable=False, doc="until when its time is in `times`"),
    sa.Column("part", Words, nullable=False, doc="where the time since then goes; empty once it ended"),
)

fleet_times = sa.Table(
    "fleet_times",
    metadata,
    sa.Column("day", Words, primary_key=True, doc="UTC"),
    sa.Column("repository", Words, primary_key=True),
    sa.Column("part", Words, primary_key=True),
    sa.Column("host", Words, primary_key=True, doc="whose lines told it"),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("tokens", Count, nullable=False),
)

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("task", Words, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("author", Words, nullable=False),
    sa.Column("text", Words, nullable=False),
    sa.Column("attempt", Words, doc="which was told it last"),
    sa.Column("key", Words, doc="idempotency key"),
    sa.UniqueConstraint("task", "key"),
)

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("cron", Words, nullable=False),
    sa.Column("timezone", Words, nullable=False),
    sa.Column("request", Words, nullable=False),
    sa.Column("user", Words, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("next", sa.Float),
    sa.Column("last", sa.Float),
    sa.Column("last_task", Words),
    sa.Column("overlap", Words, nullable=False, doc="skip or allow: a run while the last one still goes on"),
    sa.Column("missed", Words, nullable=False, doc="once or skip: runs whose time passed while nobody was there"),
    sa.Column("fired", sa.Integer, nullable=False, doc="tasks that it made"),
    sa.Column("until", sa.Float, doc="when the person's grant ends"),
    sa.Column("uses", sa.Integer, doc="tasks that the person's grant allows"),
    sa.Column("reason", Words, nullable=False, doc="what became of the last run, or why it stopped"),
)
sa.Index("schedules_by_next", schedules.c.enabled, schedules.c.next)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("scope", Words, primary_key=True, doc="user:NAME, pair:USER REPOSITORY, or floor"),
    sa.Column("taken", sa.Float, nullable=False),
)

breakers = sa.Table(
    "breakers",
    metadata,
    sa.Column("name", Words, primary_key=True, doc="repository:NAME or image:NAME"),
    sa.Column("failures", sa.Integer, nullable=False, doc="of the machinery, one after the other"),
    sa.Column("until", sa.Float, doc="nothing of it is claimed before"),
    sa.Column("trial", Words, doc="the one task that is let through to see whether it works again"),
    sa.Column("reason", Words, nullable=False),
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("ref", Words, primary_key=True),
    sa.Column("repository", Words, primary_key=True),
    sa.Column("task", Words, sa.ForeignKey("tasks.id"), nullable=False),
    sa.Column("attempt", Words, nullable=False),
    sa.Column("base", Words, nullable=False),
    sa.Column("tree", Words, nullable=False),
    sa.Column("pack", sa.LargeBinary, nullable=False, doc="what the tree needs beyond the base"),
    sa.Column("at", sa.Float, nullable=False),
)
sa.Index("snapshots_by_task", snapshots.c.task)

steps = sa.Table(
    "steps",
    metadata,
    sa.Column("task", Words, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("attempt", Words),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", Words, nullable=False),
    sa.Column("data", Words, nullable=False),
    sqlite_with_rowid=False,
)

changes = sa.Table(
    "changes",
    metadata,
    sa.Column("task", Words, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, doc="of the line of the journal that tells of the move"),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("position", Count, unique=True, doc="among all moves of all tasks; given by the first who reads it"),
)
sa.Index(
    "changes_unread",
    changes.c.at,
    sqlite_where=changes.c.position.is_(None),
    postgresql_where=changes.c.position.is_(None),
)

commits = sa.Table(
    "commits",
    metadata,
    sa.Column("writer", Words, primary_key=True, doc="random, of a process's life"),
    sa.Column("turn", Count, nullable=False, doc="its last transaction that was kept"),
    sa.Column("at", sa.Float, nullable=False),
)


def keep_private(path: Path) -> None:
    """Make the file before SQLite does, for its owner alone: capabilities are in it. Raises StoreError."""
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
    except OSError as error:
        raise StoreError(f"the database {path} cannot be used: {error.strerror}", "see daemon.state") from error
