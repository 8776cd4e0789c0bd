"""Tasks, attempts and the journal, as release 0.1 made them. Frozen: files with these tables are out there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ONLY_GROWS = "the journal only grows"


def upgrade() -> None:
    """Make the tables."""
    _tasks()
    _attempts()
    _steps()
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("update", "delete"):
            body = f"BEGIN SELECT RAISE(ABORT, '{_ONLY_GROWS}'); END"
            op.execute(f"CREATE TRIGGER steps_no_{verb} BEFORE {verb} ON steps {body}")
    else:
        body = f"$body$BEGIN RAISE EXCEPTION '{_ONLY_GROWS}'; END$body$"
        op.execute(f"CREATE FUNCTION steps_only_grow() RETURNS trigger LANGUAGE plpgsql AS {body}")
        before = "BEFORE UPDATE OR DELETE OR TRUNCATE ON steps FOR EACH STATEMENT EXECUTE FUNCTION steps_only_grow()"
        op.execute(f"CREATE TRIGGER steps_only_grow {before}")


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, unique=True),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("budget", sa.Text, nullable=False),
        sa.Column("grants", sa.Integer, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("strategy", sa.Text, nullable=False),
        sa.Column("carry", sa.Text),
        sa.Column("queued", sa.Float, nullable=False),
        sa.Column("not_before", sa.Float, nullable=False),
        sa.Column("cancelling", sa.Boolean, nullable=False),
    )
    op.create_index("tasks_by_state", "tasks", ["state", "queued"])


def _attempts() -> None:
    op.create_table(
        "attempts",
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
        sa.Column("tokens", sa.Integer().with_variant(sa.BigInteger(), "postgresql"), nullable=False),
        sa.Column("wall", sa.Float, nullable=False),
        sa.Column("salvage", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("verdict", sa.Text),
        sa.UniqueConstraint("task", "number"),
    )


def _steps() -> None:
    op.create_table(
        "steps",
        sa.Column("task", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Text),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
