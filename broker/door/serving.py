"""All sockets in one loop until a signal; each with places of its own, so that none can shut another out."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from starlette.applications import Starlette

from broker.door.listening import CONNECTIONS, PatientProtocol, PeerProtocol

Place = tuple[Starlette, socket.socket]


async def serve(places: tuple[Place, ...], drain: float, ending: threading.Event, ready: Callable[[], None]) -> None:
    """Serves until SIGTERM or SIGINT, then gives running calls ``drain`` seconds. ``ending`` is set at the signal."""
    servers = [_Server(_settings(app, listener, drain)) for app, listener in places]
    loop = asyncio.get_running_loop()

    def leave(number: int) -> None:
        ending.set()
        for server in servers:
            server.handle_exit(number, None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave, number)
    ready()
    await asyncio.gather(
        *(server.serve(sockets=[listener]) for server, (_, listener) in zip(servers, places, strict=True))
    )


def _settings(app: Starlette, listener: socket.socket, drain: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PeerProtocol if listener.family == socket.AF_UNIX else PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=int(drain),
    )


class _Server(uvicorn.Server):
    """Leaves the signals to the loop: uvicorn would raise them again at the end, before the last line of the log."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: see above."""
        yield
