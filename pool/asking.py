"""Questions of our own to one server, beside the request path: probes, canaries, tokens. What comes back is bounded.

A server may be broken or hostile: its answer is read no further than a cap, is not decompressed (a small one may
inflate to gigabytes), and is followed nowhere else, since the endpoint's key travels with each question.
"""

from __future__ import annotations

from typing import Any

import httpx

from pool.channel import KEEP_ALIVE
from pool.config import EndpointConfig
from pool.errors import TransientError
from pool.types import Frozen

LARGEST = 8 * 1024 * 1024  # bytes of an answer; vLLM's page of metrics has some hundred thousand
PLAIN = ("", "identity")


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
        key = config.api_key
        headers = {} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"}
        self._name = config.name
        self._http = httpx.AsyncClient(
            base_url=config.url,
            timeout=httpx.Timeout(None, connect=connect_timeout),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE),
            headers=headers | {"accept-encoding": "identity"},
            trust_env=False,
            follow_redirects=False,
        )

    async def get(self, path: str) -> Raw:
        """Raises httpx.HTTPError where no answer came, TransientError for one that is too large or compressed."""
        return await self._ask("GET", path)

    async def post(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Raw:
        """Raises as `get` does."""
        return await self._ask("POST", path, json=body, headers=headers)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def _ask(self, method: str, path: str, **more: Any) -> Raw:
        async with self._http.stream(method, path, **more) as answer:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            if (coding := headers.get("content-encoding", "").strip().lower()) not in PLAIN:
                told = f"its answer to {path} is coded as {coding[:40]!r}, which nobody asked for"
                raise TransientError(f"endpoint {self._name}: {told}")
            parts, size = [], 0
            async for part in answer.aiter_raw():
                parts.append(part)
                if (size := size + len(part)) > LARGEST:
                    told = f"its answer to {path} is longer than {LARGEST} bytes"
                    raise TransientError(f"endpoint {self._name}: {told}")
            return Raw(status=answer.status_code, body=b"".join(parts), headers=headers)
