"""Brings a database to the tables of this version: a new one at once, an older one revision by revision (Alembic)."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from swarm.errors import StoreError
from swarm.store.schema import VERSION, keep_private, metadata

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "migrations"
_FIRST = "0001"  # what a file of before there were revisions holds

_ONLY_GROWS = "the journal only grows"
_POSTGRES_BODY = f"$body$BEGIN RAISE EXCEPTION '{_ONLY_GROWS}'; END$body$"
_EVENTS = "UPDATE OR DELETE OR TRUNCATE ON steps FOR EACH STATEMENT"
_GUARD = {
    "sqlite": tuple(
        f"CREATE TRIGGER steps_no_{verb} BEFORE {verb} ON steps BEGIN SELECT RAISE(ABORT, '{_ONLY_GROWS}'); END"
        for verb in ("update", "delete")
    ),
    "postgresql": (
        f"CREATE FUNCTION steps_only_grow() RETURNS trigger LANGUAGE plpgsql AS {_POSTGRES_BODY}",
        f"CREATE TRIGGER steps_only_grow BEFORE {_EVENTS} EXECUTE FUNCTION steps_only_grow()",
    ),
}


def migrate(connection: sa.Connection, name: str, path: Path | None = None) -> None:
    """Inside the caller's transaction, make the database what this version works with; ``name`` is for messages.

    ``path`` is the file of a SQLite database, of which a copy is kept before an old one is changed.
    Raises StoreError for a database that a newer version wrote.
    """
    found, head = _revisions(connection, name)
    if found == head:
        return
    here = MigrationContext.configure(connection)
    if found is None:
        _make(connection)
        here.stamp(_scripts(), "head")
    else:
        log.info("the database %s is brought from revision %s to %s", name, found, head)
        if path:
            _keep_copy(path, found)
        here.stamp(_scripts(), found)
        command.upgrade(_config(connection), "head")
    if path:
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")


def require_present(connection: sa.Connection, name: str) -> None:
    """Raises StoreError unless the database has the tables of this very version; nothing is changed."""
    found, head = _revisions(connection, name)
    if found is None:
        raise StoreError(f"the database {name} is empty", "start the daemon once: it makes the tables")
    if found != head:
        raise StoreError(
            f"the database {name} is of an older version (schema {found}; this one knows {head})",
            "start the daemon of this version once: it brings the tables up to date",
        )


def _revisions(connection: sa.Connection, name: str) -> tuple[str | None, str | None]:
    """What the database is at, None when it is empty, and what it should be at."""
    sqlite = connection.dialect.name == "sqlite"
    version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one()) if sqlite else 0
    found = MigrationContext.configure(connection).get_current_revision() or (_FIRST if version else None)
    head = _scripts().get_current_head()
    if version > VERSION or (found and found not in {each.revision for each in _scripts().walk_revisions()}):
        known = f"schema {found if found != _FIRST else version}; this one knows {head}"
        raise StoreError(
            f"the database {name} was written by a newer version ({known})",
            "install the newer version again, or give this one a database of its own (daemon.state, daemon.database)",
        )
    return found, head


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config(connection: sa.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _make(connection: sa.Connection) -> None:
    metadata.create_all(connection)
    for statement in _GUARD[connection.dialect.name]:
        connection.exec_driver_sql(statement)


def _keep_copy(path: Path, revision: str) -> None:
    """What the file held before; nothing is changed yet, and the caller's transaction keeps other writers out."""
    copy, part = (path.with_name(f"{path.name}.{end}") for end in (f"before-{revision}-changed", "part"))
    try:
        part.unlink(missing_ok=True)
        keep_private(part)
        with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(part)) as target:
            source.backup(target)
        part.replace(copy)
    except (OSError, sqlite3.Error) as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        mend = f"free some space in {path.parent}: a copy of the database is kept there before it is brought up to date"
        raise StoreError(f"the database {path} could not be copied: {error}", mend) from error
