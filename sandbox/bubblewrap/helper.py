"""The daemon's side of the helper process: started when first needed, asked over one socket, ended by closing it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sandbox.errors import SandboxError

_ROOT = Path(__file__).parents[2]
_BOOT = "import sys; sys.path.insert(0, {root!r}); from sandbox.bubblewrap.spawner import main; main()"
_PATIENCE = 60.0
_SETTLING = 0.02  # seconds until all descriptors of a killed process are closed
_GONE = "bubblewrap's helper was killed"
_MOST_BYTES, _MOST_FDS = 64 * 1024, 4


class HelperError(SandboxError):
    """The helper could not do what it was asked; the message says at which step and why, ``words`` what it told."""

    def __init__(self, message: str, words: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.words = words


class HelperGoneError(HelperError):
    """The child that was asked, or the helper itself, was killed."""


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
        try:
            with self._asked(request, fds) as ours:
                return await _answered(ours)
        except HelperGoneError:
            if not await self._lost():
                raise
        with self._asked(request, fds) as ours:
            return await _answered(ours)

    async def sit(self, entrances: Sequence[str]) -> Seat:
        """Have a child enter a control group and wait there for one request. Raises HelperError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)  # noqa: FBT003
        try:
            with theirs:
                await self.ask({"do": "sit", "groups": list(entrances)}, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        return Seat(ours)

    async def _lost(self) -> bool:
        """Whether the helper itself was killed, not one child of it; a new one is started by the next request."""
        await asyncio.sleep(_SETTLING)
        if self._control is not None:
            try:
                self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                pass
            self.close()
        return True

    @contextlib.contextmanager
    def _asked(self, request: dict[str, Any], fds: Sequence[int]) -> Iterator[socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs, _written(request) as body:
                ours.setblocking(False)  # noqa: FBT003
                self._send([body, theirs.fileno(), *fds])
            yield ours

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


class Seat:
    """A child that sits in its control group already and waits for its one request."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours

    async def ask(self, request: dict[str, Any], fds: Sequence[int]) -> Answer:
        """As `Helper.ask`; the request must not be one that enters a group. Raises HelperError."""
        with self._ours as ours, _written(request) as body:
            try:
                socket.send_fds(ours, [b"1"], [body, *fds])
            except OSError as error:
                raise HelperGoneError(_GONE) from error
            return await _answered(ours)

    def close(self) -> None:
        """Let it go unused."""
        self._ours.close()


async def _answered(connection: socket.socket) -> Answer:
    try:
        async with asyncio.timeout(_PATIENCE):
            answer = await _received(connection)
    except TimeoutError:
        raise HelperError(f"bubblewrap's helper did not answer within {_PATIENCE:g} s") from None
    if "error" in answer.words:
        raise HelperError(str(answer.words["error"]), answer.words)
    return answer


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
        except ConnectionResetError:
            raise HelperGoneError(_GONE) from None
        except BlockingIOError:
            ready = loop.create_future()
            loop.add_reader(connection, _set, ready)
            try:
                await ready
            finally:
                loop.remove_reader(connection)
    if not data:
        raise HelperGoneError(_GONE)
    return Answer(json.loads(data), tuple(fds))


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
