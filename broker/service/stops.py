"""The kill switch: a person stops grants and deliveries, in one repository or in all, across restarts."""

from __future__ import annotations

from broker.errors import ConflictError, StoppedError
from broker.outbox.stops import StopStore
from broker.person_wire import Stop, StopRequest
from broker.person_wire import Stops as Listed
from broker.service.ward import Desk


class Stops:
    """What is stopped now; ``enabled = false`` in the settings is a stop too. Safe to use from several threads."""

    def __init__(self, desk: Desk, store: StopStore) -> None:
        self._desk = desk
        self._store = store

    def listing(self) -> Listed:
        """All in force: a person's, then those of the settings."""
        return Listed(stops=(*self._store.all(), *self._of_settings()))

    def set(self, request: StopRequest, by_uid: int) -> Listed:
        """Stops, or takes a person's stop back. Raises AbsentError, and ConflictError where there is none to take."""
        place = request.repository
        if place is not None:
            self._desk.wards.get(place)
        if request.stopped:
            self._store.put(Stop(repository=place, by=by_uid, at=self._desk.clock(), reason=request.reason))
        elif not self._store.drop(place):
            raise ConflictError(f"no person stopped {_words(place)}", _still(self._of_settings()))
        event = "stopped" if request.stopped else "resumed"
        self._desk.audit.append(event, uid=by_uid, repository=place or "", reason=request.reason)
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
    mend = f"{end}; what was proposed goes on by itself then, anything else is asked for again"
    return StoppedError(f"{_words(stop.repository)} was stopped by {who}{why}", mend)


def _command(repository: str | None) -> str:
    return f"swarm-broker go {repository}" if repository else "swarm-broker go"


def _still(stops: tuple[Stop, ...]) -> str:
    return "what is stopped in broker.toml is started there" if stops else "nothing is stopped there"
