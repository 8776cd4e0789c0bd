"""Connections made inside, one channel each."""

from __future__ import annotations

import _socket
import os
import select

from sandbox.inside.ends import Drain, Feed
from sandbox.inside.protocol import CLOSE, CONNECTIONS, COUNT, END, OPEN, TUNNEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.inside.keeper import Keeper


class Listener:
    """A port on the loopback; what connects to it becomes a channel."""

    def __init__(self, supervisor: Keeper, port: int) -> None:
        self._supervisor, self._port, self.fd = supervisor, port, -1
        self._socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen(CONNECTIONS)
        except OSError:
            self._socket.close()
            return
        self.fd = self._socket.fileno()
        supervisor.add(self)

    def want(self) -> int:
        """What to wait for: over the cap, the next ones wait in the kernel."""
        open_here = {channel for channel in self._supervisor.channels if channel >= TUNNEL}
        full = len(self._supervisor.places | open_here) >= CONNECTIONS
        return 0 if full or not self._supervisor.wire.room else select.POLLIN

    def ready(self) -> None:
        """Take the next connection."""
        try:
            fd, _ = self._socket._accept()  # type: ignore[attr-defined]
        except OSError:
            return  # it went away, or there is no descriptor free: it waits
        Tunnel(self._supervisor, fd, self._port)


class Tunnel:
    """One connection made inside. Each direction ends by itself; what breaks it off is told as CLOSE."""

    def __init__(self, supervisor: Keeper, fd: int, port: int) -> None:
        supervisor.last = supervisor.last + 1 if supervisor.last < 0xFFFFFFFF else TUNNEL
        self._supervisor, self._channel = supervisor, supervisor.last
        self._socket = _socket.socket(fileno=fd)
        self._drain = Drain(supervisor.wire, self._channel, fd, self._inner_end)
        self._feed = Feed(supervisor.wire, self._channel, os.dup(fd), self._outer_end)
        self._half = False
        supervisor.add(self._drain)
        supervisor.add(self._feed)
        supervisor.channels[self._channel] = self
        supervisor.places.add(self._channel)
        supervisor.wire.send(OPEN, self._channel, COUNT.pack(port))

    def _inner_end(self, broken: bool) -> None:
        if broken:
            self._break()
            return
        self._supervisor.ends.pop(self._drain.fd)
        self._supervisor.wire.send(END, self._channel)
        self._one_of_two()

    def _outer_end(self, broken: bool) -> None:
        if broken:
            self._break()
            return
        try:
            self._socket.shutdown(_socket.SHUT_WR)
        except OSError:
            pass
        self._one_of_two()

    def _one_of_two(self) -> None:
        if self._half:
            self.close()
        self._half = True

    def _break(self) -> None:
        self._supervisor.wire.send(CLOSE, self._channel)
        self._feed.drop()
        self.close()

    def data(self, data: bytes) -> None:
        """From the host."""
        self._feed.data(data)

    def end(self) -> None:
        """The host says no more."""
        self._feed.end()

    def credit(self, size: int) -> None:
        """The host took that much."""
        self._drain.credit(size)

    def close(self) -> None:
        """Let go of it, once what the host said before is read."""
        if self._feed.flushing:
            self._supervisor.ends.pop(self._socket.fileno(), None)
            self._half = True
        elif self._supervisor.channels.pop(self._channel, None) is not None:
            self._supervisor.ends.pop(self._socket.fileno(), None)
            self._supervisor.drop(self._feed.fd)
            self._socket.close()
