"""Questions of our own to one server, beside the request path: probes, canaries, tokens. What comes back is bounded.

A server may be broken or hostile: its answer is read no further than a cap, is not decompressed (a small one may
inflate to gigabytes), and is followed nowhere else, since the endpoint's key travels with each question.
"""

from __future__ import annotations

import json
from typing import Any

from pool.channel import Channel
from pool.config import EndpointConfig
from pool.connection import Connection
from pool.errors import TransientError
from pool.types import Frozen

LARGEST = 8 * 1024 * 1024  # bytes of an answer; vLLM's page of metrics has some hundred thousand
PLAIN = ("", "identity")


class UnreadError(TransientError):
    """An answer came and was left unread: it is too large, or compressed."""


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
        with self._channel.classed():
            connection = await self._channel.ask(method, path, data, headers)
            try:
                body = await self._body(connection, path)
            finally:
                self._channel.leave(connection)
        return Raw(status=connection.status, body=body, headers=connection.headers)

    async def _body(self, connection: Connection, path: str) -> bytes:
        if (coding := connection.headers.get("content-encoding", "").strip().lower()) not in PLAIN:
            told = f"its answer to {path} is coded as {coding[:40]!r}, which nobody asked for"
            raise UnreadError(f"endpoint {self._name}: {told}")
        parts, size = [], 0
        while part := await connection.read():
            parts.append(part)
            if (size := size + len(part)) > LARGEST:
                raise UnreadError(f"endpoint {self._name}: its answer to {path} is longer than {LARGEST} bytes")
        return b"".join(parts)
