"""All sockets until a signal; each with places, a thread and a loop of its own, so that none can hold up another."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette

from broker.door.listening import CONNECTIONS, HEAD_SECONDS, TAKE_SECONDS, PatientProtocol, PeerProtocol


def nobody(_uid: int) -> bool:
    """Of a socket that nobody in particular is to call."""
    return False


@dataclass(frozen=True)
class Place:
    """An application and where it listens. ``known`` says of a uid whether the socket is there for it."""

    app: Starlette
    listener: socket.socket
    known: Callable[[int], bool] = nobody
    head_seconds: float = HEAD_SECONDS
    take_seconds: float = TAKE_SECONDS


async def serve(places: tuple[Place, ...], drain: float, ending: threading.Event, ready: Callable[[], None]) -> None:
    """Serves until SIGTERM or SIGINT, then gives running calls ``drain`` seconds. ``ending`` is set at the signal."""
    servers = [_Server(_settings(place, drain)) for place in places]
    loop = asyncio.get_running_loop()

    def leave(number: int) -> None:
        ending.set()
        for server in servers:
            server.handle_exit(number, None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave, number)
    ready()
    try:
        await asyncio.gather(
            *(asyncio.to_thread(_run, server, place) for server, place in zip(servers, places, strict=True))
        )
    finally:
        leave(signal.SIGTERM)  # one that failed ends the others


def _run(server: uvicorn.Server, place: Place) -> None:
    asyncio.run(server.serve(sockets=[place.listener]))


def _settings(place: Place, drain: float) -> uvicorn.Config:
    unix = place.listener.family == socket.AF_UNIX
    protocol = functools.partial(PeerProtocol, known=place.known) if unix else PatientProtocol
    return uvicorn.Config(
        place.app,
        http=functools.partial(  # type: ignore[arg-type]
            protocol, head_seconds=place.head_seconds, take_seconds=place.take_seconds
        ),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=CONNECTIONS,  # as many are taken at once before any of them can be turned away
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=int(drain),
    )


class _Server(uvicorn.Server):
    """Leaves the signals to the loop: uvicorn would raise them again at the end, before the last line of the log."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: see above."""
        yield
