"""Clients that say little for long, say too much, or are too many: on TCP and on the owner's socket."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from pool.config import GatewayConfig
from pool.gateway.serving import room
from pool.testing import hang, pretend_vllm

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def piped(house: Any, count: int = 1, path: str = "") -> AsyncIterator[list[Pipe]]:
    """Connections of their own, on TCP or on a unix socket."""
    opened = []
    try:
        for _ in range(count):
            to = asyncio.open_unix_connection(path) if path else asyncio.open_connection("127.0.0.1", house.here.port)
            opened.append(await to)
        yield opened
    finally:
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in opened), return_exceptions=True)


async def ended(pipe: Pipe) -> bytes:
    """All that comes until the gateway ends it."""
    async with asyncio.timeout(3):
        with contextlib.suppress(OSError):
            return await pipe[0].read()
    return b""


async def heard(pipe: Pipe) -> bytes:
    """What comes within a moment."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            return await pipe[0].read(4096)
    return b""


def keyed(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} for name in names]


async def test_bodies_of_many_are_bounded_together_and_the_room_comes_back(gateway: Any) -> None:
    async with gateway(max_body=40_000, max_bodies=100_000) as house, piped(house, 3) as pipes:
        for _, writer in pipes:
            writer.write(HEAD % 40_000 + b" " * 39_000)
            await writer.drain()
        told = b"".join([await ended(pipe) for pipe in pipes[2:]])
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in told
        assert b"max_bodies" in told
        assert house.service.held.bytes <= 100_000
        for _, writer in pipes[:2]:
            writer.transport.abort()
        async with asyncio.timeout(2):
            while house.service.held.bytes:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.01)


async def test_one_key_leaves_half_to_the_others(gateway: Any) -> None:
    async with (
        pretend_vllm(lambda asked: hang() if "slow" in str(asked) else "ok") as server,
        gateway(server, keys=keyed("anna", "ben"), max_body=40_000, max_bodies=80_000) as house,
    ):
        slow = {"messages": [{"role": "user", "content": "slow" + "x" * 30_000}]}
        first = asyncio.create_task(house.chat(slow, authorization="Bearer anna"))
        async with asyncio.timeout(3):
            while house.service.held.bytes < 30_000:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.01)
        again = await house.chat(slow, authorization="Bearer anna")
        assert (again.status_code, again.headers["retry-after"]) == (429, "1")
        assert (await house.chat({}, authorization="Bearer ben")).status_code == 200
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await house.quiet()
        assert house.service.held.bytes == 0


async def test_a_body_of_mere_brackets_is_refused_before_it_is_read(gateway: Any) -> None:
    async with gateway(max_body=2_000_000, max_bodies=4_000_000) as house:
        raw = b'{"model": "m", "messages": [' + b"[]," * 500_000 + b"[]]}"
        answer = await house.client.post("/v1/chat/completions", content=raw)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert house.service.held.bytes == 0


def test_settings_leave_room_for_one_body() -> None:
    with pytest.raises(ValidationError, match="max_bodies"):
        GatewayConfig(max_body=2048, max_bodies=2047)
    with pytest.raises(ValidationError, match="max_bodies"):
        GatewayConfig.model_validate({"max_body": 2048, "max_bodies": 4095, "keys": keyed("a", "b")})


async def test_the_connection_that_rested_longest_makes_room_for_a_new_one(gateway: Any) -> None:
    async with gateway(max_connections=8) as house, piped(house, 12) as pipes:
        started = time.monotonic()
        assert await ended(pipes[0]) == b""
        assert (await house.client.get("/v1/models")).status_code == 200
        assert house.here.connections <= 8
        assert time.monotonic() - started < 20


async def test_where_all_are_at_work_a_new_one_is_told_so(gateway: Any) -> None:
    async with (
        pretend_vllm(lambda _: hang()) as server,
        gateway(server, max_connections=3, socket=None) as house,
        piped(house, 3) as pipes,
    ):
        body = json.dumps({"model": "small", "messages": [{"role": "user", "content": "x"}]}).encode()
        for _, writer in pipes:
            writer.write(HEAD % len(body) + body)
        async with asyncio.timeout(3):
            while server.running < 3:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.01)
        async with piped(house) as (late,):
            told = await ended(late)
            assert told.startswith(b"HTTP/1.1 503 ")
            assert b"max_connections" in told


async def test_one_key_with_half_sent_bodies_leaves_half_of_the_connections_to_the_others(gateway: Any) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer anna\r\n\r\n")
    async with (
        pretend_vllm() as server,
        gateway(server, keys=keyed("anna", "ben"), max_connections=8, socket=None) as house,
        piped(house, 8) as pipes,
    ):
        for _, writer in pipes:
            writer.write(head % 100 + b"{")
        told = b"".join(await asyncio.gather(*(heard(pipe) for pipe in pipes)))
        assert told.count(b"HTTP/1.1 429 ") == told.count(b"max_connections") == 4
        assert (await house.chat({}, authorization="Bearer ben")).status_code == 200
        assert (await house.chat({}, authorization="Bearer anna")).status_code == 429
        for _, writer in pipes:
            writer.transport.abort()
        await asyncio.sleep(0.05)
        assert (await house.chat({}, authorization="Bearer anna")).status_code == 200
        assert (await house.chat({}, authorization="Bearer anna")).status_code == 200


@pytest.mark.parametrize("local", [False, True])
async def test_a_slow_head_or_body_is_cut_on_either_door(gateway: Any, tmp_path: Path, local: bool) -> None:
    path = str(tmp_path / "s")
    async with gateway(socket=path, header_timeout=0.2, body_timeout=0.2) as house:
        async with piped(house, 3, path if local else "") as (silent, drip, body):
            drip[1].write(b"GET /health HT")
            body[1].write(HEAD % 100 + b"{")
            assert await ended(silent) == b""
            assert await ended(drip) == b""
            assert (await ended(body)).startswith(b"HTTP/1.1 408 ")
        assert not house.service.held.bytes


def test_open_files_bound_connections_as_well() -> None:
    assert room(8192, files=1024) == 512
    assert room(100, files=1024) == 100
    assert room(8192, files=4) == 16
    assert room(3, files=4) == 3
    assert room(8192, files=resource.RLIM_INFINITY) == 8192


async def test_the_owner_gets_in_where_tcp_is_full(gateway: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with (
        gateway(max_connections=2, socket=path) as house,
        piped(house, 6),
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=path), base_url="http://x") as owner,
    ):
        assert (await owner.get("/admin/status")).status_code == 200
        assert (await owner.post("/admin/endpoints", content=b" " * 100_000)).status_code == 413
        for within in ("-1", "nan", "inf", "soon", "1e9"):
            odd = await owner.post(f"/admin/endpoints/a/drain?within={within}")
            assert (odd.status_code, odd.json()["error"]["param"]) == (400, "within")


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [("x-session-id", "s" * 1_000_000, 431), ("x-session-id", "s" * 2000, 400), ("x-odd", "s" * 1_000_000, 431)],
)
async def test_names_of_a_megabyte_are_refused_clearly(gateway: Any, name: str, value: str, status: int) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        answer = await house.chat({}, **{name: value})
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
        model = await house.chat({"model": "m" * 1_000_000})
        assert (model.status_code, model.json()["error"]["param"]) == (400, "model")
        assert len(model.content) < 1000
