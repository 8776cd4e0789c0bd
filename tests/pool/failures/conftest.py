"""Fixtures of the failure suite: pools over pretend servers with short patience, and requests to send through them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.router import Need, Pool
from pool.testing import PretendServer
from pool.types import ChatRequest, EndpointStatus, Message


@dataclass
class World:
    """A pool and what a test does with it."""

    pool: Pool
    servers: tuple[PretendServer, ...] = field(default=())

    def status(self, name: str) -> EndpointStatus:
        return next(status for status in self.pool.status() if status.name == name)

    async def up(self, count: int) -> None:
        await self.until(lambda: sum(status.state == "up" for status in self.pool.status()) == count)

    async def until(self, holds: Callable[[], object], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110  a server under test has no event for it
                await asyncio.sleep(0.01)

    async def relayed(self, body: dict[str, Any] | None = None, **need: Any) -> bytes:
        """What a caller of the gateway gets."""
        body = ask(body)
        needed = {"tier": "small", "session": "s", "prompt": self.pool.keys.body("small", "s", body), **need}
        async with self.pool.relay(Need(**needed), "/v1/chat/completions", body, {}) as relayed:
            if not relayed.streamed:
                return await relayed.body()
            return b"".join([event async for event in relayed])


class Worlds(Protocol):
    """Makes a pool over servers."""

    def __call__(self, *servers: PretendServer, **settings: Any) -> AbstractAsyncContextManager[World]: ...


def ask(body: dict[str, Any] | None = None) -> dict[str, Any]:
    """A streaming chat as a client of the gateway sends it."""
    said = [{"role": "user", "content": "hi"}]
    return {"model": "small", "messages": said, "stream": True, "max_tokens": 100, **(body or {})}


@pytest.fixture
def world() -> Worlds:
    """A pool over the given servers, named a, b, c ... in the tier "small", each of them up."""

    @asynccontextmanager
    async def make(*servers: PretendServer, **settings: Any) -> AsyncIterator[World]:
        per_endpoint = settings.pop("endpoint", {})
        endpoints = tuple(
            EndpointConfig.model_validate({"name": name, "url": server.url, "tier": "small", **per_endpoint})
            for name, server in zip("abcdefgh", servers, strict=False)
        )
        patience = {"probe_interval": 0.1, "connect_timeout": 2.0, "first_byte_timeout": 10.0, "canaries": False}
        config = PoolConfig.model_validate({"endpoints": endpoints, **patience, **settings})
        async with Pool(config) as pool:
            found = World(pool, servers)
            await found.up(len(servers))
            yield found

    return make


class Turns(Protocol):
    """Makes a request."""

    def __call__(self, session: str = "s", **more: Any) -> ChatRequest: ...


@pytest.fixture
def turn() -> Turns:
    """A chat turn for the tier "small"."""

    def make(session: str = "s", **more: Any) -> ChatRequest:
        said = (Message(role="user", content="hi"),)
        return ChatRequest.model_validate({"tier": "small", "session": session, "messages": said, **more})

    return make
