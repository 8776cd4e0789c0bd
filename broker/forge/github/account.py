"""Whose account the broker's credential is: asked once, so that only what is the broker's own is ever touched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from broker.errors import ForgeError
from broker.forge.github.place import Place
from broker.forge.reading import inside, login
from broker.forge.rest.door import Visit
from broker.forge.rest.problems import Reason

_KEPT = 600.0  # seconds
_NOT_TOLD = {Reason.SCOPE, Reason.ABSENT}


class Account:
    """The login of the credential's user, or of the App's bot; asked anew once in a while, as the file may change."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._place, self._clock = place, clock
        self._lock = threading.Lock()
        self._known: tuple[float, str | None] | None = None

    def login(self, visit: Visit) -> str | None:
        """None where the forge does not tell. Raises ForgeError."""
        with self._lock:
            if self._known is None or self._clock() - self._known[0] > _KEPT:
                self._known = self._clock(), self._of_user(visit) or self._of_app(visit)
            return self._known[1]

    def _of_user(self, visit: Visit) -> str | None:
        try:
            return login(visit.get(self._place.user, doing="the credential's account").mapping().get("login")) or None
        except ForgeError as error:
            if error.reason in _NOT_TOLD:  # an installation of an App is no user
                return None
            raise

    def _of_app(self, visit: Visit) -> str | None:
        """GraphQL alone tells an App's token who it is."""
        query: dict[str, Any] = {"query": "query { viewer { login } }"}
        try:
            told = visit.post(self._place.graphql, query, doing="the App's account", again=True).mapping()
        except ForgeError as error:
            if error.reason in _NOT_TOLD:
                return None
            raise
        return login(inside(told, "data", "viewer", "login")) or None
