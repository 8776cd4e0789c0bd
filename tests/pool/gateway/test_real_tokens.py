"""Tokens counted by a real llama.cpp server through the gateway, in vLLM's words."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from pool.config import EmbeddedConfig, GatewayConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.gateway.service import Service
from pool.gateway.serving import listening
from pool.router import Pool

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

TEXT = "def add(a, b):\n    return a + b\n"


async def test_tokens_of_a_text_come_back_as_the_text_and_a_chat_is_longer_than_its_words(tmp_path: Path) -> None:
    async with serve_embedded(EmbeddedConfig(enabled=True), log=tmp_path / "llama.log") as endpoint:
        config = PoolConfig(endpoints=(endpoint,), gateway=GatewayConfig(port=0, drain_notice=0.0))
        async with Pool(config) as pool, listening(Service.of(pool, {})) as here:
            await pool.ready("embedded")
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{here.port}", timeout=60, trust_env=False
            ) as client:
                plain = {"model": "embedded", "prompt": TEXT, "add_special_tokens": False, "return_token_strs": True}
                told = (await client.post("/tokenize", json=plain)).json()
                assert "".join(told["token_strs"]) == TEXT
                assert told["count"] == len(told["tokens"]) > 5
                assert told["max_model_len"] == 2048
                back = await client.post("/detokenize", json={"model": "embedded", "tokens": told["tokens"]})
                assert back.json() == {"prompt": TEXT}
                messages = [{"role": "user", "content": TEXT}]
                chat = await client.post("/tokenize", json={"model": "embedded", "messages": messages})
                answer = await client.post(
                    "/v1/chat/completions", json={"model": "embedded", "messages": messages, "max_tokens": 1}
                )
                assert chat.json()["count"] == answer.json()["usage"]["prompt_tokens"] > told["count"]
