"""The doctor's own looks at servers: over real sockets."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pool.checkup import check_up, closes_after
from pool.config import EmbeddedConfig, EndpointConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.testing import pretend_vllm

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def server(answer: bytes, idle: float | None) -> AsyncIterator[EndpointConfig]:
    """Answers once, then closes after ``idle`` seconds, or waits to be left."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if idle is None:
            await reader.read()
        else:
            await asyncio.sleep(idle)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield EndpointConfig(name="a", url=f"http://127.0.0.1:{port}")


async def test_idle_connection_that_is_closed_is_timed() -> None:
    """llm-d/llm-d#1564, llm-d/llm-d-benchmark#1675: a keep-alive below the client's gives RST and 502."""
    async with server(OK, 0.2) as config:
        seconds = await closes_after(config, 30)
        assert seconds is not None
        assert 0.15 < seconds < 20
    async with server(OK, None) as config:
        assert await closes_after(config, 0.1) == math.inf


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), b"?"],
)
async def test_answer_that_proves_nothing_measures_nothing(answer: bytes) -> None:
    async with server(answer, 0) as config:
        assert await closes_after(config, 0.2) is None


async def test_nobody_there_measures_nothing() -> None:
    assert await closes_after(EndpointConfig(name="a", url="http://127.0.0.1:9"), 0.1) is None


@pytest.mark.slow
async def test_check_up_names_what_is_missing_and_who_is_dead() -> None:
    async with pretend_vllm(details=False, tools="refused", window=1500) as one:
        pool = PoolConfig(
            endpoints=(
                EndpointConfig(name="a", url=one.url),
                EndpointConfig(name="gone", url="http://127.0.0.1:9", tier="other"),
            ),
            connect_timeout=1,
        )
        found = await check_up(pool, idle=False)
    said = "\n".join(f"{one.level} {one.subject}: {one.what} {one.mend}" for one in found)
    assert "fail endpoint a: a window of 1500 tokens" in said
    assert "--enable-auto-tool-choice" in said
    assert "--enable-prompt-tokens-details" in said
    assert "fail endpoint gone: nobody listens" in said
    (plain,) = one.requests
    assert plain.headers["user-agent"].startswith("AsyncOpenAI")


@pytest.mark.vllm
@pytest.mark.timeout(1800)
async def test_real_vllm_shows_what_it_can_do(vllm_url: str) -> None:
    found = await check_up(PoolConfig(endpoints=(EndpointConfig(name="v", url=vllm_url),)))
    said = {finding.what.split(":")[0]: finding for finding in found}
    assert "--enable-auto-tool-choice" in said["tools"].mend
    for works in ("json_schema", "stream_usage", "cached_tokens", "logprobs"):
        assert works not in said
    assert not any("idle connection" in finding.what for finding in found)


@pytest.mark.model
@pytest.mark.timeout(300)
async def test_real_llamacpp_shows_what_it_can_do(tmp_path: Path) -> None:
    async with serve_embedded(EmbeddedConfig(parallel=2), log=tmp_path / "log", environ=os.environ) as config:
        found = await check_up(PoolConfig(endpoints=(config.model_copy(update={"tools": "auto"}),)))
    said = {finding.what.split(":")[0]: finding for finding in found}
    assert "--jinja" in said["tools"].mend
    for works in ("json_schema", "stream_usage", "cached_tokens", "logprobs"):
        assert works not in said
    assert not any("idle connection" in finding.what or "metrics" in finding.what for finding in found)
