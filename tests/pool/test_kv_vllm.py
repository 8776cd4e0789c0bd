"""A real vLLM's KV events: the view that follows from them foretells the cached tokens that its answers tell."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pool.config import EndpointConfig
from pool.kv_listener import KvListener
from pool.placement.blocks import token_chain
from tests.vllm_server import SCRIPT, _await, _end

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndpointConfig]:
    """A vLLM that publishes its KV events on a socket of its own."""
    base = tmp_path_factory.mktemp("kv")
    events, replay = (f"ipc://{base}/{name}.sock" for name in ("events", "replay"))
    told = f'{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"{events}","replay_endpoint":"{replay}"}}'
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = Path(base) / "log"
    with log.open("wb") as out:
        command = [SCRIPT, "serve", str(port), "--kv-events-config", told]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            _await(f"http://127.0.0.1:{port}", server, log)
            yield EndpointConfig(name="a", url=f"http://127.0.0.1:{port}", kv_events=events, kv_replay=replay)
        finally:
            _end(server)


async def test_view_foretells_the_cached_tokens_also_for_who_comes_late(telling: EndpointConfig) -> None:
    prompt = "The pool keeps each session where its blocks are. " * 60
    async with httpx.AsyncClient(base_url=telling.url, timeout=300) as client:

        async def ask(text: str) -> int:
            body = {"model": "smollm2", "prompt": text, "max_tokens": 2}
            answer = (await client.post("/v1/completions", json=body)).json()
            return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

        async def ids(text: str) -> list[int]:
            answer = await client.post("/tokenize", json={"model": "smollm2", "prompt": text})
            return list(answer.json()["tokens"])

        assert await ask(prompt) == 0
        listener = KvListener(telling)
        async with listener.running(), asyncio.timeout(600):
            while not len(listener.view):  # noqa: ASYNC110  a view tells nobody when it changes
                await asyncio.sleep(0.1)
            size = listener.view.block_tokens
            assert size is not None
            assert listener.view.whole
            for text in (prompt, prompt + "And then it goes on. " * 40):
                foretold = listener.view.hit(token_chain(await ids(text), size)) * size
                assert foretold == await ask(text) > 400
            other = "Something else altogether. " * 80
            assert listener.view.hit(token_chain(await ids(other), size)) == 0
            await ask(other)
            while not listener.view.hit(token_chain(await ids(other), size)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
