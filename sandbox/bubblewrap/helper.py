"""The daemon's side of the helper process: started when first needed, asked over one socket, ended by closing it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxError

_ROOT = Path(__file__).parents[2]
_BOOT = "import sys; sys.path.insert(0, {root!r}); from sandbox.bubblewrap.spawner import main; main()"
_PATIENCE = 60.0
_MOST_BYTES, _MOST_FDS = 64 * 1024, 4


class HelperError(SandboxError):
    """The helper could not do what it was asked; the message says at which step and why."""


@dataclass(frozen=True)
class Answer:
    """What a child of the helper did: its words, and descriptors that are ours to close now."""

    words: dict[str, Any]
    fds: tuple[int, ...]


class Helper:
    """One helper process. It holds nothing that a new one could not hold, so it is started anew when it was killed."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._pid = 0

    async def ask(self, request: dict[str, Any], fds: Sequence[int]) -> Answer:
        """Have a child do ``request`` with these descriptors, which stay ours. Raises HelperError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, _written(request) as body:
            ours.setblocking(False)  # noqa: FBT003
            self._send([body, theirs.fileno(), *fds])
            theirs.close()
            try:
                async with asyncio.timeout(_PATIENCE):
                    answer = await _received(ours)
            except TimeoutError:
                raise HelperError(f"bubblewrap's helper did not answer within {_PATIENCE:g} s") from None
        if "error" in answer.words:
            raise HelperError(str(answer.words["error"]))
        return answer

    def close(self) -> None:
        """End it, and with it everything that it started."""
        control, self._control = self._control, None
        if control is not None:
            control.close()
            with contextlib.suppress(ChildProcessError):  # somebody who waits for all children was faster
                os.waitpid(self._pid, 0)

    def _send(self, fds: list[int]) -> None:
        for _ in range(2):
            if self._control is None:
                self._control, self._pid = _spawn()
            try:
                socket.send_fds(self._control, [b"1"], fds)
            except (BrokenPipeError, ConnectionResetError):  # it was killed; a new one can do the same
                self.close()
            else:
                return
        raise HelperError("bubblewrap's helper ends as soon as it is started")


def _spawn() -> tuple[socket.socket, int]:
    """Not through `subprocess`, which would wait for it and warn where it outlives a backend."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    with theirs:
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), *((os.POSIX_SPAWN_DUP2, null, to) for to in (1, 2))]
        argv = [sys.executable, "-I", "-S", "-c", _BOOT.format(root=str(_ROOT))]
        try:
            pid = os.posix_spawn(sys.executable, argv, {}, file_actions=actions, setsid=True)
        except OSError as error:
            ours.close()
            raise HelperError(f"{sys.executable} cannot be started: {error.strerror}") from error
        finally:
            os.close(null)
    return ours, pid


@contextlib.contextmanager
def _written(request: dict[str, Any]) -> Iterator[int]:
    """The request in a file in memory: it may be larger than a message."""
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, json.dumps(request).encode())
        yield descriptor
    finally:
        os.close(descriptor)


async def _received(connection: socket.socket) -> Answer:
    loop = asyncio.get_running_loop()
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(connection, _MOST_BYTES, _MOST_FDS, socket.MSG_CMSG_CLOEXEC)
            break
        except BlockingIOError:
            ready = loop.create_future()
            loop.add_reader(connection, _set, ready)
            try:
                await ready
            finally:
                loop.remove_reader(connection)
    if not data:
        raise HelperError("bubblewrap's helper was killed")
    return Answer(json.loads(data), tuple(fds))


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
