"""A Postgres server that refuses, restarts, crashes and clashes: told in words, waited for, and nothing done twice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.errors import StoreAwayError, StoreError
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Plan
from swarm.store.schema import tasks
from swarm.store.store import Store
from swarm.store.transactions import PAUSE
from swarm.types import Budget, TaskRequest
from tests.postgres_server import Server, a_server

pytestmark = pytest.mark.postgres

PLAN = Plan(budget=Budget(), tier="small", strategy="auto")
HOST = HostFacts("here", slots=10)
SECRET = "hunter2-and-some-more"


def request(task: str, **more: str) -> TaskRequest:
    return TaskRequest(repository="demo", instructions="fix it", task=task, **more)


class TestRefusals:
    def test_a_wrong_password(self, postgres: Address) -> None:
        with pytest.raises(StoreError, match="does not take the password") as told:
            Store(replace(postgres, password=SECRET))
        assert "database_password_file" in told.value.mend
        assert SECRET not in str(told.value) + told.value.mend

    def test_no_password(self, postgres: Address) -> None:
        with pytest.raises(StoreError, match="password"):
            Store(replace(postgres, password=None))

    def test_a_database_that_is_not_there(self, postgres_server: Server) -> None:
        with pytest.raises(StoreError, match=r'database "nowhere" does not exist') as told:
            Store(postgres_server.database("nowhere"))
        assert "createdb" in told.value.mend

    def test_a_user_without_rights(self, postgres: Address, postgres_server: Server) -> None:
        postgres_server.sql("DROP ROLE IF EXISTS guest", f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'")
        with pytest.raises(StoreError, match="gives us no right") as told:
            Store(Address(postgres.url.replace("swarm@", "guest@"), SECRET))
        assert "OWNER TO" in told.value.mend

    def test_a_database_of_another_encoding(self, postgres_server: Server) -> None:
        make = "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        postgres_server.sql("DROP DATABASE IF EXISTS latin", make)
        with pytest.raises(StoreError, match="keeps text as LATIN1"):
            Store(postgres_server.database("latin"))

    def test_a_newer_version(self, postgres: Address, postgres_server: Server) -> None:
        _opened(postgres)
        postgres_server.sql("UPDATE alembic_version SET version_num = '9999'", database=postgres)
        with pytest.raises(StoreError, match="newer version"):
            Store(postgres)

    def test_a_database_that_takes_no_writes(self, postgres: Address, postgres_server: Server) -> None:
        name = postgres.url.rpartition("/")[2].partition("?")[0]
        postgres_server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with pytest.raises(StoreError, match="takes no writes"):
            Store(postgres)

    def test_nobody_listens(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            began = time.monotonic()
            with pytest.raises(StoreAwayError, match="cannot be reached") as told:
                Store(Address(f"postgresql://swarm@127.0.0.1:{taken.getsockname()[1]}/postgres", SECRET))
        assert time.monotonic() - began < 15
        assert SECRET not in str(told.value) + repr(told.value)

    def test_a_password_stays_out_of_logs_and_representations(
        self, postgres: Address, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        assert postgres.password is not None
        store = Store(postgres)
        shown = f"{postgres!r} {postgres} {store._db._made.engine!r} {store._db._made.engine.url}"
        asyncio.run(store._db.close())
        assert postgres.password not in shown + caplog.text


class TestReading:
    async def test_an_empty_database_stays_empty(self, postgres: Address, postgres_server: Server) -> None:
        with pytest.raises(StoreError, match="is empty"):
            Store(postgres, reading=True)
        assert postgres_server.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database=postgres) == [
            (0,)
        ]

    async def test_what_is_there_can_be_read_and_not_changed(self, postgres: Address) -> None:
        async with Store(postgres) as store, Store(postgres, reading=True) as reader:
            await store.add(request("t1"), PLAN)
            assert (await reader.view("t1")).task.id == "t1"
            with pytest.raises(StoreError, match="takes no writes"):
                await reader.add(request("t2"), PLAN)


async def test_two_daemons_that_start_at_once_make_the_tables_once(postgres: Address) -> None:
    stores = await asyncio.gather(*(asyncio.to_thread(Store, postgres) for _ in range(6)))
    async with contextlib.AsyncExitStack() as stack:
        for store in stores:
            await stack.enter_async_context(store)
        await stores[0].add(request("t1"), PLAN)
        assert (await stores[5].view("t1")).task.id == "t1"


async def test_transactions_that_wait_for_one_another_in_a_ring_are_both_made(postgres: Address) -> None:
    async with Store(postgres) as one, Store(postgres) as two:
        for name in ("a", "b"):
            await one.add(request(name), PLAN)
        both = threading.Barrier(2)

        def crossed(first: str, second: str) -> object:
            tries: list[int] = []

            def act(connection: sa.Connection) -> int:
                tries.append(1)
                connection.execute(tasks.update().where(tasks.c.id == first).values(grants=tasks.c.grants + 1))
                if len(tries) == 1:
                    both.wait(10)
                connection.execute(tasks.update().where(tasks.c.id == second).values(grants=tasks.c.grants + 1))
                return len(tries)

            return act

        tries = await asyncio.gather(one._db.do(crossed("a", "b")), two._db.do(crossed("b", "a")))
        assert sorted(tries) == [1, 2]
        views = await one._db.do(lambda connection: connection.execute(sa.select(tasks.c.grants)).scalars().all())
        assert views == [3, 3]


async def test_only_one_transaction_at_a_time_holds_a_name(postgres: Address) -> None:
    async with Store(postgres) as one, Store(postgres) as two:
        inside: list[int] = []
        most: list[int] = []

        def act(store: Store) -> object:
            def body(connection: sa.Connection) -> None:
                store._db.alone(connection, "queue")
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.01)
                inside.pop()

            return body

        await asyncio.gather(*(store._db.do(act(store)) for store in (one, two) * 10))
        assert max(most) == 1


async def test_who_follows_a_task_here_hears_of_what_is_written_elsewhere(postgres: Address) -> None:
    async with Store(postgres) as here, Store(postgres) as elsewhere:
        await here.add(request("t1"), PLAN)
        rung = here.bell.listen("t1")
        await asyncio.sleep(1.2)  # the first look rings for whatever was there before
        rung.clear()
        await elsewhere.remark("t1", "written elsewhere", "because")
        await asyncio.wait_for(rung.wait(), 5)
        rung.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rung.wait(), 1.5)
        here.bell.leave("t1", rung)


async def test_hosts_agree_on_the_time_by_the_server_unless_they_were_given_a_clock(postgres: Address) -> None:
    async with Store(postgres) as store, Store(postgres, clock=lambda: 7.0) as other:
        assert abs(await store._db.do(store._db.now) - time.time()) < 60
        assert await other._db.do(other._db.now) == 7.0


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server to stop and crash."""
    with a_server() as server:
        yield server


@pytest.mark.slow
class TestOutages:
    async def test_a_restart_is_waited_for_and_nothing_is_lost_or_doubled(self, own: Server) -> None:
        own.sql("DROP DATABASE IF EXISTS a WITH (FORCE)", "CREATE DATABASE a")
        async with Store(own.database("a")) as store:
            await store.add(request("t1"), PLAN)
            writing = asyncio.create_task(_remarks(store, 400))
            for how in ((), ("--crash",)):
                await asyncio.sleep(0.3)
                await asyncio.to_thread(own.call, "stop", *how)
                await asyncio.to_thread(own.call, "start", "--throwaway")
            told = await writing
            lines = await store.steps("t1")
            assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
            texts = [line.data["text"] for line in lines if line.kind == "note"]
            assert len(told) > 200
            assert sorted(set(texts), key=int) == texts  # nothing twice, all in their order
            assert set(told) <= set(texts)

    async def test_an_outage_that_lasts_is_told_and_ends_by_itself(self, own: Server) -> None:
        own.sql("DROP DATABASE IF EXISTS b WITH (FORCE)", "CREATE DATABASE b")
        async with Store(own.database("b")) as store:
            await store.add(request("t1"), PLAN)
            own.call("stop")
            began = time.monotonic()
            with pytest.raises(StoreAwayError, match="cannot be reached"):
                await store.view("t1")
            assert 4 < time.monotonic() - began < 15
            began = time.monotonic()
            for _ in range(500):  # the same outage: its patience is used up, and those who wait in line wait no longer
                with pytest.raises(StoreAwayError):
                    await store.view("t1")
            assert time.monotonic() - began < 5
            own.call("start", "--throwaway")
            await asyncio.sleep(PAUSE)
            assert (await store.view("t1")).task.id == "t1"
            await store.remark("t1", "after", "the outage")

    async def test_a_commit_whose_answer_was_lost_is_looked_for_and_not_made_again(self, own: Server) -> None:
        own.sql("DROP DATABASE IF EXISTS c WITH (FORCE)", "CREATE DATABASE c")
        with _cutting(own.database("c")) as (address, cut):
            async with Store(address) as store:
                await store.add(request("t1"), PLAN)
                for number, after in enumerate(("asked", "told") * 3):
                    cut.after = after
                    await store.remark("t1", str(number), "cut at its commit")
                texts = [line.data["text"] for line in await store.steps("t1") if line.kind == "note"]
                assert texts == [str(number) for number in range(6)]
                assert cut.made == 6


async def _remarks(store: Store, count: int) -> list[str]:
    """Write so many lines, one after the other; those that were told to be written."""
    told = []
    for number in range(count):
        with contextlib.suppress(StoreAwayError):
            await store.remark("t1", str(number), "because")
            told.append(str(number))
        await asyncio.sleep(0.01)
    return told


def _opened(where: Path | Address) -> None:
    asyncio.run(Store(where)._db.close())


class Cut:
    """When the next commit's connection is cut: before the server is asked, or before we are told."""

    after: str | None = None
    made = 0


@contextlib.contextmanager
def _cutting(address: Address) -> Iterator[tuple[Address, Cut]]:
    """A way to the server that breaks when it is told to."""
    port = sa.make_url(address.url).port
    cut = Cut()
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listener, port, cut), daemon=True).start()
    try:
        own = listener.getsockname()[1]
        yield Address(address.url.replace(f":{port}/", f":{own}/"), address.password), cut
    finally:
        listener.close()


def _accept(listener: socket.socket, port: int, cut: Cut) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", port))
            committing = threading.Event()
            for pair in ((client, server), (server, client)):
                threading.Thread(target=_relay, args=(*pair, cut, committing, pair[0] is client), daemon=True).start()


def _relay(source: socket.socket, target: socket.socket, cut: Cut, committing: threading.Event, upward: bool) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if upward and b"COMMIT\0" in data and cut.after is not None:
                if cut.after == "asked":
                    _break(cut, source, target)
                    return
                committing.set()
            if not upward and committing.is_set():
                _break(cut, source, target)
                return
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()


def _break(cut: Cut, *ends: socket.socket) -> None:
    cut.after = None
    cut.made += 1
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
            end.close()
