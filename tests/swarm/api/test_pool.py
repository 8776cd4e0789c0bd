"""A running pool asked and changed over its unix socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from pool.config import EndpointConfig, PoolConfig
from pool.errors import PoolConfigError
from pool.placement.view import Prompt
from pool.router import Pool
from pool.testing import pretend_vllm
from pool.trip import Need
from pool.types import ChatRequest, Message
from swarm.api.application import framed
from swarm.api.pool import routes
from swarm.errors import DaemonError
from swarm.pool_client import DAEMON, PoolClient
from swarm.serving import http_server
from tests.swarm.api.conftest import LONG


@asynccontextmanager
async def door(path: Path, *endpoints: EndpointConfig) -> AsyncIterator[tuple[PoolClient, Pool]]:
    """A real pool behind the routes, and a client of it."""
    settings = PoolConfig(endpoints=endpoints, probe_interval=0.05, connect_timeout=1, canaries=False)
    async with Pool(settings) as pool:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            server = http_server(framed(routes(pool)))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                async with PoolClient(path, DAEMON, "the daemon") as client:
                    yield client, pool
            finally:
                server.should_exit = True
                await serving


async def raw(path: Path, method: str, where: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=str(path)), base_url="http://x", timeout=LONG
    ) as client:
        return await client.request(method, where, **more)


def turn(tier: str) -> ChatRequest:
    return ChatRequest(tier=tier, session="s", messages=(Message(role="user", content="hi"),), deadline=5)


async def test_server_joins_works_drains_and_leaves(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with pretend_vllm() as one, pretend_vllm() as two:  # noqa: SIM117  the second needs the first
        async with door(path, EndpointConfig(name="a", url=one.url)) as (client, pool):
            await client.add(EndpointConfig(name="late", url=two.url, tier="late", api_key=SecretStr("s3cret")))
            await pool.ready("late", 5)
            assert (await pool.chat(turn("late"))).endpoint == "late"
            assert two.requests[0].headers["authorization"] == "Bearer s3cret"
            seen = await client.status()
            assert [status.name for status in seen] == ["a", "late"]
            assert "s3cret" not in str(seen)
            assert await client.drain("late", within=2) is True
            assert (await client.status())[1].draining
            await client.admit("late")
            assert not (await client.status())[1].draining
            await client.remove("late")
            assert [status.name for status in await client.status()] == ["a"]


async def test_drain_answers_at_once_while_a_request_runs_and_the_request_ends_well(tmp_path: Path) -> None:
    """vllm-project/production-stack#601: drain stops new work at once, and lets the old end."""
    async with pretend_vllm() as one:  # noqa: SIM117  the second needs the first
        async with door(tmp_path / "d.sock", EndpointConfig(name="a", url=one.url)) as (client, pool):
            await pool.ready("default", 5)
            one.hold()
            running = asyncio.create_task(pool.chat(turn("default")))
            async with asyncio.timeout(5):
                while not one.running:  # noqa: ASYNC110  the server has no event for us
                    await asyncio.sleep(0.01)
            assert await client.drain("a") is False
            one.release()
            assert (await running).endpoint == "a"
            assert await client.drain("a", within=2) is True


async def test_refusals_have_their_reason_and_their_status(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with door(path, EndpointConfig(name="a", url="http://127.0.0.1:9")) as (client, _):
        with pytest.raises(PoolConfigError, match="'a' already"):
            await client.add(EndpointConfig(name="a", url="http://127.0.0.1:9"))
        for call in (client.drain("nobody"), client.admit("nobody"), client.remove("nobody")):
            with pytest.raises(PoolConfigError, match="no endpoint 'nobody'"):
                await call
        with pytest.raises(PoolConfigError, match="not remembered"):
            await client.explain("r/../1")
        assert (await raw(path, "POST", "/v1/pool/endpoints", content=b"{")).status_code == 422
        bad = await raw(path, "POST", "/v1/pool/endpoints", json={"name": "b", "url": "file:///etc/passwd"})
        assert bad.status_code == 422
        assert "http://" in json.loads(bad.text)["why"]


async def test_caller_cannot_have_the_daemon_send_a_variable_of_its_own_away(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with pretend_vllm() as thief, door(path):
        body = {"name": "thief", "url": thief.url, "api_key_env": "HOME"}
        assert (await raw(path, "POST", "/v1/pool/endpoints", json=body)).status_code == 422
        await asyncio.sleep(0.1)
        assert thief.probed == 0


async def test_explanation_comes_as_it_was_decided(tmp_path: Path) -> None:
    async with pretend_vllm() as one:  # noqa: SIM117  the second needs the first
        async with door(tmp_path / "d.sock", EndpointConfig(name="a", url=one.url)) as (client, pool):
            need = Need(tier="default", session="s", prompt=Prompt(tokens=4), request="r/1")
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
            async with pool.relay(need, "/v1/chat/completions", body, {}) as relayed:
                assert await relayed.body()
            decision = pool.explain("r/1")
            assert decision is not None
            told = await client.explain("r/1")
            assert (told.endpoint, told.reason) == ("a", decision.reason)
            assert [row.endpoint for row in told.rows] == [row.endpoint for row in decision.rows]


async def test_nobody_at_the_socket_is_said_in_words(tmp_path: Path) -> None:
    async with PoolClient(tmp_path / "none.sock", DAEMON, "the daemon") as client:
        with pytest.raises(DaemonError, match="does not answer"):
            await client.status()
