"""Answers in another form than was asked for, and streams in every form that the standard allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from pool.config import EndpointConfig, GatewayConfig, PoolConfig
from pool.gateway.service import Service
from pool.gateway.serving import listening
from pool.router import Pool

LIST = b'{"data":[{"id":"m","owned_by":"other","max_model_len":8192}]}'
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
SAYS = "Hello"


def event(delta: dict[str, Any], finish: str | None = None) -> str:
    return json.dumps({"id": "1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


DATAS = [event({"role": "assistant", "content": "Hel"}), event({"content": "lo"}), event({}, "stop"),
         json.dumps({"id": "1", "model": "m", "choices": [], "usage": USAGE}), "[DONE]"]  # fmt: skip
WHOLE = {"id": "1", "model": "m", "object": "chat.completion", "usage": USAGE, "choices": [
    {"index": 0, "message": {"role": "assistant", "content": SAYS}, "finish_reason": "stop"}]}  # fmt: skip


def lines(end: str, prefix: str = "data: ", before: str = "") -> bytes:
    return "".join(f"{before}{prefix}{data}{end}{end}" for data in DATAS).encode()


def as_stream(body: bytes, *, cut: int = 1 << 20, keep: bool = False) -> Callable[[], list[bytes]]:
    """An answer that comes in parts of ``cut`` bytes; with ``keep`` its connection does not end after it."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n" if keep else b"connection: close\r\n\r\n"
    parts = [body[at : at + cut] for at in range(0, len(body), cut)]
    return lambda: [head, *(b"%x\r\n%b\r\n" % (len(part), part) if keep else part for part in parts)]


def as_json(value: Any) -> Callable[[], list[bytes]]:
    body = json.dumps(value).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return lambda: [head + body]


@asynccontextmanager
async def behind(answer: Callable[[], list[bytes]], *, open_for: float = 0.0) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's client before a gateway before a server that gives this answer to every chat."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65_536)
        path = head.split()[1] if head else b""
        try:
            if path == b"/v1/chat/completions":
                for part in answer():
                    writer.write(part)
                    await writer.drain()
                await asyncio.sleep(open_for)
            else:
                body = LIST if path == b"/v1/models" else b""
                code = 200 if path in (b"/health", b"/v1/models") else 404
                head = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
                writer.write(head % (code, len(body)) + body)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    endpoint = EndpointConfig(name="a", url=url, tier="small")
    own = GatewayConfig.model_validate({"port": 0, "drain_notice": 0.0, "drain_timeout": 1.0})
    told = {"endpoints": (endpoint,), "gateway": own, "canaries": False, "retries": 0, "probe_interval": 5}
    try:
        async with (
            Pool(PoolConfig.model_validate(told)) as pool,
            listening(Service.of(pool, {})) as here,
            httpx.AsyncClient(trust_env=False) as http,
        ):
            await pool.ready("small")
            theirs: Any = http
            base = f"http://127.0.0.1:{here.port}/v1"
            yield openai.AsyncOpenAI(base_url=base, api_key="x", http_client=theirs, max_retries=0)
    finally:
        server.close()


async def spoken(client: openai.AsyncOpenAI, *, stream: bool) -> tuple[str, str | None]:
    """What the client reads, in the form that it asked for."""
    body: Any = {"model": "small", "messages": [{"role": "user", "content": "x"}]}
    if not stream:
        reply = await client.chat.completions.with_raw_response.create(**body)
        assert reply.headers["content-type"] == "application/json"
        choice = reply.parse().choices[0]
        return choice.message.content or "", choice.finish_reason
    text, finish = "", None
    made = await client.chat.completions.create(**body, stream=True)
    assert made.response.headers["content-type"].startswith("text/event-stream")
    async for piece in made:
        for one in piece.choices:
            text, finish = text + (one.delta.content or ""), one.finish_reason or finish
    return text, finish


FORMS = {
    "plain": lines("\n"),
    "crlf": lines("\r\n"),
    "cr": lines("\r"),
    "mixed": b"".join(lines(end).split(b"data: ")[at + 1].join((b"data: ", b"")) for at, end in
                      enumerate(("\n", "\r", "\r\n", "\r", "\n"))),
    "bom": b"\xef\xbb\xbf" + lines("\n"),
    "no space": lines("\n", "data:"),
    "comments": lines("\n", before=": note\n\n: again\n"),
    "named": lines("\n", before="id: 7\nevent: message\nretry: 3\n"),
    "many lines": b"".join(b"data: %b\n\n" % data.encode().replace(b", ", b",\ndata: ") for data in DATAS),
}  # fmt: skip


async def test_every_form_of_a_stream_is_read_by_either_client() -> None:
    form = [b""]
    async with behind(lambda: list(as_stream(*form, cut=7)())) as client:
        for name, form[0] in FORMS.items():
            assert await spoken(client, stream=True) == (SAYS, "stop"), name
            assert await spoken(client, stream=False) == (SAYS, "stop"), name


async def test_an_event_split_at_every_byte_is_whole() -> None:
    end = [""]
    async with behind(lambda: list(as_stream(lines(*end), cut=1)())) as client:
        for end[0] in ("\n", "\r\n", "\r"):
            assert await spoken(client, stream=True) == (SAYS, "stop")


async def test_the_last_event_is_not_waited_for_beyond_its_end() -> None:
    async with behind(as_stream(lines("\r"), keep=True), open_for=1.5) as client, asyncio.timeout(1.4):
        assert await spoken(client, stream=True) == (SAYS, "stop")


async def test_a_whole_answer_is_told_in_the_form_that_was_asked_for() -> None:
    async with behind(as_json(WHOLE)) as client:
        for stream in (True, False):
            assert await spoken(client, stream=stream) == (SAYS, "stop")


NONE: tuple[Callable[[], list[bytes]], ...] = (
    as_json({}),
    as_json([]),
    as_json({"choices": []}),
    as_json({"error": {"message": "no", "code": 500}}),
    as_json("data: x"),
    as_stream(b""),
    as_stream(lines("\n")[:-16]),
    as_stream(b"data: [DONE]\n\n"),
    as_stream(json.dumps(WHOLE).encode()),
    lambda: [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"],
    lambda: [b"HTTP/1.1 204 No\r\nconnection: close\r\n\r\n"],
    lambda: [b"HTTP/1.1 206 Part\r\ncontent-type: text/html\r\ncontent-length: 3\r\nconnection: close\r\n\r\n<p>"],
)


async def test_what_is_no_answer_is_an_error_in_either_form() -> None:
    answer = list(NONE[:1])
    async with behind(lambda: list(answer[0]())) as client:
        for number, answer[0] in enumerate(NONE):
            for stream in (True, False):
                with pytest.raises(openai.APIError):
                    pytest.fail(f"{number}: {await spoken(client, stream=stream)}")
