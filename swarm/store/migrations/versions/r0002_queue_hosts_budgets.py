"""The queue's columns and the tables of hosts, budgets, times, messages, schedules and snapshots.

What a task of before knows of them is in its request, and is filled in from there.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_AGEING = 60.0  # seconds in the queue for a point of priority, as `rows.rank` counted at this revision
_PRIORITY = 50
_COUNT = sa.Integer().with_variant(sa.BigInteger(), "postgresql")


def upgrade() -> None:
    """Add what is new, then fill it in."""
    _widen_tasks()
    _widen_attempts()
    _hosts()
    _budgets()
    _times()
    _words()
    _changes()
    _guards()
    _fill()


def _widen_tasks() -> None:
    for column in (
        sa.Column("pausing", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("repository", sa.Text, nullable=False, server_default=""),
        sa.Column("user", sa.Text, nullable=False, server_default=""),
        sa.Column("root", sa.Text, nullable=False, server_default=""),
        sa.Column("follows", sa.Text),
        sa.Column("batch", sa.Text),
        sa.Column("schedule", sa.Text),
        sa.Column("priority", sa.Integer, nullable=False, server_default=str(_PRIORITY)),
        sa.Column("rank", sa.Float, nullable=False, server_default="0"),
        sa.Column("mutex", sa.Text),
        sa.Column("expires", sa.Float),
        sa.Column("host", sa.Text),
        sa.Column("lease", sa.Float),
        sa.Column("failure", sa.Text),
        sa.Column("lane", sa.Text, nullable=False, server_default=""),
        sa.Column("waiting", sa.Integer, nullable=False, server_default="0"),
    ):
        op.add_column("tasks", column)
    op.drop_index("tasks_by_state", "tasks")
    op.create_index("tasks_by_state", "tasks", ["state", "rank"])
    op.create_index("tasks_by_lane", "tasks", ["state", "waiting", "lane", "rank", "created"])
    op.create_index("tasks_by_delay", "tasks", ["state", "not_before"])
    op.create_index("tasks_by_expiry", "tasks", ["state", "expires"])
    op.create_index("tasks_by_repository", "tasks", ["repository", "strategy", "updated"])
    op.create_index("tasks_by_root", "tasks", ["root"])
    op.create_index("tasks_by_created", "tasks", ["created", "id"])
    op.create_index("tasks_by_batch", "tasks", ["batch"])


def _widen_attempts() -> None:
    for column in (
        sa.Column("continues", sa.Text),
        sa.Column("point", sa.Integer),
        sa.Column("host", sa.Text),
        sa.Column("gpu_seconds", sa.Float, nullable=False, server_default="0"),
        sa.Column("money", sa.Float, nullable=False, server_default="0"),
        sa.Column("prompt_tokens", _COUNT, nullable=False, server_default="0"),
        sa.Column("cached_tokens", _COUNT, nullable=False, server_default="0"),
        sa.Column("failure", sa.Text),
    ):
        op.add_column("attempts", column)


def _hosts() -> None:
    op.create_table(
        "needs",
        sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("needed", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
    )
    op.create_index("needs_by_needed", "needs", ["needed"])
    op.create_table(
        "hosts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("life", sa.Text, nullable=False),
        sa.Column("home", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("beat", sa.Float, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("patience", sa.Float, nullable=False),
    )


def _budgets() -> None:
    op.create_table(
        "turns",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("taken", sa.Float, nullable=False),
    )
    op.create_table(
        "spending",
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("tokens", _COUNT, nullable=False),
        sa.Column("gpu_seconds", sa.Float, nullable=False),
        sa.Column("money", sa.Float, nullable=False),
    )


def _times() -> None:
    for name, keys in {
        "times": (
            sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
            sa.Column("part", sa.Text, primary_key=True),
        ),
        "fleet_times": (
            sa.Column("day", sa.Text, primary_key=True),
            sa.Column("repository", sa.Text, primary_key=True),
            sa.Column("part", sa.Text, primary_key=True),
            sa.Column("host", sa.Text, primary_key=True),
        ),
    }.items():
        op.create_table(
            name,
            *keys,
            sa.Column("seconds", sa.Float, nullable=False),
            sa.Column("count", sa.Integer, nullable=False),
            sa.Column("tokens", _COUNT, nullable=False),
        )
    op.create_table(
        "clocks",
        sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("part", sa.Text, nullable=False),
    )


def _words() -> None:
    op.create_table(
        "messages",
        sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("attempt", sa.Text),
        sa.Column("key", sa.Text),
        sa.UniqueConstraint("task", "key"),
    )
    op.create_table(
        "schedules",
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
        sa.Column("overlap", sa.Text, nullable=False),
        sa.Column("missed", sa.Text, nullable=False),
        sa.Column("fired", sa.Integer, nullable=False),
        sa.Column("until", sa.Float),
        sa.Column("uses", sa.Integer),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_index("schedules_by_next", "schedules", ["enabled", "next"])


def _changes() -> None:
    op.create_table(
        "changes",
        sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("position", _COUNT, unique=True),
    )
    unread = sa.text("position IS NULL")
    op.create_index("changes_unread", "changes", ["at"], sqlite_where=unread, postgresql_where=unread)
    op.execute("INSERT INTO changes (task, seq, at) SELECT task, seq, at FROM steps WHERE kind = 'state'")


def _guards() -> None:
    op.create_table(
        "commits",
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("turn", _COUNT, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "breakers",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("until", sa.Float),
        sa.Column("trial", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("ref", sa.Text, primary_key=True),
        sa.Column("repository", sa.Text, primary_key=True),
        sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), nullable=False),
        sa.Column("attempt", sa.Text, nullable=False),
        sa.Column("base", sa.Text, nullable=False),
        sa.Column("tree", sa.Text, nullable=False),
        sa.Column("pack", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("snapshots_by_task", "snapshots", ["task"])


def _fill() -> None:
    tasks = sa.table(
        "tasks",
        *(sa.column(name) for name in ("id", "request", "queued", "created", "repository", "root", "follows", "rank")),
    )
    connection = op.get_bind()
    roots: dict[str, str] = {}
    found = connection.execute(sa.select(tasks.c.id, tasks.c.queued, tasks.c.request).order_by(tasks.c.created)).all()
    for task, queued, request in found:
        asked = json.loads(request)
        follows = asked.get("follows")
        roots[task] = roots.get(follows, task)
        values = {
            "repository": asked["repository"],
            "follows": follows,
            "root": roots[task],
            "rank": queued - _PRIORITY * _AGEING,
        }
        connection.execute(tasks.update().where(tasks.c.id == task).values(values))
