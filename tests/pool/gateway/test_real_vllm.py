"""A real vLLM through the gateway where the pretend one says nothing: tokens, and logprobs of the prompt itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from pool.config import EndpointConfig, GatewayConfig, PoolConfig
from pool.gateway.service import Service
from pool.gateway.serving import listening
from pool.router import Pool

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TEXT = "def add(a, b):\n    return a + b\n"


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[httpx.AsyncClient]:
    endpoint = EndpointConfig(name="real", url=url, tier="small")
    config = PoolConfig(endpoints=(endpoint,), gateway=GatewayConfig(port=0, drain_notice=0.0), canaries=False)
    async with Pool(config) as pool, listening(Service.of(pool, {})) as here:
        await pool.ready("small")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", timeout=120, trust_env=False) as client:
            yield client


async def test_tokens_of_a_text_come_back_as_the_text(vllm_url: str) -> None:
    async with client_of(vllm_url) as client:
        told = (await client.post("/tokenize", json={"model": "small", "prompt": TEXT})).json()
        assert told["count"] == len(told["tokens"]) > 5
        back = await client.post("/detokenize", json={"model": "small", "tokens": told["tokens"]})
        assert back.json()["prompt"] == TEXT


@pytest.mark.parametrize("most", [0, 1])
async def test_the_prompts_own_logprobs_come_as_the_server_tells_them(vllm_url: str, most: int) -> None:
    """As evaluation harnesses score texts: `echo` with `logprobs`, and no answer or one token of it."""
    body: dict[str, Any] = {"prompt": TEXT, "echo": True, "logprobs": 1, "max_tokens": most, "temperature": 0}
    async with client_of(vllm_url) as client, httpx.AsyncClient(timeout=120, trust_env=False) as plain:
        model = (await plain.get(f"{vllm_url}/v1/models")).json()["data"][0]["id"]
        there = (await plain.post(f"{vllm_url}/v1/completions", json=body | {"model": model})).json()
        here = (await client.post("/v1/completions", json=body | {"model": "small"})).json()
        assert here["choices"][0]["text"].startswith(TEXT)
        assert here["choices"][0]["logprobs"]["tokens"] == there["choices"][0]["logprobs"]["tokens"]
        assert here["choices"][0]["logprobs"]["token_logprobs"][0] is None
        assert here["usage"]["prompt_tokens"] == there["usage"]["prompt_tokens"]


async def test_prompt_logprobs_come_whole_and_are_refused_in_a_stream(vllm_url: str) -> None:
    body: dict[str, Any] = {"model": "small", "prompt": TEXT, "max_tokens": 1, "prompt_logprobs": 1}
    async with client_of(vllm_url) as client:
        whole = (await client.post("/v1/completions", json=body)).json()
        assert len(whole["choices"][0]["prompt_logprobs"]) == whole["usage"]["prompt_tokens"]
        streamed = await client.post("/v1/completions", json=body | {"stream": True})
        assert streamed.status_code == 400
        assert "prompt_logprobs" in streamed.json()["error"]["message"]
