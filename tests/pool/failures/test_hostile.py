"""What no honest server says: odd values, echoed keys, halves. None of it ends a probe loop or shows a key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.errors import ContextOverflowError, OverloadError, PoolError, TransientError
from pool.router import Pool
from pool.types import ChatRequest, Message
from pool.wire.stream import DONE

KEY = "sk-upstream-secret"
CHAT, MODELS, METRICS = "/v1/chat/completions", "/v1/models", "/metrics"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DEEP = b"[" * 100_000
ASKED = ChatRequest(tier="small", session="s", messages=(Message(role="user", content="hello"),), deadline=20)


def answer(status: int, body: Any, more: str = "") -> bytes:
    """A whole answer over HTTP."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n{more}"
    return f"{head}connection: close\r\n\r\n".encode() + data


def stream(*pieces: Any) -> bytes:
    """A stream of these pieces with its terminator."""
    datas = [piece if isinstance(piece, bytes) else json.dumps(piece).encode() for piece in (*pieces, DONE)]
    return STREAM + b"".join(b"data: " + data + b"\n\n" for data in datas)


def said(delta: dict[str, Any], finish: str | None = None, index: Any = 0) -> dict[str, Any]:
    """One piece."""
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


HONEST: dict[str, Sequence[bytes]] = {
    "/health": [answer(200, b"")],
    MODELS: [answer(200, {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]})],
    CHAT: [stream(said({"content": "ok"}), said({}, "stop"))],
}


@asynccontextmanager
async def pool_of(odd: Mapping[str, Sequence[bytes]]) -> AsyncIterator[Pool]:
    """A pool of one endpoint that says these bytes, part by part, and else what is honest."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65_536)
        if not head:
            writer.close()
            return
        for number, part in enumerate((HONEST | dict(odd)).get(head.split()[1].decode(), [answer(404, {})])):
            await asyncio.sleep(0.05 * bool(number))
            writer.write(part)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    endpoint = EndpointConfig(name="a", url=url, tier="small", api_key=KEY)
    told_pool = {"endpoints": (endpoint,), "probe_interval": 0.05, "canaries": False, "retries": 1}
    try:
        async with Pool(PoolConfig.model_validate(told_pool)) as pool:
            yield pool
    finally:
        server.close()


@pytest.mark.parametrize(
    "odd",
    [
        {METRICS: [answer(200, b"vllm:num_requests_running +Inf\n")]},
        {MODELS: [answer(200, DEEP)]},
        {MODELS: [answer(200, {"data": 5})]},
        {MODELS: [answer(200, {"data": [{"id": ["x"], "max_model_len": -1}]})]},
    ],
    ids=["infinite", "deep", "no list", "odd name"],
)
async def test_a_probe_loop_outlives_what_it_cannot_read(odd: dict[str, list[bytes]]) -> None:
    async with pool_of(odd) as pool:
        await asyncio.sleep(0.15)
        odd.clear()
        async with asyncio.timeout(3):
            while pool.status()[0].state != "up" or pool.status()[0].model != "m":  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.02)
        assert (await pool.chat(ASKED)).choices[0].content == "ok"


@pytest.mark.parametrize(
    "odd",
    [
        {MODELS: [answer(401, {"error": {"message": f"wrong key {KEY}"}})]},
        {CHAT: [answer(400, {"error": {"message": f"you sent Bearer {KEY}"}})]},
        {CHAT: [stream({"error": {"message": f"you sent {KEY}", "code": 500}})]},
    ],
    ids=["probe", "refusal", "in the stream"],
)
async def test_our_key_is_not_shown_by_a_server_that_echoes_it(odd: dict[str, list[bytes]]) -> None:
    async with pool_of(odd) as pool:
        with pytest.raises(PoolError) as raised:
            await pool.chat(ASKED)
        assert KEY not in str(raised.value) + repr(raised.value) + pool.status()[0].model_dump_json()


@pytest.mark.parametrize(
    "odd",
    [
        stream(DEEP),
        stream(said({"content": "a"}, "stop"), said({"content": "b"}, "stop", index="1")),
        stream(said({"tool_calls": [{"id": 5, "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls")),
        answer(200, DEEP),
    ],
    ids=["deep", "mixed samples", "odd id", "deep body"],
)
async def test_an_answer_that_cannot_be_read_is_a_passing_fault(odd: bytes) -> None:
    async with pool_of({CHAT: [odd]}) as pool:
        with pytest.raises(TransientError):
            await pool.chat(ASKED)
        assert pool.status()[0].in_flight == pool.stats().in_flight == 0


async def test_calls_without_a_number_are_kept_apart() -> None:
    calls = [{"index": None, "id": name, "function": {"name": name, "arguments": "{}"}} for name in "fg"]
    async with pool_of({CHAT: [stream(said({"tool_calls": calls}, "tool_calls"))]}) as pool:
        assert [call.name for call in (await pool.chat(ASKED)).choices[0].tool_calls] == ["f", "g"]


@pytest.mark.parametrize("odd", ["-5", "1e400", "1" + "0" * 400])
async def test_a_count_of_tokens_that_cannot_be_is_not_believed(odd: str) -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":%s}}' % (odd.encode(), odd.encode())
    async with pool_of({CHAT: [stream(said({"content": "a"}, "stop"), usage)]}) as pool:
        told = (await pool.chat(ASKED)).usage
        assert (told.prompt_tokens, told.completion_tokens) == (0, 0)


async def test_a_refusal_in_two_pieces_is_read_whole() -> None:
    words = "This model's maximum context length is 100 tokens. However, you asked for more"
    whole = answer(400, {"error": {"message": words, "code": 400}})
    async with pool_of({CHAT: [whole[:-60], whole[-60:]]}) as pool:
        with pytest.raises(ContextOverflowError):
            await pool.chat(ASKED)


async def test_a_server_that_asks_to_wait_for_days_is_asked_again_in_a_minute() -> None:
    odd = {CHAT: [answer(503, {"error": {"message": "busy"}}, "retry-after: 99999999\r\n")]}
    async with pool_of(odd) as pool:
        with pytest.raises(OverloadError):
            await pool.chat(ASKED)
        assert 0 < pool.status()[0].cooling <= 60


def test_no_password_can_stand_in_an_address_that_is_shown() -> None:
    with pytest.raises(ValueError, match="api_key"):
        EndpointConfig(name="a", url="https://user:secret@host/v1")
