"""Every task's moves as they happen: in one order, taken up where a reader left, bounded for readers who are slow."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from swarm import serving, tokens
from swarm.answers import Change, TaskFilter
from swarm.api import streams
from swarm.client import DaemonClient
from swarm.errors import DaemonError
from swarm.types import TaskState
from tests.swarm.api.conftest import LONG, PLAIN, House

pytestmark = pytest.mark.slow


async def taken(client: Any, count: int, wanted: TaskFilter = TaskFilter(), after: int | None = 0) -> list[Change]:  # noqa: B008
    """The first moves of a stream."""
    found: list[Change] = []
    async with asyncio.timeout(LONG), aclosing(client.changes(wanted, after)) as changes:
        async for change in changes:
            found.append(change)
            if len(found) == count:
                break
    return found


async def test_moves_of_all_tasks_come_in_one_order_with_what_a_reader_needs(house: House) -> None:
    await house.task("one", batch="b")
    await house.task("two")
    async with house.client() as client:
        await client.cancel("one")
        found = await taken(client, 3)
    assert [(move.task, move.before, move.state.value) for move in found] == [
        ("one", None, "queued"),
        ("two", None, "queued"),
        ("one", TaskState.QUEUED, "cancelled"),
    ]
    assert [move.position for move in found] == [1, 2, 3]
    assert (found[2].user, found[2].batch, found[2].repository) == ("ann", "b", "demo")
    assert found[2].reason


async def test_a_reader_takes_up_where_it_left_and_misses_nothing(house: House) -> None:
    async with house.client() as client:
        await house.task("one")
        first = await taken(client, 1)
        await house.task("two")
        await client.cancel("one")
        assert [move.task for move in await taken(client, 2, after=first[0].position)] == ["two", "one"]


async def test_a_new_reader_hears_what_comes_and_not_what_was(house: House) -> None:
    await house.task("old")
    async with house.open(), lines(house, "/v1/events") as reader, asyncio.timeout(LONG):
        told = await reader.readuntil(b"event: begin")
        await house.task("new")
        told += await reader.readuntil(b"event: change")
        told += await reader.readuntil(b"}")
    assert b'"task":"new"' in told
    assert b'"task":"old"' not in told


async def test_a_filter_leaves_out_moves_and_the_position_moves_on_all_the_same(house: House) -> None:
    async with house.client() as client:
        for number in range(5):
            await house.task(f"t{number}")
        await house.task("mine", user="bob")
        await client.cancel("mine")
        await client.cancel("t0")
        assert [move.state for move in await taken(client, 2, TaskFilter(user="bob"))] == ["queued", "cancelled"]
        ended = TaskFilter(state=(TaskState.CANCELLED,))
        assert [move.task for move in await taken(client, 2, ended)] == ["mine", "t0"]


async def test_positions_are_given_once_and_for_ever(house: House) -> None:
    for number in range(4):
        await house.task(f"t{number}")
    feed = house.store.feed
    first, _ = await feed.changes(0, TaskFilter(), 2)
    again, reached = await feed.changes(0, TaskFilter(), 100)
    assert again[:2] == first
    assert (reached, await feed.last()) == (4, 4)
    assert await feed.changes(4, TaskFilter(), 100) == ((), 4)


async def test_a_stream_outlives_a_restart_of_the_daemon(house: House) -> None:
    seen: list[str] = []

    async def read() -> None:
        seen.extend(move.task for move in await taken(client, 2))

    async with DaemonClient(house.socket) as client:
        async with house.open():
            await house.task("one")
            reading = asyncio.create_task(read())
            await asyncio.sleep(0.3)
        house.desk.closing.clear()
        await house.task("two")
        async with house.open():
            await asyncio.wait_for(reading, LONG)
    assert seen == ["one", "two"]


@asynccontextmanager
async def lines(house: House, path: str) -> AsyncIterator[Any]:
    """The raw lines of a stream."""
    reader, writer = await asyncio.open_unix_connection(str(house.socket))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: swarm\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.transport.abort()


async def test_a_quiet_stream_beats_and_tells_how_far_it_looked(house: House) -> None:
    before, streams.HEARTBEAT = streams.HEARTBEAT, 0.1
    try:
        await house.task("one")
        async with house.open(), lines(house, "/v1/events?user=nobody&after=0") as reader, asyncio.timeout(LONG):
            told = await reader.readuntil(b": still here")
            assert b"id: 1\n" in told
            assert b"event: change" not in told
    finally:
        streams.HEARTBEAT = before


async def test_one_caller_opens_only_so_many_streams_and_closing_makes_room(house: House) -> None:
    before, streams.EACH = streams.EACH, 2
    try:
        async with house.client() as client:
            async with lines(house, "/v1/events") as one, lines(house, "/v1/events") as two:
                for reader in (one, two):
                    await asyncio.wait_for(reader.readuntil(b"event: begin"), LONG)
                with pytest.raises(DaemonError, match="too many open streams"):
                    await taken(client, 1)
            await asyncio.sleep(0.2)
            await house.task("one")
            assert len(await taken(client, 1)) == 1
    finally:
        streams.EACH = before


async def test_a_reader_who_takes_nothing_is_cut(house: House) -> None:
    before, serving.TAKE_SECONDS = serving.TAKE_SECONDS, 0.3
    try:
        await house.task("loud")
        for _ in range(60):
            await house.store.remark("loud", "x" * 50_000, "")
        async with house.open():
            with socket.socket(socket.AF_UNIX) as reader:
                reader.setblocking(False)
                reader.connect(str(house.socket))
                reader.send(b"GET /v1/tasks/loud/events HTTP/1.1\r\nhost: swarm\r\n\r\n")
                ended = select.poll()
                ended.register(reader, 0)  # nothing is read: an end alone wakes it
                assert await asyncio.to_thread(ended.poll, LONG * 1000), "the connection stays"
                got = 0
                try:
                    while chunk := reader.recv(1 << 20):
                        got += len(chunk)
                except ConnectionError:
                    pass
                assert got < 3_000_000  # not all of it
    finally:
        serving.TAKE_SECONDS = before


async def test_a_burst_of_streams_is_bound_as_those_that_come_one_by_one_are(house: House) -> None:
    secret = house.token("ci", "viewer", 10_000)
    before, streams.EACH = streams.EACH, 3
    try:
        async with house.open(PLAIN) as where:
            host, port = where.split(":")
            pairs = [await asyncio.open_connection(host, int(port)) for _ in range(12)]
            for _, writer in pairs:
                writer.write(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n")
                writer.write(f"authorization: Bearer {secret}\r\n\r\n".encode())
            heads = [await asyncio.wait_for(reader.readline(), LONG) for reader, _ in pairs]
            assert sorted(head.split()[1] for head in heads) == [b"200"] * 3 + [b"429"] * 9
            for _, writer in pairs:
                writer.transport.abort()
    finally:
        streams.EACH = before


async def test_a_revoked_token_hears_nothing_more_over_a_stream_that_is_open(house: House) -> None:
    secret, other = house.token("ci", "viewer"), house.token("dee", "viewer")
    await house.task("one")
    async with (
        asyncio.timeout(LONG),
        house.open(PLAIN) as where,
        over(where, secret, "/v1/events") as moves,
        over(where, secret, "/v1/tasks/one/events") as journal,
        over(where, other, "/v1/events") as theirs,
    ):
        for reader, event in ((moves, b"begin"), (theirs, b"begin"), (journal, b"step")):
            await reader.readuntil(b"event: " + event)
        tokens.revoke(house.folder / "tokens.json", "ci")
        await house.task("secret")
        await house.store.remark("one", "secret", "")
        assert b"secret" not in await moves.readuntil(b"\r\n0\r\n\r\n")
        assert b"secret" not in await journal.readuntil(b"\r\n0\r\n\r\n")
        await theirs.readuntil(b"secret")


@asynccontextmanager
async def over(where: str, secret: str, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """What comes over TCP for a token."""
    host, port = where.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {secret}\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.transport.abort()
