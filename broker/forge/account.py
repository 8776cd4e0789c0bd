"""Whose account the credential is, asked once in a while: what the broker may touch is what that account opened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from broker.errors import ForgeError
from broker.forge.reading import login
from broker.forge.rest.door import Visit
from broker.forge.rest.problems import Reason

_KEPT = 600.0  # seconds


class Account:
    """The login behind the credential; ``key`` is what the forge's answer to GET /user calls it."""

    def __init__(self, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._key, self._clock = key, clock
        self._lock = threading.Lock()
        self._known: tuple[float, str | None] | None = None

    def name(self, visit: Visit) -> str | None:
        """In lower case, as forges compare it; None if the credential may not read it. Raises ForgeError."""
        with self._lock:
            if self._known is None or self._clock() - self._known[0] > _KEPT:
                self._known = self._clock(), self._asked(visit)
            return self._known[1]

    def _asked(self, visit: Visit) -> str | None:
        try:
            told = visit.get("/user", doing="the credential's account").mapping().get(self._key)
        except ForgeError as error:
            if error.reason != Reason.SCOPE:
                raise
            return None
        return login(told).lower() or None
