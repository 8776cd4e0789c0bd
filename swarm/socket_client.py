"""HTTP over a unix socket from the caller's side: opens the connection and closes it. What is said is its heirs'."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import httpx


class SocketClient:
    """A connection to whoever listens behind ``socket``; use it with ``async with``. ``timeout`` in seconds bounds each
    call, ``name`` is the host that the requests name."""

    def __init__(self, socket: Path, name: str, timeout: float | httpx.Timeout) -> None:
        self._socket = socket
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket)), base_url=f"http://{name}", timeout=timeout
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)
