"""What is handed in to be written soon goes along with the next transaction, and neither suffers for the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from swarm.config_database import Address
from swarm.errors import TaskError
from swarm.store import database
from swarm.store.database import Database

words = sa.table("words", sa.column("word"))


def writing(word: str) -> Callable[[sa.Connection], None]:
    return lambda connection: void(connection.execute(words.insert().values(word=word)))


def void(_: object) -> None:
    """An act gives no cursor away."""


def broken(connection: sa.Connection) -> None:
    writing("half")(connection)
    raise TaskError("expected bad news", "none")


@pytest.fixture
async def db(where: Path | Address) -> AsyncIterator[Database]:
    made = Database(where)
    await made.do(lambda connection: void(connection.execute(sa.text("CREATE TABLE words (word TEXT)"))))
    yield made
    await made.close()


async def written(db: Database) -> list[Any]:
    return await db.do(lambda connection: list(connection.execute(sa.select(words.c.word)).scalars()))


async def test_what_is_handed_in_is_there_for_whatever_comes_later(db: Database) -> None:
    db.soon(writing("one"))
    db.soon(writing("two"))
    assert await written(db) == ["one", "two"]


async def test_it_goes_along_in_the_same_transaction(db: Database) -> None:
    commits: list[object] = []
    event.listen(db._made.engine, "commit", commits.append)
    for number in range(10):
        db.soon(writing(str(number)))
    await db.do(writing("last"))
    assert len(commits) == 1
    assert await written(db) == [*map(str, range(10)), "last"]


async def test_it_is_written_after_a_moment_where_nothing_else_comes(db: Database) -> None:
    kept = keeping(db)
    db.soon(writing("alone"))
    await kept()
    assert db._handed_in == []
    assert await written(db) == ["alone"]


def keeping(db: Database) -> Callable[[], Any]:
    """Waits until a transaction was kept."""
    kept = asyncio.Event()
    loop = asyncio.get_running_loop()
    event.listen(db._made.engine, "commit", lambda _: loop.call_soon_threadsafe(kept.set))

    async def wait() -> None:
        async with asyncio.timeout(30 + database.LINGER):
            await kept.wait()

    return wait


async def test_it_is_written_before_the_database_is_closed(where: Path | Address) -> None:
    made = Database(where)
    await made.do(lambda connection: void(connection.execute(sa.text("CREATE TABLE words (word TEXT)"))))
    made.soon(writing("late"))
    await made.close()
    again = Database(where)
    assert await written(again) == ["late"]
    await again.close()


async def test_bad_news_of_an_act_takes_nothing_along_that_was_handed_in(db: Database) -> None:
    db.soon(writing("kept"))
    with pytest.raises(TaskError, match="expected bad news"):
        await db.do(broken)
    assert await written(db) == ["kept"]


async def test_what_cannot_be_written_is_told_and_harms_neither_its_neighbours_nor_the_act(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.soon(writing("before"))
    db.soon(broken)
    db.soon(writing("after"))
    with caplog.at_level(logging.ERROR):
        await db.do(writing("act"))
    assert "could not be written down: expected bad news" in caplog.text
    assert await written(db) == ["before", "after", "act"]
