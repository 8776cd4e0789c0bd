"""The HTTP servers under the api: uvicorn on a unix socket, whose callers the kernel names, and on TCP with TLS.

Whoever holds a connection has to use it: one over which nothing is asked, or of an answer nothing is taken, is closed
in time, and there is a bound to how many are open. Signals and logging are left to the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from swarm.config_door import TcpConfig
from swarm.errors import DaemonError
from swarm.types import Failure

LAST_WORDS = 3  # seconds that open requests may take to end once the server is told to exit
CONNECTIONS = 1024  # of one listener, or fewer where the process may open few files; those beyond it are cut
LEAST = 16  # connections that there may be, whatever is left of open files
HANDSHAKE_SECONDS = 5.0  # in which TLS has to be agreed upon, and ended
HEAD_SECONDS = 15.0  # in which a request's head has to be there
IDLE_SECONDS = 75  # that a connection is kept between two requests
TAKE_SECONDS = 60.0  # in which a reader has to take something of what is sent
SAID = 10  # times a minute that the same line of the server's is logged: anybody who knocks makes some

TcpListener = tuple[socket.socket, ssl.SSLContext | None]


class Patient(H11Protocol):
    """Closes a connection over which nothing is asked, or of an answer nothing is taken, in time."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._stuck: asyncio.TimerHandle | None = None
        self._silent: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._await_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing more."""
        super().connection_lost(exc)
        for timer in (self._stuck, self._silent):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Begins to wait for the rest of a head with its first byte."""
        between = self.cycle is not None and self.cycle.response_complete
        super().data_received(data)
        if between and self.cycle.response_complete and self._silent is None:
            self._await_a_head()

    def handle_events(self) -> None:
        """A head that is whole is waited for no longer."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._silent is not None:
            self._silent.cancel()
            self._silent = None

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so like any other refusal, and the connection ends."""
        failure = Failure(
            what="the request is not understood", why=msg, mend="speak HTTP/1.1, with a head below 64 KiB"
        )
        body = failure.model_dump_json().encode()
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        for event in (h11.Response(status_code=400, headers=head), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def pause_writing(self) -> None:
        """Begins to wait for a reader who takes nothing."""
        super().pause_writing()
        self._stuck = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """He took something."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def _await_a_head(self) -> None:
        self._silent = self.loop.call_later(HEAD_SECONDS, self.transport.abort)


class Peer(Patient):
    """Puts the uid that the kernel vouches for into the state of every request of this connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks SO_PEERCRED once; it names whoever called connect()."""
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _pid, uid, _gid = struct.unpack("3i", credentials)
        self.app_state = {**self.app_state, "peer_uid": uid}


def room(files: int | None = None) -> int:
    """Connections of one listener: at most a quarter of the files that this process may open (its soft limit, where
    ``files`` is not given), since the database, git and the sandboxes need some too."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
    return CONNECTIONS if files == resource.RLIM_INFINITY else min(CONNECTIONS, max(LEAST, files // 4))


class Listener(socket.socket):
    """A socket that listens and cuts whoever there is no room for, before TLS or HTTP begin to wait for him."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(fileno=os.dup(listener.fileno()))
        self.settimeout(0)
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next one that there is room for. Raises BlockingIOError when nobody waits."""
        while True:
            connection, address = super().accept()
            if sum(each.fileno() >= 0 for each in self._open) < room():
                self._open.add(connection)
                return connection, address
            connection.close()


class Sparing(logging.Filter):
    """Lets the same line through so often in a minute, and says then how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
        words, now = record.getMessage().partition("\n")[0][:100], self._clock()
        since, count = self._said.get(words, (now, 0))
        if now - since >= 60.0:
            if count > SAID:
                record.msg, record.args = f"{record.getMessage()} ({count - SAID} more like it were left out)", ()
            since, count = now, 0
        if len(self._said) >= 100:
            self._said.clear()
        self._said[words] = since, count + 1
        return count < SAID


SPARING = Sparing()


class Server(uvicorn.Server):
    """Serve with ``await server.serve(sockets=[...])``; set ``should_exit`` to end it."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as uvicorn does, but for bounds on the connections and on how long TLS may take."""
        loop, config = asyncio.get_running_loop(), self.config
        patience = HANDSHAKE_SECONDS if config.ssl is not None else None

        def connected() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )
            return made

        self.servers = [
            await loop.create_server(
                connected,
                sock=Listener(each),
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=patience,
                ssl_shutdown_timeout=patience,
            )
            for each in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none: the daemon drains first."""
        yield


def http_server(app: ASGIApp, tls: ssl.SSLContext | None = None, *, tcp: bool = False) -> Server:
    """A server for an application on sockets that are bound already: unix sockets, or TCP."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        http=Patient if tcp else Peer,
        proxy_headers=False,  # who calls is told by the kernel or by a token, never by a header
        server_header=False,
        backlog=128,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=LAST_WORDS,
        ssl_context_factory=(lambda _config, _default: tls) if tls is not None else None,
    )
    return Server(config)


class Doors:
    """One application on the daemon's socket and, where the settings want that, on TCP."""

    def __init__(self, app: ASGIApp, local: socket.socket, tcp: TcpListener | None = None) -> None:
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addFilter(SPARING)
        self._pairs = [(http_server(app), local)]
        if tcp is not None:
            listener, tls = tcp
            self._pairs.append((http_server(app, tls, tcp=True), listener))

    async def serve(self) -> None:
        """Answer until stopped. Where one door ends by itself, the other is closed too."""
        async with asyncio.TaskGroup() as group:
            for server, listener in self._pairs:
                group.create_task(self._serve(server, listener))

    def stop(self) -> None:
        """Close every door; open requests get a few seconds to end."""
        for server, _ in self._pairs:
            server.should_exit = True

    async def _serve(self, server: Server, listener: socket.socket) -> None:
        await server.serve(sockets=[listener])
        self.stop()


@contextlib.contextmanager
def listening_tcp(config: TcpConfig | None) -> Iterator[TcpListener | None]:
    """The listener of the settings and its TLS; None where they want none. Raises DaemonError."""
    if config is None:
        yield None
        return
    tls = _tls(config)
    host, port = config.place
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        mend = "end what holds it, or give daemon.tcp.address another one"
        raise DaemonError(f"cannot listen on {config.address}: {error.strerror or error}", mend) from None
    with listener:
        yield listener, tls


def _tls(config: TcpConfig) -> ssl.SSLContext | None:
    if config.certificate is None or config.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.certificate, config.key, password=_no_password)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        mend = "give the daemon's user a PEM certificate with its chain, and its key without a password"
        raise DaemonError(
            f"the certificate {config.certificate} or its key {config.key} cannot be used: {why}", mend
        ) from None
    return context


def _no_password() -> str:
    """Raises ValueError: nobody is there to be asked."""
    raise ValueError("the key has a password")
