"""The pretend parts do what they promise, over real HTTP."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from pool.errors import OverloadError, PermanentError
from pool.testing import ScriptedPool, Slow, call, cut, hang, overload, pretend_vllm, reset
from pool.types import ChatRequest, CompletionRequest, Message

CHAT = {"model": "pretend", "messages": [{"role": "user", "content": "hello"}]}


def turn(**more: object) -> ChatRequest:
    return ChatRequest.model_validate(
        {"tier": "t", "session": "s", "messages": (Message(role="user", content="hi"),), **more}
    )


async def test_script_is_played_in_order_and_ends_with_a_refusal() -> None:
    async with pretend_vllm(["one", "two"]) as server, httpx.AsyncClient(base_url=server.url) as client:
        said = [(await client.post("/v1/chat/completions", json=CHAT)).json() for _ in range(3)]
    assert [said[i]["choices"][0]["message"]["content"] for i in range(2)] == ["one", "two"]
    assert "script" in said[2]["error"]["message"]
    assert [r.prompt for r in server.requests] == ["hello"] * 3


async def test_reset_reaches_the_client_before_any_byte() -> None:
    async with pretend_vllm([reset()]) as server, httpx.AsyncClient(base_url=server.url) as client:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await client.post("/v1/chat/completions", json=CHAT)


async def test_cut_shows_headers_and_then_breaks() -> None:
    async with (
        pretend_vllm([cut()]) as server,
        httpx.AsyncClient(base_url=server.url) as client,
        client.stream("POST", "/v1/chat/completions", json=CHAT) as response,
    ):
        assert response.status_code == 200
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await response.aread()


async def test_hanging_request_does_not_keep_the_server_from_stopping() -> None:
    async with asyncio.timeout(5), pretend_vllm([hang()]) as server, httpx.AsyncClient(base_url=server.url) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/chat/completions", json=CHAT, timeout=0.2)


async def test_retry_after_is_told() -> None:
    async with pretend_vllm([overload(1.5)]) as server, httpx.AsyncClient(base_url=server.url) as client:
        response = await client.post("/v1/chat/completions", json=CHAT)
    assert (response.status_code, response.headers["retry-after"]) == (429, "1.5")


async def test_stopped_server_refuses_and_starts_again_on_its_port() -> None:
    async with pretend_vllm() as server:
        url = server.url
        await server.stop()
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{url}/health")
            await server.start()
            assert (await client.get(f"{url}/health")).status_code == 200


async def test_slow_requests_overlap() -> None:
    async with pretend_vllm(lambda _: Slow(0.2)) as server, httpx.AsyncClient(base_url=server.url) as client:
        await asyncio.gather(*(client.post("/v1/chat/completions", json=CHAT) for _ in range(10)))
    assert server.peak == 10


async def test_scripted_pool_plays_choices_errors_and_functions() -> None:
    pool = ScriptedPool(["one", call("shell", command="ls"), lambda r: f"asked {r.n}", OverloadError("full")])
    assert (await pool.chat(turn())).choices[0].content == "one"
    assert (await pool.chat(turn())).choices[0].tool_calls[0].arguments == '{"command": "ls"}'
    reply = await pool.complete(CompletionRequest(tier="t", session="s", prompt="p", n=3))
    assert [choice.content for choice in reply.choices] == ["asked 3"] * 3
    with pytest.raises(OverloadError):
        await pool.chat(turn())
    with pytest.raises(PermanentError, match="script"):
        await pool.chat(turn())
    assert len(pool.requests) == 5
