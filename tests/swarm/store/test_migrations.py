"""A database of any released version becomes one of this version, with every row, and a copy of before is kept."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from swarm.config_database import Address
from swarm.errors import StoreError
from swarm.scheduling.facts import HostFacts
from swarm.store import migrating
from swarm.store.postgres import url_of
from swarm.store.rows import Settlement
from swarm.store.schema import VERSION, metadata
from swarm.store.store import Store
from swarm.types import AttemptResult, Conclusion, Step, TaskState

RELEASED = Path(__file__).with_name("released_v1.sql")
COPY = "swarm.db.before-0001-changed"


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A file that release 0.1 wrote, two attempts under way in it and one being delivered."""
    path = tmp_path / "swarm.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(RELEASED.read_text("utf-8"))
    return path


def rows_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of the tables that release 0.1 had."""
    found = {}
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        for table, keys in {"tasks": "id", "attempts": "id", "steps": "task, seq"}.items():
            query = f"SELECT * FROM {table} ORDER BY {keys}"  # noqa: S608 - names of ours
            found[table] = [dict(row) for row in connection.execute(query)]
    return found


def test_every_row_of_a_released_file_is_kept_as_it_was(released: Path) -> None:
    before = rows_of(released)
    migrated(released)
    after = rows_of(released)
    for table, rows in before.items():
        assert len(rows) > 5
        assert [{key: row[key] for key in rows[0]} for row in after[table]] == rows


def test_what_the_queue_needs_of_a_released_task_is_filled_in_from_its_request(released: Path) -> None:
    migrated(released)
    by_id = {row["id"]: row for row in rows_of(released)["tasks"]}
    assert {name: (row["root"], row["follows"]) for name, row in by_id.items() if row["follows"]} == {
        "second": ("done", "done"),
        "third": ("done", "second"),
        "waits-too": ("done", "done"),
    }
    assert by_id["running"]["root"] == "running"
    assert by_id["running"]["repository"] == "other"
    assert all(row["rank"] == row["queued"] - 50 * 60 and row["priority"] == 50 for row in by_id.values())
    assert all(row["host"] is None and row["lease"] is None for row in by_id.values())


async def test_an_attempt_under_way_goes_on_after_the_upgrade(released: Path) -> None:
    here = HostFacts("here", slots=10)
    async with Store(released) as store:
        (nobody,) = await store.leases.peers("here")
        assert nobody.host is None
        (delivering,) = await store.leases.take_over(nobody, here)
        assert (delivering.attempt.id, delivering.resumed) == ("delivering-1-b17b", True)
        assert (await store.view("dying")).state is TaskState.CANCELLED
        running = await store.queue.claim(here)
        assert running is not None
        assert running.resumed
        assert running.attempt.id == "running-1-673a"
        assert (running.attempt.salvage, running.attempt.spent.tokens) == ("refs/salvage/running", 4321)
        await store.record(running, "note", {"text": "on it goes"})
        lines = await store.steps("running")
        assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
        assert [line.kind for line in lines[:7]] == [
            "state", "attempt", "state", "phase_started", "edit", "salvage", "note",
        ]  # fmt: skip
        end = Settlement(TaskState.NO_CHANGE, "done", AttemptResult(conclusion=Conclusion(ending="finished")))
        assert await store.settle(running, end)
        waiting = await store.queue.claim(here)
        assert waiting is not None
        assert waiting.task.id == "waits"
        assert [view.task.id for view in await store.lineage("done")] == ["done", "second", "waits-too"]


def test_a_private_copy_of_before_is_kept_and_is_what_the_released_version_opens(released: Path) -> None:
    before = rows_of(released)
    migrated(released)
    copy = released.with_name(COPY)
    assert copy.stat().st_mode & 0o077 == 0
    assert rows_of(copy) == before
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    with closing(sqlite3.connect(released)) as connection:  # by which the released version turns it down
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_an_upgrade_that_fails_half_way_leaves_the_file_as_it_was(released: Path) -> None:
    with closing(sqlite3.connect(released)) as connection:
        connection.execute("CREATE TABLE breakers (mine INTEGER)")
    before = rows_of(released)
    with pytest.raises(StoreError):
        migrated(released)
    assert rows_of(released) == before
    with closing(sqlite3.connect(released)) as connection:
        connection.execute("DROP TABLE breakers")
    migrated(released)
    assert len(rows_of(released)["tasks"]) == len(before["tasks"])


def test_a_file_whose_copy_finds_no_room_is_not_touched(released: Path) -> None:
    before = rows_of(released)
    (released.parent / "swarm.db.part").mkdir()
    with pytest.raises(StoreError, match="could not be copied") as told:
        migrated(released)
    assert "free some space" in told.value.mend
    assert rows_of(released) == before


def test_a_file_of_this_version_is_opened_without_a_copy(tmp_path: Path) -> None:
    migrated(tmp_path / "swarm.db")
    migrated(tmp_path / "swarm.db")
    assert [file.name for file in tmp_path.iterdir() if "before" in file.name] == []


def test_a_revision_that_nobody_here_knows_is_refused_in_words(tmp_path: Path) -> None:
    migrated(tmp_path / "swarm.db")
    with closing(sqlite3.connect(tmp_path / "swarm.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"newer version \(schema 9999; this one knows 0002\)"):
        migrated(tmp_path / "swarm.db")


def test_the_revisions_come_to_the_very_tables_of_the_schema(where: Path | Address) -> None:
    engine = sa.create_engine(url_of(where) if isinstance(where, Address) else f"sqlite:///{where}")
    with engine.begin() as connection:
        command.upgrade(migrating._config(connection), "head")
        assert differences(connection) == []
    engine.dispose()


def test_a_released_file_comes_to_them_too(released: Path) -> None:
    migrated(released)
    engine = sa.create_engine(f"sqlite:///{released}")
    with engine.begin() as connection:
        assert differences(connection) == []
    engine.dispose()


def test_a_new_database_has_the_same_guards_as_one_that_was_brought_up_to_date(tmp_path: Path, released: Path) -> None:
    new = tmp_path / "new.db"
    migrated(new)
    migrated(released)
    assert triggers(new) == triggers(released) != set()


def test_the_first_revision_is_what_was_released(tmp_path: Path, released: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'first.db'}")
    with engine.begin() as connection:
        command.upgrade(migrating._config(connection), "0001")
    engine.dispose()
    assert statements(tmp_path / "first.db") == statements(released)


def migrated(path: Path) -> None:
    """Open it, as a daemon would, and close it."""
    store = Store(path)
    store._db._thread.shutdown()
    store._db._made.engine.dispose()


def differences(connection: sa.Connection) -> list[Any]:
    """What a database lacks of the schema, or has beyond it."""
    options = {"compare_type": True, "compare_server_default": True}
    return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)


def triggers(path: Path) -> set[str]:
    """What keeps a file's journal from being rewritten."""
    with closing(sqlite3.connect(path)) as connection:
        return {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")}


def statements(path: Path) -> set[str]:
    """What made a file's tables, in one spelling."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
        return {"".join(sql.split()) for (sql,) in connection.execute(query)}


async def test_where_the_time_of_released_tasks_went_is_summed_up_from_their_journals(released: Path) -> None:
    async with Store(released) as store:
        while await store.times.catch_up():
            pass
        views = await store.views(None, 100)
        for view in views:
            found = await store.times.task(view.task.id)
            moves = [line for line in await store.steps(view.task.id) if line.kind == "state"]
            ends = [*(line.at for line in moves[1:]), found.until]
            went = sum(max(0.0, end - line.at) for line, end in zip(moves, ends, strict=True) if not ended(line))
            assert found.times.seconds == pytest.approx(went)
    assert len(views) > 5


def ended(line: Step) -> bool:
    return TaskState(line.data["to"]).final
