"""One broker per state folder by a lock that dies with its holder, a second that waits, and a word to systemd."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from broker.errors import ConfigError

_LOOK_SECONDS = 0.2


@contextlib.contextmanager
def alone(state: Path, *, standby: bool = False, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the state folder for this process.

    ``standby`` waits while another broker holds it, after one call of ``waiting``. Raises ConfigError if the folder is
    open to others, and without ``standby`` if another broker works there.
    """
    _own(state)
    with (state / "lock").open("w") as lock:
        if not _taken(lock):
            if not standby:
                mend = "stop it first, or let this one wait for it: serve --standby"
                raise ConfigError(f"another broker works in {state}", mend)
            waiting()
            while not _taken(lock):
                time.sleep(_LOOK_SECONDS)
        yield


def _own(state: Path) -> None:
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        mend = f"as root: install -d -m 700 -o {os.geteuid()} {state}"
        raise ConfigError(f"the state folder {state} cannot be made: {error.strerror}", mend) from None
    info = state.stat()
    if info.st_uid != os.geteuid() or info.st_mode & 0o077:
        mend = f"chown {os.geteuid()} {state}; chmod 700 {state}"
        raise ConfigError(f"the state folder {state} must belong to the broker's user alone", mend)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def end_children() -> None:
    """Kills what this process started, with all that shares a child's own group; for an end that waits for nobody.

    Whatever a child put into a session of its own is systemd's to end (KillMode=control-group), or the container's.
    """
    for child in _children():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(child) == child:  # never the group that the broker itself is in
                os.killpg(child, signal.SIGKILL)
            else:
                os.kill(child, signal.SIGKILL)


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end while we look
            found.update(int(word) for word in (task / "children").read_text().split())
    return found


def notify(word: str) -> None:
    """Tells systemd how far this service is; nothing where it was not started by it. Source: sd_notify(3)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place[:1] not in {"/", "@"}:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        manager.sendto(word.encode(), place.replace("@", "\0", 1) if place.startswith("@") else place)
