"""What Alembic runs around the revisions: on the caller's connection, inside the caller's transaction."""

from __future__ import annotations

from alembic import context


def run() -> None:
    """Run the revisions that are missing."""
    context.configure(connection=context.config.attributes["connection"])
    with context.begin_transaction():
        context.run_migrations()


if hasattr(context, "config"):  # Alembic is at work; else this was merely imported
    run()
