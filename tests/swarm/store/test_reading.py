"""A database that is only looked at: nothing is made, nothing changed, and what it holds stays out of errors."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.errors import StoreError
from swarm.store.rows import Plan
from swarm.store.schema import tasks
from swarm.store.store import Store
from swarm.types import Budget, TaskRequest

RELEASED = Path(__file__).with_name("released_v1.sql")
PLAN = Plan(budget=Budget(), tier="small", strategy="auto")


def request(task: str) -> TaskRequest:
    return TaskRequest(repository="demo", instructions="fix it", task=task, capability="cap.secret")


async def test_a_file_is_read_beside_the_daemon_that_writes_it(tmp_path: Path) -> None:
    odd = tmp_path / "a folder?with#odd%20signs"
    odd.mkdir()
    async with Store(odd / "swarm.db") as daemon:
        await daemon.add(request("t1"), PLAN)
        async with Store(odd / "swarm.db", reading=True) as reader:
            assert (await reader.view("t1")).task.id == "t1"
            await daemon.add(request("t2"), PLAN)
            assert (await reader.view("t2")).task.id == "t2"
            with pytest.raises(StoreError, match="readonly"):
                await reader.add(request("t3"), PLAN)


def test_a_file_that_is_absent_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        Store(tmp_path / "swarm.db", reading=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_an_older_version_is_not_brought_up_to_date(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "swarm.db")) as connection:
        connection.executescript(RELEASED.read_text("utf-8"))
    before = (tmp_path / "swarm.db").read_bytes()
    with pytest.raises(StoreError, match=r"older version \(schema 0001; this one knows 0002\)") as told:
        Store(tmp_path / "swarm.db", reading=True)
    assert "start the daemon" in told.value.mend
    assert (tmp_path / "swarm.db").read_bytes() == before


async def test_an_error_never_tells_what_was_being_written(tmp_path: Path) -> None:
    async with Store(tmp_path / "swarm.db") as store:
        await store.add(request("t1"), PLAN)

        def twice(connection: sa.Connection) -> None:
            row = connection.execute(sa.select(tasks)).one()
            connection.execute(tasks.insert().values(row._asdict()))

        with pytest.raises(StoreError) as told:
            await store._db.do(twice)
        chain = f"{told.value!r} {told.value.__cause__!r}"
        assert "UNIQUE" in chain
        assert "cap.secret" not in chain
