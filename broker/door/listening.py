"""Unix sockets in folders that nobody else can write, and the uid that the kernel vouches for on each connection."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.config import ground
from broker.errors import ConfigError

CONNECTIONS = 64
"""Of one socket that are served; as many again are told that it is busy, and the rest are cut."""
STRANGERS = 8
"""Connections that all who have no business at a socket may hold there together."""
HEAD_SECONDS = 15.0
_FOLDER = "its folder must exist and be writable for the broker's user"
TAKE_SECONDS = 60.0


class PatientProtocol(H11Protocol):
    """Closes a connection over which nothing is asked, or of an answer nothing is taken, in time.

    Whoever holds one of the few places has to use it.
    """

    def __init__(
        self, *args: Any, head_seconds: float = HEAD_SECONDS, take_seconds: float = TAKE_SECONDS, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._head_seconds = head_seconds
        self._take_seconds = take_seconds
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to wait, if there is a place."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > 2 * CONNECTIONS:
            self.transport.abort()
        self._await_a_request(None)

    def on_response_complete(self) -> None:
        """Begins to wait for the next request."""
        last = self.cycle  # before the next one, which may have been sent already, takes its place
        super().on_response_complete()
        self._await_a_request(last)

    def pause_writing(self) -> None:
        """Begins to wait for a reader who takes nothing."""
        super().pause_writing()
        self._stuck = self.loop.call_later(self._take_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """He took something."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def _await_a_request(self, last: object) -> None:
        self.loop.call_later(self._head_seconds, self._leave_the_silent, last)

    def _leave_the_silent(self, last: object) -> None:
        if self.cycle is last and not self.transport.is_closing():
            self.transport.close()


class PeerProtocol(PatientProtocol):
    """Puts the uid that the kernel vouches for into the state of every request of this connection.

    ``known`` says of a uid whether the socket is there for it: everybody else shares a few places.
    """

    def __init__(self, *args: Any, known: Callable[[int], bool], **more: Any) -> None:
        super().__init__(*args, **more)
        self._known = known
        self.stranger = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks SO_PEERCRED once; it names whoever called connect()."""
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _pid, uid, _gid = struct.unpack("3i", credentials)
        self.app_state = {**self.app_state, "peer_uid": uid}
        self.stranger = not self._known(uid)
        if self.stranger and sum(getattr(other, "stranger", False) for other in self.connections) > STRANGERS:
            self.transport.abort()


@contextlib.contextmanager
def listening(path: Path, group: str | None, key: str) -> Iterator[socket.socket]:
    """A socket, open to the group if one is named, else to all: the kernel names the caller either way.

    ``key`` is the setting of the group, for the words of the ConfigError that this raises.
    """
    _prepare(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _bind(listener, path)
        ours = _mark(path)
        try:
            _open_to(path, group, key)
            listener.listen(CONNECTIONS)
            yield listener
        finally:
            if _mark(path) == ours:  # a broker with another state folder may have taken the place
                path.unlink(missing_ok=True)


def _bind(listener: socket.socket, path: Path) -> None:
    try:
        listener.bind(str(path))
    except OSError as error:
        mend = f"something else lies there: remove {path}" if path.exists() else _FOLDER
        raise ConfigError(f"cannot listen on {path}: {error.strerror or error}", mend) from None


def _open_to(path: Path, group: str | None, key: str) -> None:
    if group is None:
        path.chmod(0o666)
        return
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except KeyError:
        raise ConfigError(f"there is no group {group!r}", f"correct {key}") from None
    except PermissionError:
        user = _own_name()
        mend = f"usermod -aG {group} {user}, then start the broker anew"
        raise ConfigError(f"{key} = {group}: the broker's user {user} is not in that group", mend) from None
    path.chmod(0o660)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


@contextlib.contextmanager
def listening_tcp(address: str) -> Iterator[socket.socket]:
    """A listener at "host:port", for the forge's calls. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_server((host, int(port)), backlog=CONNECTIONS) as listener:
            yield listener
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {address}: {error}", "correct webhook.listen") from None


def _prepare(path: Path) -> None:
    if not path.parent.exists():
        try:
            path.parent.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"cannot make {path.parent}: {error.strerror}", _FOLDER) from None
        path.parent.chmod(0o755)  # the umask would keep the callers out
    if path.parent.stat().st_mode & 0o022:
        mend = f"chmod go-w {path.parent}"
        raise ConfigError(f"others can write to {path.parent} and put a socket of their own there", mend)
    if problem := ground.folder(path.parent, os.geteuid()):
        raise ConfigError(f"the socket's folder {path.parent} {problem}", "a folder of its own, such as below /run")
    if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
        path.unlink()  # the lock on the state folder says that no living broker listens there


def _mark(path: Path) -> tuple[int, ...] | None:
    """Which socket lies there. The time is among it since a file system gives a freed inode away again."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
