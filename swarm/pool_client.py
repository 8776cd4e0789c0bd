"""A running pool from the caller's side: the daemon's, or a gateway's, over its unix socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from pool.config import EndpointConfig
from pool.errors import PoolConfigError, PoolError
from pool.placement.view import Decision
from pool.types import EndpointStatus
from swarm.errors import DaemonError
from swarm.socket_client import SocketClient

T = TypeVar("T")
DAEMON, GATEWAY = "/v1/pool", "/admin"
START = "start it with: swarm daemon; a gateway (swarm pool serve) is found by the [pool.gateway] socket of swarm.toml"

_STATUSES = TypeAdapter(tuple[EndpointStatus, ...])
_DECISION = TypeAdapter(Decision)


class PoolClient(SocketClient):
    """A connection to whoever serves a pool behind ``socket``; use it with ``async with``.

    ``prefix`` is DAEMON or GATEWAY, ``whose`` its name for people, ``timeout`` bounds each call in seconds. Every
    method raises DaemonError when nobody answers, and PoolConfigError for a call that is turned down.
    """

    def __init__(self, socket: Path, prefix: str, whose: str, *, timeout: float = 10.0) -> None:
        super().__init__(socket, "pool", timeout)
        self.whose = whose
        self._prefix = prefix
        self._timeout = timeout

    async def status(self) -> tuple[EndpointStatus, ...]:
        """Where each endpoint stands."""
        told = await self._call("GET", "/status")
        return self._read(_STATUSES, told.get("endpoints", []))

    async def explain(self, request: str) -> Decision:
        """Why a request went where it went."""
        told = await self._call("GET", f"/explain/{quote(request, safe='')}")
        return self._read(_DECISION, told.get("decision"))

    async def add(self, config: EndpointConfig) -> None:
        """Let an endpoint join; its key, where it has one, goes with it over the socket."""
        key = {"api_key": config.api_key.get_secret_value()} if config.api_key else {}
        settings = config.model_dump(mode="json", exclude={"api_key", "api_key_env"}, exclude_defaults=True)
        await self._call("POST", "/endpoints", body=settings | key)

    async def drain(self, name: str, within: float = 0.0) -> bool:
        """Send an endpoint nothing new; whether it is empty after ``within`` seconds at most."""
        path = f"/endpoints/{quote(name, safe='')}/drain"
        told = await self._call("POST", path, params={"within": f"{within:g}"}, patience=within + self._timeout)
        return told.get("state") == "drained"

    async def admit(self, name: str) -> None:
        """Take a drain back."""
        await self._call("POST", f"/endpoints/{quote(name, safe='')}/admit")

    async def remove(self, name: str) -> None:
        """Let an endpoint go, at once."""
        await self._call("DELETE", f"/endpoints/{quote(name, safe='')}")

    def _read(self, form: TypeAdapter[T], told: object) -> T:
        try:
            return form.validate_python(told)
        except ValidationError as error:
            raise DaemonError(f"{self.whose} speaks in another form", "use the same version on both sides") from error

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: dict[str, Any] | None = None,
        params: dict[str, str] | None = None,
        patience: float | None = None,
    ) -> dict[str, Any]:
        limit = patience or self._timeout
        try:
            answer = await self._http.request(method, f"{self._prefix}{path}", json=body, params=params, timeout=limit)
            told = answer.json()
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            message = f"{self.whose} does not answer at {self._socket}: {why}"
            raise DaemonError(message, START) from error
        except ValueError as error:
            raise DaemonError(f"{self.whose} answered with no JSON", "use the same version on both sides") from error
        if answer.is_error or not isinstance(told, dict):
            raise _refused(self.whose, answer.status_code, told)
        return told


def _refused(whose: str, status: int, told: object) -> DaemonError | PoolError:
    """The refusal in the words of whoever refused: the daemon says what, why and mend, a gateway as OpenAI does."""
    body = told if isinstance(told, dict) else {}
    inner = body.get("error")
    words = inner.get("message") if isinstance(inner, dict) else body.get("why")
    if status >= 500 or not words:
        return DaemonError(f"{whose} answered with status {status}: {words or 'no reason'}", "look into its log")
    return PoolConfigError(str(words))
