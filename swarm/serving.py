"""The HTTP server under the api: uvicorn, which leaves signals and logging to the daemon."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

LAST_WORDS = 3  # seconds that open requests may take to end once the server is told to exit


class Server(uvicorn.Server):
    """Serve with ``await server.serve(sockets=[...])``; set ``should_exit`` to end it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none: the daemon drains first."""
        yield


def http_server(app: Starlette) -> Server:
    """A server for an application on sockets that are bound already."""
    return Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            timeout_graceful_shutdown=LAST_WORDS,
        )
    )
