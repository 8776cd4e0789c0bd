"""/tokenize and /detokenize through the gateway."""

from __future__ import annotations

from typing import Any

import pytest

from pool.gateway.keys import hashed
from pool.testing import hang, pretend_vllm
from tests.pool.gateway.conftest import Open

ASK = {"model": "small", "prompt": "one two three"}
KEY = {"name": "anna", "sha256": hashed("sk-anna"), "concurrent": 1, "tokens_per_day": 1000}
VOTE = {"virtual": {"v": {"kind": "vote", "tiers": ["small"]}}}


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
