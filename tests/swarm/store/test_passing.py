"""Faults of a database that pass: what is told of them, and that a heartbeat waits behind none of them."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.errors import StoreAwayError
from swarm.scheduling.facts import HostFacts
from swarm.store import postgres, sqlite
from swarm.store.hosts import Member
from swarm.store.postgres import url_of
from swarm.store.rows import Plan
from swarm.store.store import Store
from swarm.types import Budget, TaskRequest
from tests.contract.engine_stage import reached
from tests.postgres_server import Server

HERE = HostFacts("here", slots=9, lease=30.0)
PLAN = Plan(budget=Budget(), tier="small", strategy="auto")
STOP = (
    "SELECT pg_cancel_backend(pid) FROM pg_locks JOIN pg_database ON oid = database "
    "WHERE NOT granted AND datname = current_database()"
)
QUEUE = "SELECT pg_advisory_xact_lock(hashtextextended('queue', 0))"


def told_by_sqlite(code: int) -> sa.exc.DBAPIError:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return sa.exc.OperationalError("SELECT 1", None, error)


def told_by_postgres(state: str) -> sa.exc.DBAPIError:
    error = sqlite3.OperationalError("it failed")
    error.sqlstate = state  # type: ignore[attr-defined]
    return sa.exc.OperationalError("SELECT 1", None, error)


@contextmanager
def beside(address: Address) -> Iterator[sa.Connection]:
    """A transaction of somebody else's."""
    engine = sa.create_engine(url_of(address))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_BUSY]
)
def test_a_disk_that_is_full_or_fails_is_waited_for(code: int) -> None:
    assert isinstance(sqlite.failed(told_by_sqlite(code)), StoreAwayError)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT])
def test_a_file_that_is_damaged_is_not(code: int) -> None:
    assert not isinstance(sqlite.failed(told_by_sqlite(code)), StoreAwayError)


@pytest.mark.parametrize("state", ["57014", "55P03", "40P01", "53100", "53200", "25006", "25P03"])
def test_a_server_that_is_slow_held_up_or_full_is_waited_for(state: str) -> None:
    assert isinstance(postgres.refused(told_by_postgres(state), "there"), StoreAwayError)


@pytest.mark.parametrize("state", ["23505", "42501", "42P01", "XX001"])
def test_what_no_waiting_mends_is_told_as_such(state: str) -> None:
    assert not isinstance(postgres.refused(told_by_postgres(state), "there"), StoreAwayError)


@pytest.mark.slow
def test_whoever_has_given_up_on_a_server_says_so_and_whoever_has_not_does_not() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # and never listens
        address = Address(f"postgresql://swarm@127.0.0.1:{probe.getsockname()[1]}/swarm", None)
        with pytest.raises(StoreAwayError) as found:
            postgres.open_engine(address, "here")
    assert "tried again" not in found.value.mend
    assert "start this once more" in found.value.mend
    assert "it is tried again" in postgres.refused(told_by_postgres("57014"), "there").mend


@pytest.mark.slow
@pytest.mark.postgres
async def test_a_cancelled_statement_is_made_again(postgres: Address, postgres_server: Server) -> None:
    async with Store(postgres) as store:
        await store.add(TaskRequest(repository="demo", instructions="fix it", task="t1"), PLAN)
        with beside(postgres) as holds:
            holds.exec_driver_sql(QUEUE)
            claiming = asyncio.create_task(store.queue.claim(HERE))
            await reached(lambda: bool(postgres_server.sql(STOP, database=postgres)))
        assert await claiming is not None


@pytest.mark.slow
@pytest.mark.postgres
async def test_a_heartbeat_waits_neither_behind_a_claim_nor_for_a_task_that_is_locked(postgres: Address) -> None:
    """A host that is frozen in a claim held up the claims of all, and their heartbeats behind those."""
    me = Member(HERE, home="h", life="1")
    async with Store(postgres) as store:
        await store.hosts.register(me)
        await store.add(TaskRequest(repository="demo", instructions="fix it", task="t1"), PLAN)
        assert await store.queue.claim(HERE) is not None
        with beside(postgres) as frozen:
            frozen.exec_driver_sql(QUEUE)
            frozen.exec_driver_sql("SELECT id FROM tasks FOR UPDATE")
            claiming = asyncio.create_task(store.queue.claim(HERE))
            await asyncio.sleep(0.2)
            began = time.monotonic()
            (order,) = await store.hosts.beat(me) or ()
            assert order.task == "t1"
            assert time.monotonic() - began < 1.5
            assert not claiming.done()
        assert await claiming is None


@pytest.mark.slow
@pytest.mark.postgres
async def test_a_host_that_is_frozen_in_a_transaction_holds_its_locks_for_seconds_alone(postgres: Address) -> None:
    async with Store(postgres) as store, Store(postgres) as frozen:
        await store.add(TaskRequest(repository="demo", instructions="fix it", task="t1"), PLAN)
        tries: list[float] = []

        def stand_still(connection: sa.Connection) -> None:
            frozen._db.alone(connection, "queue")
            tries.append(time.monotonic())
            if len(tries) == 1:
                time.sleep(7.5)

        standing = asyncio.create_task(frozen._db.do(stand_still))
        await reached(lambda: bool(tries))
        assert await store.queue.claim(HERE) is not None
        assert time.monotonic() - tries[0] < 7.4
        await standing  # and what the frozen one wanted is made once it wakes
        assert len(tries) == 2
