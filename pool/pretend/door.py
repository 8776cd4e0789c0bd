"""The pretend server's way to the socket: uvicorn inside another program, and connections that can be broken."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Address = tuple[str, int]

TICK = 0.1  # seconds between the server's own chores, as uvicorn has it


class Door:
    """Listens on a loopback port and serves an ASGI application. ``port`` 0 takes a free one and keeps it."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.transports: dict[Address, asyncio.Transport] = {}
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, app: Any) -> None:
        """Listen; after `close` on the same port again."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=1024)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            app,
            http=self._protocol(),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        await self._server.up.wait()

    async def close(self) -> None:
        """Reset every connection and stop to listen."""
        if self._server is not None and self._task is not None:
            self._server.end()
            self._reset_all()
            await asyncio.sleep(0)  # the broken connections are told so
            await self._task
            self._server = self._task = None
        self._reset_all()  # those who came in the meantime

    def reset(self, client: Address | None) -> None:
        """Break one client's connection."""
        if client is not None and (transport := self.transports.get(client)) is not None:
            transport.abort()

    def _reset_all(self) -> None:
        for transport in tuple(self.transports.values()):
            transport.abort()

    def _protocol(self) -> type[HttpToolsProtocol]:
        transports = self.transports

        class Tracked(HttpToolsProtocol):
            """Remembers its transport, so that a fault can reset it."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                transports[transport.get_extra_info("peername")[:2]] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                transports.pop(self.transport.get_extra_info("peername")[:2], None)
                super().connection_lost(exc)

        return Tracked


class _Server(uvicorn.Server):
    """Leaves the signals to the program that it runs in, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop to serve, without waiting for the next tick."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + 1) % 864_000
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self._ending.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
