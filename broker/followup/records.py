"""Lines of the log that strangers can cause, of one repository."""

from __future__ import annotations

from collections.abc import Callable

from broker.audit import Audit
from broker.rationing import Rationing


class Recorder:
    """Of one repository."""

    def __init__(self, repository: str, audit: Audit, clock: Callable[[], float]) -> None:
        self._repository = repository
        self._rationing = Rationing(audit, clock)

    def note(self, event: str, **fields: str | float) -> None:
        """Appends a line, unless this hour has had enough of them."""
        self._rationing.append(self._repository, event, repository=self._repository, **fields)
