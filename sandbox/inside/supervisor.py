"""Lives inside a sandbox as the agent's user and does what the host asks over one stream of frames.

The modules of this folder are sent in as one bundle and must start fast on any Python from 3.9 on: hence C modules
instead of `socket`, `signal`, `selectors`, `ctypes` and `typing`, and a loop of its own over `poll`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import marshal
import os
import select
import time

from sandbox.inside.ends import Wire
from sandbox.inside.files import Reading, Writing, put
from sandbox.inside.guard import may_sweep, process_namespace
from sandbox.inside.keeper import Keeper
from sandbox.inside.kernel import SET_DUMPABLE, SET_SUBREAPER, Kernel
from sandbox.inside.packing import Packing, Unpacking
from sandbox.inside.protocol import (
    ASK,
    CLOSE,
    COUNT,
    CREDIT,
    DATA,
    END,
    FREE,
    HEAD,
    HELLO,
    PART,
    WINDOW,
    HostGoneError,
    RefusedError,
)
from sandbox.inside.running import Running
from sandbox.inside.tunnels import Listener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class Supervisor(Keeper):
    """The loop over all that is waited for. It is asked anew each time, which is simple and cheap for so few."""

    def __init__(self, start: Mapping[str, Any], receive: int, wire: Wire, kernel: Kernel) -> None:
        super().__init__(start, wire, kernel)
        self._receive, self._buffer, self._parts = receive, bytearray(), bytearray()

    def run(self) -> None:
        """Serve until the host is gone."""
        os.set_blocking(self._receive, False)
        os.set_blocking(self.wire.fd, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        ports = [port for port in self.start["ports"] if Listener(self, port).fd >= 0]
        words = f"landlock {self.landlock.version}\nscoped {int(self.landlock.scoped)}\nports {len(ports)}\n"
        self.wire.send(HELLO, 0, (words + f"hidden {int(self.start['hidden'])}\n").encode())
        try:
            while self._turn():
                pass
        except HostGoneError:
            pass
        if self.command is not None:
            self.command.kill()

    def _turn(self) -> bool:
        self.wire.ready()
        poller = select.poll()
        poller.register(self._receive, select.POLLIN)
        poller.register(self.woken, select.POLLIN)
        if self.wire.want():
            poller.register(self.wire.fd, select.POLLOUT)
        for end in self.ends.values():
            mask = end.want()
            if mask:
                poller.register(end.fd, mask)
        until = self.command.until if self.command else None
        ready = poller.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1)
        for fd, _ in ready:
            if fd == self._receive:
                if not self._take():
                    return False
            elif fd == self.woken:
                self.reap()
            elif fd in self.ends:
                self.ends[fd].ready()
        if self.command is not None and self.command.until <= time.monotonic():
            self.command.late()
        return True

    def _take(self) -> bool:
        try:
            data = os.read(self._receive, WINDOW)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            kind, channel, length = HEAD.unpack(self._buffer[: HEAD.size])
            if len(self._buffer) < HEAD.size + length:
                break
            with memoryview(self._buffer) as all_of_it:
                payload = bytes(all_of_it[HEAD.size : HEAD.size + length])
            del self._buffer[: HEAD.size + length]
            self._frame(kind, channel, payload)
        return bool(data)

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == PART:
            self._parts += payload
        elif kind == ASK:
            asked = marshal.loads(bytes(self._parts) + payload)  # noqa: S302 - from the host, which we belong to
            self._parts.clear()
            self.regain()
            try:
                _REQUESTS[asked[0]](self, channel, *asked[1:])
            except RefusedError as error:
                self.refuse(channel, str(error))
            except OSError as error:
                self.refuse(channel, f"cannot be used: {os.strerror(error.errno or 0)}")
        elif kind == FREE:
            self.places.discard(channel)
        elif channel in self.channels:
            _tell(self.channels[channel], kind, payload)


def _tell(work: Any, kind: int, payload: bytes) -> None:
    if kind == DATA:
        work.data(payload)
    elif kind == END:
        work.end()
    elif kind == CREDIT:
        work.credit(COUNT.unpack(payload)[0])
    elif kind == CLOSE:
        work.close()


def _ping(supervisor: Keeper, channel: int) -> None:
    supervisor.done(channel)


_REQUESTS: dict[str, Callable[..., Any]] = {
    "run": Running,
    "pack": Packing,
    "unpack": Unpacking,
    "read": Reading,
    "write": Writing,
    "ping": _ping,
}


def main(start: dict[str, Any]) -> None:
    """Take the two ends of the stream from standard input and output, hide, and serve."""
    if start["sweep"] and not may_sweep(os.getuid(), process_namespace(), start["host"]):
        os.write(2, b"this is no sandbox of its own, so nothing may be swept here\n")
        raise SystemExit(3)
    receive, wire = os.dup(0), Wire(os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    os.umask(0o022)
    kernel = Kernel()
    kernel.prctl(SET_SUBREAPER, 1)
    start["hidden"] = kernel.prctl(SET_DUMPABLE, 0) == 0
    supervisor = Supervisor(start, receive, wire, kernel)
    supervisor.regain()
    for path, data in start["files"]:
        try:
            put(path, data)
        except OSError:
            pass  # where an agent left no room for it, it has to be able to make some
    supervisor.run()
    os._exit(0)  # there is nothing to tidy up, and tidying takes longer than most commands
