"""Whose account the broker's credential is: asked once, so that only what is the broker's own is ever touched."""

from __future__ import annotations

import threading
from typing import Any

from broker.errors import ForgeError
from broker.forge.github.place import Place
from broker.forge.reading import inside, login
from broker.forge.rest.door import Door, Visit
from broker.forge.rest.problems import Reason
from broker.scope import Scope

_NOT_TOLD = {Reason.SCOPE, Reason.ABSENT}


class Account:
    """The login of the credential's user, or of the App's bot."""

    def __init__(self, place: Place, door: Door) -> None:
        self._place, self._door = place, door
        self._lock = threading.Lock()
        self._asked = False
        self._login: str | None = None

    def login(self) -> str | None:
        """Asks the forge the first time; None where it does not tell. Raises ForgeError."""
        with self._lock:
            if not self._asked:
                with self._door.visit(Scope.READ) as visit:
                    self._login = self._of_user(visit) or self._of_app(visit)
                self._asked = True
            return self._login

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
