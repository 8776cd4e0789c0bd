"""Endpoints that are set up wrongly: requests sent elsewhere, keys refused. Others answer, and the mend is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pool.checkup import check_up
from pool.config import EndpointConfig, PoolConfig
from pool.endpoint import Endpoint
from pool.errors import MisconfiguredError
from pool.gateway.replies import refusal_of
from pool.plain_client import trouble
from pool.router import Pool
from pool.testing import error, pretend_vllm
from pool.tiers.front import Tiers
from pool.types import ChatRequest, Message
from pool.wire.faults import classify

KEY = "sk-upstream-secret"
ASKED = ChatRequest(tier="small", session="s", messages=(Message(role="user", content="hello"),), deadline=10)
LIST = b'{"data":[{"id":"m","owned_by":"vllm","max_model_len":8192}]}'


@asynccontextmanager
async def redirecting(to: Callable[[str], str], status: int = 307, all_of_it: bool = False) -> AsyncIterator[str]:
    """A server that looks well and sends every chat to another address; with ``all_of_it`` probes too."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65_536)
        path = head.split()[1].decode() if head else ""
        if path.startswith("/v1/chat") or all_of_it:
            words = f"HTTP/1.1 {status} X\r\nlocation: {to(path)}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            writer.write(words.encode())
        else:
            body = LIST if path == "/v1/models" else b""
            code = 200 if path in ("/health", "/v1/models") else 404
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (code, len(body)) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def pool_over(*urls: str, **more: Any) -> Pool:
    endpoints = [{"name": n, "url": url, "tier": "small", "api_key": KEY} for n, url in zip("ab", urls, strict=False)]
    told = {"endpoints": endpoints, "probe_interval": 0.05, "canaries": False, **more}
    return Pool(PoolConfig.model_validate(told))


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_is_not_followed_and_another_endpoint_answers(status: int) -> None:
    async with (
        pretend_vllm() as thief,
        pretend_vllm() as good,
        redirecting(lambda path: thief.url + path, status) as bad,
        pool_over(bad, good.url) as pool,
    ):
        await pool.ready("small")
        for session in "uvwxyz":
            assert (await pool.chat(ASKED.model_copy(update={"session": session}))).endpoint == "b"
        assert thief.requests == []
        misfit = pool.status()[0].misfit
        assert f"{status} it sends requests elsewhere to {thief.url}" in misfit
        assert "set url of this endpoint" in misfit
        assert pool._sender.standings.state("a") in {"open", "half-open"}  # after a while it would be tried again
        assert pool.status()[0].state == "up"


async def test_alone_it_is_its_own_failure_and_no_mistake_of_the_client() -> None:
    async with redirecting(lambda _: "https://evil.example/a?key=1#x") as bad, pool_over(bad) as pool:
        with pytest.raises(MisconfiguredError) as caught:
            await pool.chat(ASKED)
        refusal = refusal_of(caught.value)
        assert (refusal.status, refusal.code) == (502, "upstream_misconfigured")
        assert "key=1" not in refusal.message


async def test_neither_probe_nor_plain_client_nor_question_of_ours_follows() -> None:
    async with pretend_vllm() as thief, redirecting(lambda path: thief.url + path, all_of_it=True) as bad:
        config = EndpointConfig.model_validate({"name": "a", "url": bad, "tier": "small", "api_key": KEY})
        async with Endpoint(config) as endpoint:
            with pytest.raises(MisconfiguredError):
                await endpoint.probe()
            assert (await endpoint.get("/version")).status == 307
            assert (await endpoint.post("/v1/chat/completions", {"messages": []})).status == 307
        assert "307" in await trouble(config, "m")
        assert thief.requests == []


async def test_the_doctor_names_a_redirect_and_its_mend() -> None:
    async with redirecting(lambda _: "http://127.0.0.1:1/") as bad:
        endpoint = {"name": "a", "url": bad, "tier": "small"}
        found = await check_up(PoolConfig.model_validate({"endpoints": [endpoint]}), idle=False)
        (finding,) = [one for one in found if "elsewhere" in one.what]
        assert finding.level == "fail"
        assert "set url" in finding.mend


@pytest.mark.parametrize("status", [401, 403])
async def test_an_endpoint_that_wants_another_key_leaves_the_request_to_others(status: int) -> None:
    async with pretend_vllm(lambda _: error(status, "no")) as a, pretend_vllm() as b, pool_over(a.url, b.url) as pool:
        await pool.ready("small")
        replies = [await pool.chat(ASKED.model_copy(update={"session": s})) for s in "uvwxyz"]
        assert {reply.endpoint for reply in replies} == {"b"}
        assert "api_key" in pool.status()[0].misfit
        assert len(a.requests) <= 6


async def test_once_mended_it_is_forgotten() -> None:
    wrong = [True]
    async with pretend_vllm(lambda _: error(401, "no") if wrong[0] else None) as a, pool_over(a.url) as pool:
        with pytest.raises(MisconfiguredError):
            await pool.chat(ASKED)
        assert len(a.requests) == 1
        wrong[0] = False
        await pool.chat(ASKED)
        assert pool.status()[0].misfit == ""


@pytest.mark.parametrize("to", ["//[", "http://[::1", "\x00", "javascript:x", "http://h:99999/", "http://u:p@h/"])
def test_no_address_breaks_it_or_shows_a_password(to: str) -> None:
    told = str(classify("a", 302, "", {"location": to}))
    assert told.isprintable()
    assert "u:p" not in told


async def test_auto_passes_over_a_tier_whose_servers_are_all_set_up_wrongly() -> None:
    async with redirecting(lambda _: "http://127.0.0.1:1/") as bad, pretend_vllm() as good:
        endpoints = [{"name": "a", "url": bad, "tier": "small"}, {"name": "b", "url": good.url, "tier": "large"}]
        config = PoolConfig.model_validate({"endpoints": endpoints, "canaries": False, "probe_interval": 0.05})
        async with Pool(config) as pool:
            await asyncio.gather(pool.ready("small"), pool.ready("large"))
            reply = await Tiers(pool, config).chat(ASKED.model_copy(update={"tier": "auto"}))
            assert reply.tier == "large"
