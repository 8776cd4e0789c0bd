"""Listens on TCP and on a unix socket, and stops in order: not ready, then deaf, then done; a second signal cuts it."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pool.errors import PoolConfigError
from pool.gateway.guard import Crowd, Guarded, protocol
from pool.gateway.keys import check_bind
from pool.gateway.routes import Door
from pool.gateway.service import Service

log = logging.getLogger(__name__)
BACKLOG = 2048
LAST_WORDS = 2.0  # seconds in which requests that are cut off are told so
LEAST = 16  # connections that there may be, whatever is left of open files
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Place:
    """A path at which we listen. Another gateway may take it over once we do not answer there any more."""

    path: Path
    mark: tuple[int, ...]

    @classmethod
    def taken(cls, path: Path) -> Place:
        """The place of a socket that was just bound there."""
        return cls(path, _mark(path))

    def leave(self) -> None:
        """Remove the socket, if it is still ours."""
        with suppress(OSError):
            if _mark(self.path) == self.mark:
                self.path.unlink()


def _mark(path: Path) -> tuple[int, ...]:
    """Which socket it is; the time is among it since a file system gives a freed inode away again."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


class Listening:
    """A gateway that listens. ``port`` is the real one."""

    def __init__(
        self, service: Service, state: Crowd, servers: list[asyncio.Server], port: int, place: Place | None
    ) -> None:
        self.port = port
        self._place = place
        self._service = service
        self._state = state
        self._servers = servers
        self._hard = asyncio.Event()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._state.connections)

    def cut(self) -> None:
        """Wait for nobody any more."""
        self._hard.set()

    async def drain(self) -> None:
        """Stop taking work, finish what runs, close. Readiness goes first, so that balancers look elsewhere."""
        config = self._service.config
        self._service.draining = True
        await self._unless_cut(asyncio.sleep(config.drain_notice))
        if self._place is not None:
            self._place.leave()  # while it is surely ours: whoever finds nobody there takes the place
        for server in self._servers:
            server.close()
        for connection in tuple(self._state.connections):
            connection.shutdown()
        if not await self._unless_cut(self._state.quiet.wait(), config.drain_timeout):
            await self._cut_short()
        for connection in tuple(self._state.connections):
            connection.transport.abort()
        await asyncio.gather(*tuple(self._state.tasks), return_exceptions=True)

    async def _cut_short(self) -> None:
        """End what still runs with an error that its client can read."""
        guarded = [one for one in self._state.connections if isinstance(one, Guarded)]
        running = [one.cut_short for one in guarded if one.cut_short is not None]
        for cut_short in running:
            cut_short()
        if running:
            log.warning("requests that were cut off: %d", len(running))
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await self._state.quiet.wait()

    async def _unless_cut(self, work: Any, timeout: float | None = None) -> bool:  # noqa: ASYNC109  a wait is what it is
        """Await ``work`` until it is done (True), the time is over or somebody cuts it short."""
        tasks = {asyncio.ensure_future(work), asyncio.ensure_future(self._hard.wait())}
        done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return bool(done) and not self._hard.is_set()


@asynccontextmanager
async def listening(service: Service) -> AsyncIterator[Listening]:
    """Listen until the block ends, then drain. Raises PoolConfigError for an address that cannot or must not be had."""
    config = service.config
    check_bind(config.host, config.keys)
    crowd, servers, place = Crowd(), list[asyncio.Server](), None
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        listener = stack.enter_context(_tcp(config.host, config.port))
        servers.append(
            await loop.create_server(
                protocol(Door(service), config, crowd, room(config.max_connections)), sock=listener
            )
        )
        stack.callback(servers[0].close)
        if config.socket is not None:
            local = stack.enter_context(_unix(Path(config.socket)))
            place = Place.taken(Path(config.socket))
            stack.callback(place.leave)
            made = protocol(Door(service, with_admin=True), config, crowd)
            servers.append(await loop.create_unix_server(made, sock=local))
            stack.callback(servers[1].close)
        here = Listening(service, crowd, servers, listener.getsockname()[1], place)
        try:
            yield here
        finally:
            await here.drain()


async def until_signalled(here: Listening) -> None:
    """Wait for SIGINT or SIGTERM; the next one cuts the draining short."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        if stop.is_set():
            here.cut()
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, told)
    await stop.wait()


def room(most: int, files: int | None = None) -> int:
    """Connections that there may be: at most as set, and half of the files that this process may open (by its soft
    limit, `ulimit -n`, where ``files`` is not given), since each request at work needs a connection to a server too."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
    return most if files == resource.RLIM_INFINITY else min(most, max(LEAST, files // 2))


def _tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise PoolConfigError(
            f"cannot listen on {host} port {port}: {_reason(error)}; end what holds it or take another --port"
        ) from None


def _reason(error: OSError) -> str:
    """The system's words alone: Python adds the address to them."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


def _unix(path: Path) -> socket.socket:
    """A socket that its owner alone may use. One that a dead gateway left is replaced, a living one is not."""
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
            path.unlink()
        before = os.umask(0o177)
        try:
            local.bind(str(path))
        finally:
            os.umask(before)
        local.listen(BACKLOG)
    except OSError as error:
        local.close()
        raise PoolConfigError(f"cannot listen on {path}: {_reason(error)}; take another --socket") from None
    return local


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
