"""An attempt as one file from another machine: whole or not at all, one at a time, for whoever may look."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from swarm.answers import Exported
from swarm.api.desk import Desk
from swarm.api.exports import PIECE
from swarm.client import DaemonClient
from swarm.config_door import TcpConfig
from swarm.errors import ConfigError, DaemonError, ReplayError, TaskError, TaskNotFoundError
from tests.swarm.api.conftest import House

BIG = os.urandom(PIECE) * 3 + b"end"


def with_export(house: House, make: object) -> House:
    desk: Desk = replace(house.desk, export=make)
    return replace(house, desk=desk)


async def test_the_file_is_written_as_it_is_for_its_owner_alone_and_nothing_is_overwritten(
    house: House, tmp_path: Path
) -> None:
    async def make(wanted: str) -> tuple[Exported, bytes]:
        return Exported(attempt=f"{wanted}-1-ab12", bytes=len(BIG), unknown_secrets=("pool.key (K\u00d6Y)",)), BIG

    path = tmp_path / "out.tar.gz"
    there = with_export(house, make)
    await there.task("one")
    async with there.client() as client:
        facts = await client.export("on", path)
        assert (facts.attempt, facts.bytes, facts.unknown_secrets) == ("one-1-ab12", len(BIG), ("pool.key (K\u00d6Y)",))
        assert path.read_bytes() == BIG
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigError, match="cannot be written: File exists"):
            await client.export("one", path)
        assert path.read_bytes() == BIG


async def test_a_file_that_breaks_off_is_taken_away_again(house: House, tmp_path: Path) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = 'swarm-exported: {"attempt": "one-1-ab12", "bytes": 9}\r\ncontent-length: 9'
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\nhalf".encode())
        writer.close()

    server = await asyncio.start_unix_server(broken, tmp_path / "s")
    async with server, DaemonClient(tmp_path / "s") as client:
        with pytest.raises(DaemonError, match="does not answer"):
            await client.export("one", tmp_path / "out")
    assert not (tmp_path / "out").exists()


async def test_what_cannot_be_exported_is_told_and_leaves_the_way_free(house: House, tmp_path: Path) -> None:
    async def cannot(wanted: str) -> tuple[Exported, bytes]:
        raise ReplayError(f"attempt {wanted} cannot be replayed: it never came to work")

    there = with_export(house, cannot)
    await there.task("one")
    async with there.client() as client:
        for _ in range(2):
            with pytest.raises(TaskError, match="it never came to work"):
                await client.export("one", tmp_path / "out")
        with pytest.raises(TaskNotFoundError, match="no attempt one-7-ffff"):
            await client.export("one", tmp_path / "out", "one-7-ffff")
        with pytest.raises(TaskNotFoundError, match="no task two"):
            await client.export("two", tmp_path / "out")
    none = with_export(house, None)
    async with none.client() as client:
        with pytest.raises(TaskError, match="keeps no git folders"):
            await client.export("one", tmp_path / "out")
    assert not (tmp_path / "out").exists()


async def test_one_at_a_time_is_made(house: House, tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(wanted: str) -> tuple[Exported, bytes]:
        begun.set()
        await go_on.wait()
        return Exported(attempt=wanted, bytes=4), b"file"

    there = with_export(house, slow)
    await there.task("one")
    async with there.client() as client:
        first = asyncio.create_task(client.export("one", tmp_path / "first"))
        await begun.wait()
        with pytest.raises(DaemonError, match="another export is under way"):
            await client.export("one", tmp_path / "second")
        go_on.set()
        await first
        await client.export("one", tmp_path / "second")
    assert [(tmp_path / name).read_bytes() for name in ("first", "second")] == [b"file", b"file"]


async def test_whoever_may_look_may_have_it_and_nobody_else(house: House) -> None:
    await house.task("one")
    secret = house.token("eve", "viewer")
    async with (
        house.open(TcpConfig(address="127.0.0.1:0", plain=True)) as where,
        httpx.AsyncClient(base_url=f"http://{where}") as http,
    ):
        known = {"authorization": f"Bearer {secret}"}
        answer = await http.get("/v1/tasks/one/export", headers=known)
        assert (answer.status_code, answer.content) == (200, b"the file of one")
        assert answer.headers["content-disposition"] == 'attachment; filename="one-1-ab12.tar.gz"'
        assert (await http.get("/v1/tasks/one/export")).status_code == 401
