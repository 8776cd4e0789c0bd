"""HTTP from the caller's side, over a unix socket or to another machine: opens the connection and closes it.

What is said is its heirs'.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from swarm.errors import ConfigError


class HttpClient:
    """A connection; use it with ``async with``."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)


class SocketClient(HttpClient):
    """A connection to whoever listens behind ``socket``; use it with ``async with``. ``timeout`` in seconds bounds each
    call, ``name`` is the host that the requests name."""

    def __init__(self, socket: Path, name: str, timeout: float | httpx.Timeout) -> None:
        self._socket = socket
        super().__init__(over_socket(socket, name, timeout))


def over_socket(socket: Path, name: str, timeout: float | httpx.Timeout) -> httpx.AsyncClient:
    """A client of whoever listens behind a unix socket."""
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{name}", timeout=timeout)


def over_tcp(url: str, token: str, ca: Path | None, timeout: float | httpx.Timeout) -> httpx.AsyncClient:
    """A client of another machine's daemon: no redirects, no proxy of the environment, its certificate checked against
    ``ca`` or the system's authorities. Raises ConfigError."""
    where = httpx.URL(url)
    if where.scheme not in {"http", "https"} or not where.host or where.userinfo or where.query:
        raise ConfigError("the daemon's address is no https://HOST:PORT", "write it like https://swarm.example:7420")
    if where.scheme == "http" and where.host not in {"127.0.0.1", "::1", "localhost"}:
        raise ConfigError(f"the token would go to {where.host} in the open", f"use https://{where.host}")
    try:
        trust = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the authorities in {ca} cannot be read: {error}", "name a file of PEM certificates"
        ) from None
    headers = {"authorization": f"Bearer {token}"}
    base = where.copy_with(path="/")
    return httpx.AsyncClient(base_url=base, headers=headers, verify=trust, timeout=timeout, trust_env=False)
