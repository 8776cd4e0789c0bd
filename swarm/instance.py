"""One daemon per state folder, and one unix socket that is surely ours."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from swarm.config import DaemonConfig
from swarm.errors import DaemonError


@contextlib.contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the state folder's lock. Raises DaemonError with the pid of whoever holds it."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(state / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        mend = "give daemon.state a folder that this user may write"
        raise DaemonError(f"the state folder {state} cannot be used: {error.strerror}", mend) from error
    try:
        _lock(handle, state)
        _name_ourselves(handle, state)
        yield
    finally:
        os.close(handle)


def _name_ourselves(handle: int, state: Path) -> None:
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        mend = "see whether its disk is full"
        raise DaemonError(f"the state folder {state} cannot be written to: {error.strerror}", mend) from error


def _lock(handle: int, state: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
        mend = f"use that one, or stop it first: kill {pid}"
        raise DaemonError(f"a daemon is running on {state} already, as process {pid}", mend) from None


@contextlib.contextmanager
def listening(config: DaemonConfig) -> Iterator[socket.socket]:
    """A socket bound to the configured path, for the owner and the configured group. Raises DaemonError.

    What lies at the path is removed only when it is a socket that nobody answers at.
    """
    path = config.socket
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            _bind(listener, path)
            _admit(path, config.socket_group)
            listener.listen(128)
            mark = socket_mark(path)
            try:
                yield listener
            finally:
                remove_socket(path, mark)
    except OSError as error:
        raise DaemonError(f"cannot listen at {path}: {error.strerror or error}", "see daemon.socket") from error


def socket_mark(path: Path) -> tuple[int, ...] | None:
    """Which socket lies at a path; None for none. The time is among it since a freed inode is given away again."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def remove_socket(path: Path, mark: tuple[int, ...] | None) -> None:
    """Remove the socket that had this mark, unless another daemon's is there by now."""
    with contextlib.suppress(OSError):
        if mark is not None and socket_mark(path) == mark:
            path.unlink()


def _bind(listener: socket.socket, path: Path) -> None:
    before = os.umask(0o177)  # nobody else may connect before the rights are set
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)


def _admit(path: Path, group: str | None) -> None:
    if group is None:
        return
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        raise DaemonError(f"there is no group {group}", "create it, or leave out daemon.socket_group") from None
    os.chown(path, -1, gid)
    path.chmod(0o660)


def _clear(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise DaemonError(f"{path} is there already and is no socket", "move it away, or name another daemon.socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except TimeoutError:
            pass
    raise DaemonError(f"somebody answers at {path} already", "stop that daemon, or name another daemon.socket")
