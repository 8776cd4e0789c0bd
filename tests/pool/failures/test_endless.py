"""Servers that never stop, or say very much: every part of an answer has a bound, and a typed fault beyond it."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from pool.asking import LARGEST as PAGE
from pool.channel import Answering
from pool.config import EndpointConfig
from pool.endpoint import Endpoint
from pool.errors import PoolError, TornError, TransientError
from pool.plain_client import trouble
from pool.relay import LARGEST as ANSWER
from pool.relay import Relay
from pool.wire.assembly import MOST
from pool.wire.stream import LARGEST as EVENT
from pool.wire.stream import Event

OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
STREAM = OK + b"content-type: text/event-stream\r\n\r\n"
LIST = OK + b'\r\n{"data":[{"id":"m","owned_by":"other","max_model_len":8192}]}'
CHAT, MODELS, METRICS, HEALTH = "/v1/chat/completions", "/v1/models", "/metrics", "/health"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
KILO = b"x" * 1024


def piece(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> bytes:
    said = {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(said).encode() + b"\n\n"


@asynccontextmanager
async def endpoint(says: Mapping[str, Iterable[bytes]]) -> AsyncIterator[tuple[Endpoint, dict[str, int]]]:
    """An endpoint that says these parts for these paths, and how many bytes it could say."""
    told: dict[str, int] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65_536)
        path = head.split()[1].decode() if head else ""
        try:
            for part in ({HEALTH: [OK + b"\r\n"], MODELS: [LIST]} | dict(says)).get(path, [OK + b"\r\n"]):
                writer.write(part)
                told[path] = told.get(path, 0) + len(part)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort() if writer.transport.get_write_buffer_size() > 1 << 20 else writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with Endpoint(EndpointConfig(name="a", url=url, tier="small")) as asked:
            yield asked, told
    finally:
        server.close()


async def read(asked: Endpoint) -> None:
    relay = await asked.relay(CHAT, BODY, {})
    try:
        if not relay.streamed:
            await relay.json()
            return
        async for _ in relay.events():
            pass
    finally:
        await relay.aclose()


def fresh() -> dict[str, tuple[Iterable[bytes], int]]:
    """What never ends, and the bytes that may be heard of it."""
    return {
        "headers": (itertools.chain([OK], itertools.repeat(b"x-a: " + KILO + b"\r\n")), 8 << 20),
        "one header": (itertools.chain([OK, b"x-a: "], itertools.repeat(KILO)), 8 << 20),
        "interim answers": (itertools.repeat(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"), 8 << 20),
        "a body": (itertools.chain([OK + b"\r\n{"], itertools.repeat(KILO * 1024)), ANSWER + (8 << 20)),
        "a refusal": (itertools.chain([b"HTTP/1.1 500 No\r\n\r\n"], itertools.repeat(KILO * 64)), 8 << 20),
        "an event": (itertools.chain([STREAM, b"data: "], itertools.repeat(KILO * 256)), EVENT + (8 << 20)),
        "text": (itertools.chain([STREAM], itertools.repeat(piece({"content": "x" * (1 << 20)}))), ANSWER + (8 << 20)),
        "arguments": (
            itertools.chain(
                [STREAM],
                itertools.repeat(piece({"tool_calls": [{"index": 0, "function": {"arguments": "x" * (1 << 20)}}]})),
            ),
            ANSWER + (8 << 20),
        ),
        "after its end": (
            itertools.chain([STREAM, piece({}, "stop")], itertools.repeat(piece({"content": "x"}))),
            4 << 20,
        ),
        "samples": (
            itertools.chain([STREAM], (piece({"content": "x"}, index=at) for at in itertools.count())),
            4 << 20,
        ),
        "calls": (
            itertools.chain([STREAM], (piece({"tool_calls": [{"index": at}]}) for at in itertools.count())),
            4 << 20,
        ),
    }


@pytest.mark.parametrize("what", fresh())
async def test_what_never_ends_is_a_fault_of_the_server(what: str) -> None:
    parts, most = fresh()[what]
    async with endpoint({CHAT: parts}) as (asked, told), asyncio.timeout(20):
        with pytest.raises(TransientError):
            await read(asked)
        assert told[CHAT] <= most


BOMB = gzip.compress(bytes(256 << 20), 1)


def page(body: bytes, coding: str = "") -> list[bytes]:
    head = OK + (f"content-encoding: {coding}\r\n".encode() if coding else b"")
    return [head + b"content-length: %d\r\n\r\n" % len(body), body]


@pytest.mark.parametrize("path", [MODELS, METRICS, HEALTH, CHAT, "/version"])
async def test_a_small_answer_that_inflates_to_much_is_not_inflated(path: str) -> None:
    async with endpoint({path: page(BOMB, "gzip")}) as (asked, _):
        tracemalloc.start()
        try:
            if path == METRICS:
                assert (await asked.probe()).snapshot is None
            else:
                with pytest.raises(PoolError):
                    await (read(asked) if path == CHAT else asked.probe() if path != "/version" else asked.get(path))
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("path", [MODELS, HEALTH])
async def test_a_list_of_models_without_end_is_no_list(path: str) -> None:
    async with endpoint({path: itertools.chain([OK + b"\r\n"], itertools.repeat(KILO * 64))}) as (asked, told):
        with pytest.raises(TransientError, match="more than"):
            await asked.probe()
        assert told[path] < PAGE + (8 << 20)


async def test_metrics_without_end_are_none_and_the_server_is_used_all_the_same() -> None:
    line = b'vllm:num_requests_running{model_name="%d"} 1\n'
    says = itertools.chain([OK + b"\r\n"], (line % at * 1024 for at in itertools.count()))
    async with endpoint({METRICS: says}) as (asked, told):
        pulse = await asked.probe()
        assert pulse.served is not None
        assert pulse.snapshot is None
        assert told[METRICS] < PAGE + (8 << 20)


async def test_metrics_that_break_off_are_no_good_sign() -> None:
    async with endpoint({METRICS: [OK + b"content-length: 100\r\n\r\nvllm:"]}) as (asked, _):
        with pytest.raises(TransientError):
            await asked.probe()


class Quiet:
    """An answer that has ended but for its terminator, and is never closed by the server."""

    status, streamed = 200, True

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self._closed = asyncio.Event()

    async def events(self) -> AsyncIterator[Event]:
        for raw in (piece({"content": "x"}), piece({}, "stop")):
            yield Event("piece", raw, raw[6:-2])
        await self._closed.wait()
        raise TransientError("let go")

    def close(self) -> None:
        self._closed.set()


async def test_a_terminator_that_never_comes_is_not_awaited_for_long() -> None:
    relay = Relay("a", cast("Answering", Quiet()), ending=0.05)
    async with asyncio.timeout(2):
        with pytest.raises(TornError, match="its terminator did not come"):
            _ = [piece async for piece in relay.pieces()]
    await relay.aclose()


def test_the_bounds_leave_room_for_what_is_real() -> None:
    assert MOST >= 128
    assert min(ANSWER, EVENT, PAGE) >= 8 << 20


@pytest.mark.parametrize("what", ["a body", "an event", "text", "one header"])
async def test_the_plain_client_hears_no_more_than_a_few_tokens_take(what: str) -> None:
    parts, _ = fresh()[what]
    async with endpoint({CHAT: parts}) as (asked, told), asyncio.timeout(10):
        assert await trouble(asked.config, "m")
        assert told[CHAT] < 16 << 20
