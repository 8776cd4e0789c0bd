"""Connections that are handed in: bound to one session, one tier and one account, whatever is sent over them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from pool.config import EndpointConfig, GatewayConfig, PoolConfig
from pool.gateway.bound import Answered, Bound
from pool.gateway.handed import Handed
from pool.gateway.keys import Caller
from pool.gateway.replies import Refusal, RefusedError
from pool.gateway.service import Service
from pool.router import Pool
from pool.testing import PretendServer, hang, pretend_vllm

ASK = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}


class Purse:
    """An account of so many tokens."""

    def __init__(self, left: int = 100_000) -> None:
        self.left_over = left
        self.held = 0
        self.told: list[Answered] = []

    @contextmanager
    def holding(self, tokens: int) -> Iterator[None]:
        if self.left_over <= self.held:
            raise RefusedError(Refusal(403, "nothing is left of the budget", "budget_spent"))
        self.held += tokens
        try:
            yield
        finally:
            self.held -= tokens

    def left(self) -> str:
        return f"left: {self.left_over} tokens"

    def answered(self, answered: Answered) -> None:
        self.left_over -= answered.tokens
        self.told.append(answered)


@asynccontextmanager
async def handed(*servers: PretendServer, purse: Purse | None = None, **more: Any) -> AsyncIterator[Handed]:
    names = zip(("small", "large"), servers, strict=False)
    endpoints = tuple(EndpointConfig(name=tier, url=server.url, tier=tier) for tier, server in names)
    async with Pool(PoolConfig(endpoints=endpoints, gateway=GatewayConfig(**more))) as pool:
        for endpoint in endpoints:
            await pool.ready(endpoint.tier)
        bound = Bound("t1.1", "t1", purse or Purse())
        here = Handed(Service.of(pool, {}), Caller("sandbox", bound=bound), "small")
        try:
            yield here
        finally:
            await here.close()


async def ask(here: Handed, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """One request over a connection of its own."""
    reader, writer = await here.connect()
    raw = json.dumps(body).encode() if body is not None else b""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1:8080", f"content-length: {len(raw)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)
    async with asyncio.timeout(10):
        told = await reader.read()
    writer.close()
    head, _, rest = told.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(rest) if rest.startswith(b"{") else rest


async def test_what_is_left_can_be_asked_for_and_costs_nothing() -> None:
    async with pretend_vllm() as server, handed(server, purse=Purse(7)) as here:
        assert await ask(here, "GET", "/v1/budget") == (200, b"left: 7 tokens\n")
        assert (await ask(here, "POST", "/v1/budget", {}))[0] == 405


async def test_every_request_is_of_the_bound_session_whatever_it_says() -> None:
    async with pretend_vllm() as server, handed(server) as here:
        status, _ = await ask(
            here, "POST", "/v1/chat/completions", ASK | {"user": "me", "prompt_cache_key": "mine"},
            x_session_id="another", authorization="Bearer sk-stolen", x_user_id="somebody",
        )  # fmt: skip
        assert status == 200
        sent = server.requests[-1]
        assert sent.headers["x-session-id"] == "t1.1"
        assert "authorization" not in sent.headers


async def test_what_a_server_counted_is_told_to_the_account() -> None:
    purse = Purse()
    async with pretend_vllm(["one two three"]) as server, handed(server, purse=purse) as here:
        _, body = await ask(here, "POST", "/v1/chat/completions", ASK)
        told = purse.told[0]
        assert (told.tier, told.endpoint, told.status) == ("small", "small", "200")
        assert told.tokens == body["usage"]["total_tokens"] > 0
        assert told.usage is not None
        assert purse.held == 0


async def test_answer_is_refused_for_good_once_nothing_is_left() -> None:
    async with pretend_vllm() as server, handed(server, purse=Purse(1)) as here:
        assert (await ask(here, "POST", "/v1/chat/completions", ASK))[0] == 200
        status, body = await ask(here, "POST", "/v1/chat/completions", ASK)
        assert status == 403
        assert "nothing is left" in body["error"]["message"]
        assert len(server.requests) == 1


async def test_requests_side_by_side_overdraw_by_one_answer_at_most() -> None:
    purse = Purse(1)
    async with pretend_vllm() as server, handed(server, purse=purse) as here:
        asked = (ask(here, "POST", "/v1/chat/completions", ASK) for _ in range(8))
        assert min(status for status, _ in await asyncio.gather(*asked)) == 200
        assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["large", "auto", "pretend"])
async def test_another_tier_is_refused_and_named_nowhere(name: str) -> None:
    async with pretend_vllm() as small, pretend_vllm() as large, handed(small, large) as here:
        status, body = await ask(here, "POST", "/v1/chat/completions", ASK | {"model": name})
        assert status == 404
        assert body["error"]["message"].endswith("there are: small")
        assert (await ask(here, "POST", "/tokenize", {"model": name, "prompt": "a"}))[0] == 404
        _, models = await ask(here, "GET", "/v1/models")
        assert [card["id"] for card in models["data"]] == ["small"]
        assert large.requests == []


@pytest.mark.parametrize("path", ["/metrics", "/admin/status", "/admin/endpoints"])
async def test_what_tells_of_others_is_not_there(path: str) -> None:
    async with pretend_vllm() as server, handed(server) as here:
        assert (await ask(here, "GET", path))[0] == 404


async def test_closing_ends_what_runs_and_takes_no_more() -> None:
    purse = Purse()
    async with pretend_vllm([hang()]) as server, handed(server, purse=purse) as here:
        running = asyncio.create_task(ask(here, "POST", "/v1/chat/completions", ASK))
        async with asyncio.timeout(5):
            while not server.requests:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.01)
        await here.close()
        status, body = await running
        assert (status, body["error"]["code"]) == (503, "gateway_stopped")
        assert len(purse.told) == 1
        with pytest.raises(ConnectionRefusedError):
            await here.connect()


async def test_body_beyond_the_limit_is_refused() -> None:
    async with pretend_vllm() as server, handed(server, max_body=2048, max_bodies=1_000_000) as here:
        long = ASK | {"messages": [{"role": "user", "content": "x" * 4000}]}
        assert (await ask(here, "POST", "/v1/chat/completions", long))[0] == 413
