"""Descriptors that are waited for, and how bytes flow between them and the host."""

from __future__ import annotations

import os
import select
import time

from sandbox.inside.protocol import (
    ALIVE,
    COUNT,
    CREDIT,
    DATA,
    FRAME,
    HEAD,
    HEAD_OUTPUT,
    LAST,
    SIGN,
    TAIL_OUTPUT,
    WINDOW,
    HostGoneError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


_HIGH = 512 * 1024
_IN, _OUT = select.POLLIN, select.POLLOUT


class Wire:
    """Frames to the host, kept until it reads them. Producers look at ``room`` first."""

    def __init__(self, descriptor: int) -> None:
        self.fd = descriptor
        self._out = bytearray()

    @property
    def room(self) -> bool:
        """Whether more may be produced."""
        return len(self._out) < _HIGH

    def want(self) -> int:
        """What to wait for."""
        return _OUT if self._out else 0

    def ready(self) -> None:
        """Write what goes without waiting. Raises HostGoneError."""
        while self._out:
            try:
                with memoryview(self._out) as all_of_it, all_of_it[:WINDOW] as piece:
                    size = os.write(self.fd, piece)
            except BlockingIOError:
                return
            except OSError:
                raise HostGoneError from None
            del self._out[:size]

    def send(self, kind: int, channel: int, data: bytes = b"") -> None:
        """Queue one frame, or several for long data."""
        for at in range(0, len(data) or 1, FRAME):
            piece = data[at : at + FRAME]
            self._out += HEAD.pack(kind, channel, len(piece))
            self._out += piece


class Drain:
    """Bytes from a descriptor to the host, by credit; at most ``left`` of them where that is given."""

    def __init__(self, wire: Wire, channel: int, descriptor: int, ended: Callable[[bool], None]) -> None:
        os.set_blocking(descriptor, False)
        self.fd, self.left, self._ended = descriptor, -1, ended
        self._wire, self._channel, self._window = wire, channel, WINDOW

    def want(self) -> int:
        """What to wait for."""
        return _IN if self._window > 0 and self._wire.room else 0

    def ready(self) -> None:
        """Take the next piece; ``ended`` is told whether it broke off."""
        size = min(WINDOW, self._window, self.left) if self.left >= 0 else min(WINDOW, self._window)
        try:
            data = os.read(self.fd, size)
        except BlockingIOError:
            return
        except OSError:
            self._ended(True)
            return
        self._window -= len(data)
        if data:
            self._wire.send(DATA, self._channel, data)
            self.left -= len(data) if self.left >= 0 else 0
        if not data or self.left == 0:
            self._ended(False)

    def credit(self, size: int) -> None:
        """The host took that much."""
        self._window += size


class Whole(Drain):
    """A command's whole output. What its pipe still holds when it has ended goes without credit."""

    def finish(self) -> int:
        """Send the rest; nothing is missing."""
        self._window = LAST
        exhaust(self)
        return 0


class Feed:
    """Bytes from the host to a descriptor. Where nobody reads them they are dropped; ``ended`` is told of that."""

    def __init__(self, wire: Wire, channel: int, descriptor: int, ended: Callable[[bool], None]) -> None:
        os.set_blocking(descriptor, False)
        self.fd, self._ended = descriptor, ended
        self._wire, self._channel = wire, channel
        self._buffer, self._owed, self._last, self._over = bytearray(), 0, False, False

    def want(self) -> int:
        """What to wait for."""
        return _OUT if self._buffer and not self._over else 0

    def ready(self) -> None:
        """Write the next piece."""
        try:
            with memoryview(self._buffer) as all_of_it:
                size = os.write(self.fd, all_of_it)
        except BlockingIOError:
            return
        except OSError:
            self._finish(broken=True)
            return
        del self._buffer[:size]
        self._credit(size)
        if self._last and not self._buffer:
            self._finish(broken=False)

    def data(self, data: bytes) -> None:
        """More for it."""
        if self._over:
            self._credit(len(data))
        else:
            self._buffer += data

    def end(self) -> None:
        """That was all."""
        self._last = True
        if not self._buffer and not self._over:
            self._finish(broken=False)

    @property
    def flushing(self) -> bool:
        """Whether the end was told, but not all is written yet."""
        return self._last and not self._over

    def _finish(self, *, broken: bool) -> None:
        self._over = True
        self._credit(len(self._buffer))
        self._buffer.clear()
        self._ended(broken)

    def drop(self) -> None:
        """Nobody reads it any more."""
        self._over = True
        self._buffer.clear()

    def _credit(self, size: int) -> None:
        """Give it back, some at a time: the host sends at most a frame at once, and there is always credit for one."""
        self._owed += size
        if self._owed >= FRAME:
            self._wire.send(CREDIT, self._channel, COUNT.pack(self._owed))
            self._owed = 0


class Collect:
    """Bytes from a descriptor into memory, at most ``cap`` of them; the last ones where ``tail`` is set."""

    def __init__(self, descriptor: int, cap: int, gone: Callable[[int], None], *, tail: bool) -> None:
        os.set_blocking(descriptor, False)
        self.fd, self.kept, self.over = descriptor, bytearray(), False
        self._cap, self._gone, self._tail = cap, gone, tail

    def want(self) -> int:
        """What to wait for."""
        return _IN

    def ready(self) -> None:
        """Take the next piece."""
        try:
            data = os.read(self.fd, FRAME)
        except BlockingIOError:
            return
        if not data:
            self._gone(self.fd)
        elif self._tail:
            self.kept = (self.kept + data)[-self._cap :]
        elif len(self.kept) + len(data) <= self._cap:
            self.kept += data
        else:
            self.over = True

    def rest(self) -> bytes:
        """What is kept, once nobody writes any more."""
        exhaust(self)
        return b"" if self.over else bytes(self.kept)


class Output:
    """A command's output: its first half goes out as it comes, its last half at the end, meanwhile signs of life."""

    def __init__(self, wire: Wire, channel: int, descriptor: int, cap: int, gone: Callable[[int], None]) -> None:
        os.set_blocking(descriptor, False)
        self.fd, self._wire, self._channel, self._gone = descriptor, wire, channel, gone
        self._head, self._tail = cap // 2, cap - cap // 2
        self._kept, self._past, self._sign = bytearray(), 0, time.monotonic()

    def want(self) -> int:
        """What to wait for."""
        return _IN if self._head == 0 or self._wire.room else 0

    def ready(self) -> None:
        """Take the next piece."""
        try:
            data = os.read(self.fd, FRAME)
        except BlockingIOError:
            return
        if not data:
            self._gone(self.fd)
            return
        live, data = data[: self._head], data[self._head :]
        if live:
            self._head -= len(live)
            self._wire.send(HEAD_OUTPUT, self._channel, live)
        if data:
            self._past += len(data)
            self._kept += data
            self._tell(time.monotonic())
            if len(self._kept) > 2 * self._tail + FRAME:
                del self._kept[: -self._tail]

    def _tell(self, now: float) -> None:
        if now - self._sign >= SIGN and self._wire.room:
            self._sign = now
            self._wire.send(ALIVE, self._channel)

    def finish(self) -> int:
        """Send the tail; the number of bytes that are missing before it."""
        exhaust(self)
        tail = bytes(self._kept[-self._tail :])
        if tail:
            self._wire.send(TAIL_OUTPUT, self._channel, tail)
        return self._past - len(tail)


def exhaust(end: Output | Collect | Whole) -> None:
    """Read what lies in a pipe whose writers are dead; not for ever, since in a mere folder one may have escaped."""
    for _ in range(64):
        if end.fd < 0:
            return
        poller = select.poll()
        poller.register(end.fd, _IN)
        if not poller.poll(0):
            return
        end.ready()
