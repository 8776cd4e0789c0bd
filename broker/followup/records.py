"""Lines of the log that strangers can cause: so many in an hour, then one that says that more is left out."""

from __future__ import annotations

from collections.abc import Callable

from broker.audit import Audit

PER_HOUR = 100


class Recorder:
    """Of one repository."""

    def __init__(self, repository: str, audit: Audit, clock: Callable[[], float]) -> None:
        self._repository = repository
        self._audit = audit
        self._clock = clock
        self._hour = 0.0
        self._count = 0

    def note(self, event: str, **fields: str | float) -> None:
        """Appends a line, unless this hour has had enough of them."""
        now = self._clock()
        if now - self._hour >= 3600:
            self._hour, self._count = now, 0
        self._count += 1
        if self._count <= PER_HOUR:
            self._audit.append(event, repository=self._repository, **fields)
        elif self._count == PER_HOUR + 1:
            self._audit.append(event, repository=self._repository, reason="more of the same is left out for an hour")
