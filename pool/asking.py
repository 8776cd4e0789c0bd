"""Questions of our own to one server, beside the request path: probes, canaries, tokens. What comes back is bounded.

A server may be broken or hostile: its answer is read no further than a cap, is not decompressed (a small one may
inflate to gigabytes), and is followed nowhere else, since the endpoint's key travels with each question.
"""

from __future__ import annotations

import json
from typing import Any

from pool.channel import Channel
from pool.config import EndpointConfig
from pool.types import Frozen

LARGEST = 8 * 1024 * 1024  # bytes of an answer; vLLM's page of metrics has some hundred thousand


class Raw(Frozen):
    """What a server said to a question of our own, whatever its status. ``headers`` have small letters."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


class Asking:
    """Asks one server. Its connections are its own, so that no full server makes a probe wait behind requests."""

    def __init__(self, config: EndpointConfig, connect_timeout: float) -> None:
        self._name = config.name
        self._channel = Channel(config, connect_timeout)

    async def get(self, path: str) -> Raw:
        """Raises PoolError, classed, where no answer came, and UnreadError for one too large or compressed."""
        return await self._ask("GET", path, b"", {})

    async def post(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Raw:
        """Raises as `get` does."""
        return await self._ask("POST", path, json.dumps(body).encode(), headers)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._channel.aclose()

    async def _ask(self, method: str, path: str, data: bytes, headers: dict[str, str]) -> Raw:
        answering = await self._channel.ask(method, path, data, headers)
        try:
            body = await answering.body(LARGEST)
        finally:
            answering.close()
        return Raw(status=answering.status, body=body, headers=answering.headers)
