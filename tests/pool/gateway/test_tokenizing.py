"""/tokenize and /detokenize through the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pool.config import EndpointConfig
from pool.gateway.keys import hashed
from pool.testing import hang, pretend_vllm
from tests.pool.gateway.conftest import House, Open

ASK = {"model": "small", "prompt": "one two three"}
KEY = {"name": "anna", "sha256": hashed("sk-anna"), "concurrent": 1, "tokens_per_day": 1000}
CARDS = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 100}]}
VOTE = {"virtual": {"v": {"kind": "vote", "tiers": ["small"]}}}


@asynccontextmanager
async def odd(house: House, tier: str, **told: tuple[int, bytes]) -> AsyncIterator[None]:
    """An endpoint that says it is vLLM, and answers those routes so."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode().lstrip("/")
        status, body = told.get(path, (200, json.dumps(CARDS).encode() if path == "v1/models" else b"{}"))
        writer.write(b"HTTP/1.1 %d x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        name = f"odd-{len(house.service.pool.status())}"
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        house.service.pool.add(EndpointConfig(name=name, url=url, tier=tier))
        async with asyncio.timeout(5):
            while next(one for one in house.service.pool.status() if one.name == name).state != "up":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield


@pytest.mark.parametrize("answer", [b"[]", b"<html>", b"{}", b'{"count": "http://10.9.9.9/x"}', b'{"count": true}'])
async def test_an_answer_that_is_none_is_the_servers_fault_and_another_one_is_asked(
    gateway: Open, answer: bytes
) -> None:
    count = {"model": "odd", "messages": [{"role": "user", "content": "x"}]}
    async with pretend_vllm() as server, gateway(server) as house, odd(house, "odd", tokenize=(200, answer)):
        for path, body in (("/tokenize", ASK | {"model": "odd"}), ("/v1/messages/count_tokens", count)):
            refused = await house.client.post(path, json=body)
            assert refused.status_code == 502, refused.text
            assert "10.9.9.9" not in refused.text
        async with odd(house, "odd", tokenize=(200, b'{"count": 3, "tokens": [1, 2, 3]}')):
            assert (await house.client.post("/v1/messages/count_tokens", json=count)).json() == {"input_tokens": 3}


async def test_a_token_id_that_a_model_does_not_have_is_the_callers_mistake(gateway: Open) -> None:
    """llama.cpp's server answers it with a 500."""
    beyond = (500, b'{"error": {"code": 500, "message": "vector::_M_range_check: __n >= this->size()"}}')
    async with pretend_vllm() as server, gateway(server) as house, odd(house, "odd", detokenize=beyond):
        refused = await house.client.post("/detokenize", json={"model": "odd", "tokens": [10**9]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tokens")


@pytest.mark.parametrize("body", [{}, {"model": "pretend"}, {"messages": [{"role": "user", "content": "one two"}]}])
async def test_tokens_are_counted_by_a_server_of_the_tier_or_model(gateway: Open, body: dict[str, Any]) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        answer = await house.client.post("/tokenize", json=ASK | body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["count"] == len(answer.json()["tokens"]) > 0
        assert answer.json()["max_model_len"] == 8192
        assert answer.headers["x-swarm-endpoint"] == "a"
        assert not server.requests, "no model worked for it"


async def test_a_full_tier_still_counts_tokens_and_charges_none(gateway: Open) -> None:
    async with pretend_vllm(lambda _: hang()) as server, gateway(server, keys=[KEY]) as house:
        auth = {"authorization": "Bearer sk-anna"}
        budget = house.service.keys.caller("Bearer sk-anna").budgets[0][1]
        assert (await house.client.post("/tokenize", json=ASK, headers=auth)).status_code == 200
        assert budget.wait(1000) == 0
        refused = await house.client.post("/tokenize", json=ASK)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "missing_api_key")
        with house.service.keys.caller("Bearer sk-anna").request(0):
            assert (await house.client.post("/tokenize", json=ASK, headers=auth)).status_code == 429
        page = (await house.client.get("/metrics")).text
        assert 'swarm_gateway_requests_total{endpoint="a",key="anna",request_class="default",status="200"} 1.0' in page


async def test_a_route_that_no_server_has_is_a_501_that_names_them(gateway: Open) -> None:
    """The pretend server has no /detokenize, as a server of another kind may not."""
    async with pretend_vllm() as server, gateway(server) as house:
        answer = await house.client.post("/detokenize", json={"model": "small", "tokens": [1]})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (501, "not_implemented")
        assert "a does not have it" in error["message"]


async def test_names_without_a_tokenizer_are_refused(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server, pool=VOTE) as house:
        for model, status in (("v", 400), ("auto", 400), ("nobody", 404), (None, 400), ("", 400)):
            answer = await house.client.post("/tokenize", json={"model": model, "prompt": "x"})
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, "model")
        assert (await house.client.get("/tokenize")).status_code == 405


async def test_another_endpoint_is_asked_where_one_does_not_answer(gateway: Open) -> None:
    async with pretend_vllm() as one, pretend_vllm() as two, gateway(one, two) as house:
        await one.stop()
        answer = await house.client.post("/tokenize", json=ASK)
        assert (answer.status_code, answer.headers["x-swarm-endpoint"]) == (200, "b")
        await two.stop()
        gone = await house.client.post("/tokenize", json=ASK)
        assert gone.status_code in (502, 503)
        assert "127.0.0.1" not in gone.text
