"""The kill switch: a person stops grants and deliveries, in one repository or in all, across restarts."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from pydantic import ValidationError

from broker.errors import ConfigError, ConflictError, StoppedError
from broker.person_wire import Stop, StopRequest
from broker.person_wire import Stops as Listed
from broker.service.ward import Desk

_MAX_BYTES = 1 << 20


class Stops:
    """What is stopped now; ``enabled = false`` in the settings is a stop too. Safe to use from several threads."""

    def __init__(self, desk: Desk, state: Path) -> None:
        """Raises ConfigError if what was written down cannot be read: to go on would be to ignore a stop."""
        self._desk = desk
        self._path = state / "stops.json"
        self._lock = threading.Lock()
        self._kept = _read(self._path)

    def listing(self) -> Listed:
        """All in force: a person's, then those of the settings."""
        return Listed(stops=(*self._kept, *self._of_settings()))

    def set(self, request: StopRequest, by_uid: int) -> Listed:
        """Stops, or takes a person's stop back. Raises AbsentError, and ConflictError where there is none to take."""
        if request.repository is not None:
            self._desk.wards.get(request.repository)
        with self._lock:
            held = [stop for stop in self._kept if stop.repository == request.repository]
            rest = [stop for stop in self._kept if stop.repository != request.repository]
            if not request.stopped and not held:
                raise ConflictError(f"no person stopped {_words(request.repository)}", _still(self._of_settings()))
            new = Stop(repository=request.repository, by=by_uid, at=self._desk.clock(), reason=request.reason)
            kept = (*rest, new) if request.stopped else tuple(rest)
            _write(self._path, kept)
            self._kept = kept
        event = "stopped" if request.stopped else "resumed"
        self._desk.audit.append(event, uid=by_uid, repository=request.repository or "", reason=request.reason)
        return self.listing()

    def require_running(self, repository: str) -> None:
        """Raises StoppedError, with who and why, if neither grants nor deliveries may happen there now."""
        for stop in self.listing().stops:
            if stop.repository in {None, repository}:
                raise _error(stop)

    def _of_settings(self) -> tuple[Stop, ...]:
        config = self._desk.current()
        names: list[str | None] = [] if config.enabled else [None]
        names += [name for name, repository in config.repositories.items() if not repository.enabled]
        return tuple(Stop(repository=name, by=None, at=0.0, reason=_SETTINGS) for name in names)


_SETTINGS = "enabled = false in broker.toml"


def _words(repository: str | None) -> str:
    return "every repository" if repository is None else f"the repository {repository}"


def _error(stop: Stop) -> StoppedError:
    who = "the operator" if stop.by is None else f"uid {stop.by}"
    end = "the operator sets enabled = true" if stop.by is None else f"a person ends it: {_command(stop.repository)}"
    why = f": {stop.reason}" if stop.reason else ""
    mend = f"{end}; nothing is lost meanwhile, propose it again then"
    return StoppedError(f"{_words(stop.repository)} was stopped by {who}{why}", mend)


def _command(repository: str | None) -> str:
    return f"swarm-broker go {repository}" if repository else "swarm-broker go"


def _still(stops: tuple[Stop, ...]) -> str:
    return "what is stopped in broker.toml is started there" if stops else "nothing is stopped there"


def _read(path: Path) -> tuple[Stop, ...]:
    try:
        with path.open("rb") as file:
            return Listed.model_validate_json(file.read(_MAX_BYTES)).stops
    except FileNotFoundError:
        return ()
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not what the broker writes"
        mend = "restore it, or remove it and stop again what is to be stopped"
        raise ConfigError(f"{path} says what a person stopped, and cannot be read: {why}", mend) from None


def _write(path: Path, stops: tuple[Stop, ...]) -> None:
    fresh = path.with_suffix(".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(Listed(stops=stops).model_dump_json().encode())
        file.flush()
        os.fsync(handle)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
