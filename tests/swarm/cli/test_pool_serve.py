"""`swarm pool serve` as a process: it says where it listens, answers, drains on a signal and stops on the second."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from pool.testing import Slow, paced, pretend_vllm
from tests.pool.gateway.conftest import HELLO

pytestmark = pytest.mark.slow


CHAT = HELLO | {"model": "default"}


@asynccontextmanager
async def serving(*words: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The running command and its base URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "swarm", "pool", "serve", "--port", "0", "--json", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            yield process, json.loads(await process.stdout.readline())["url"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def refused(*words: str) -> tuple[int, str]:
    """Exit code and words of a command that does not come to serve."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "swarm", "pool", "serve", "--json", *words), stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_it_serves_servers_named_by_url_and_drains_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    async with (
        pretend_vllm(lambda _: Slow(0.5, "done")) as server,
        serving("--endpoint", server.url, "--socket", str(path)) as (process, url),
        httpx.AsyncClient(timeout=20, trust_env=False) as client,
    ):
        listed = {card["id"] for card in (await client.get(f"{url}/models")).json()["data"]}
        assert listed >= {"default", "pretend"}
        running = asyncio.create_task(client.post(f"{url}/chat/completions", json=CHAT))
        while not server.running:  # noqa: ASYNC110  the other process gets there in its own time
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert (await running).json()["choices"][0]["message"]["content"] == "done"
        assert await process.wait() == 0
        assert not path.exists()


async def test_a_second_signal_stops_it_at_once() -> None:
    async with (
        pretend_vllm(lambda _: paced("word " * 1000, 0.05)) as server,
        serving("--endpoint", server.url) as (process, url),
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", f"{url}/chat/completions", json=CHAT | {"stream": True}) as answer,
    ):
        await anext(answer.aiter_bytes())
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_an_open_address_without_keys_is_refused_with_the_mend() -> None:
    code, said = await refused("--endpoint", "http://127.0.0.1:9", "--host", "0.0.0.0")  # noqa: S104  refused
    assert code != 0
    assert "pool.gateway.keys" in said
    assert "Traceback" not in said


async def test_an_address_that_is_none_is_told_in_words() -> None:
    code, said = await refused("--endpoint", "ftp://127.0.0.1")
    assert code != 0
    assert "http://" in said
    assert "Traceback" not in said
