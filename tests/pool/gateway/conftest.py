"""A gateway that listens, in front of pretend servers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from pool.config import EndpointConfig, GatewayConfig, PoolConfig
from pool.gateway.service import Service
from pool.gateway.serving import Listening, listening
from pool.router import Pool
from pool.testing import PretendServer

HELLO = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}


@dataclass
class House:
    """A gateway with what is behind it and a client in front."""

    service: Service
    here: Listening
    client: httpx.AsyncClient

    async def chat(self, body: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=HELLO | (body or {}), headers=headers)

    async def metric(self, name: str) -> float:
        """The sum of a metric's series."""
        page = (await self.client.get("/metrics")).text
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((name + "{", name + " "))
        )

    async def quiet(self) -> None:
        """Wait until nothing is in flight any more, anywhere."""
        async with asyncio.timeout(5):
            while await self.metric("swarm_gateway_in_flight") or any(  # noqa: ASYNC110  seen from outside
                one.in_flight for one in self.service.pool.status()
            ):
                await asyncio.sleep(0.01)


Open = Callable[..., Any]


@pytest.fixture
def gateway() -> Open:
    """Opens a gateway in front of servers, named a, b, c ... in the tier "small". ``limits`` are its own settings."""

    @asynccontextmanager
    async def opened(
        *servers: PretendServer,
        environ: dict[str, str] | None = None,
        tiers: tuple[str, ...] = (),
        pool: dict[str, Any] | None = None,
        **limits: Any,
    ) -> AsyncIterator[House]:
        names = zip("abcdefgh", servers, tiers or ("small",) * len(servers), strict=False)
        endpoints = tuple(EndpointConfig(name=name, url=server.url, tier=tier) for name, server, tier in names)
        own = GatewayConfig.model_validate({"port": 0, "drain_notice": 0.0, "drain_timeout": 2.0} | limits)
        told: dict[str, Any] = {"endpoints": endpoints, "gateway": own, "probe_interval": 0.1, "connect_timeout": 2.0}
        async with Pool(PoolConfig.model_validate(told | (pool or {}))) as behind:
            service = Service.of(behind, environ if environ is not None else dict(os.environ))
            async with listening(service) as here:
                base = f"http://127.0.0.1:{here.port}"
                async with httpx.AsyncClient(base_url=base, timeout=10, trust_env=False) as client:
                    for tier in dict.fromkeys(tiers or ("small",)) if servers else ():
                        await behind.ready(tier)
                    yield House(service, here, client)

    return opened
