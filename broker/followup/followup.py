"""The follow-up of all repositories: a poller each, started after the broker has reconciled, ended with it."""

from __future__ import annotations

import time
from collections.abc import Callable

from broker.errors import FencedError
from broker.followup.parts import Followed
from broker.followup.poller import Poller
from broker.followup.records import Recorder
from broker.followup.status import Sticky
from broker.followup.taking import Taking
from broker.followup.watching import Watching

TIDY = 6 * 3600.0  # seconds between two tidyings of a mirror


class Follower:
    """One repository's looks."""

    def __init__(self, followed: Followed) -> None:
        self._of = followed
        self._tidied = 0.0
        recorder = Recorder(followed.name, followed.audit, followed.clock)
        self._taking = Taking(followed, recorder)
        self._watching = Watching(followed, recorder, Sticky(followed))

    def look(self) -> None:
        """One look at everything that the settings want followed; none of the forge's time if that is nothing."""
        self._of.newest()
        now = self._of.clock()
        if now - self._tidied >= TIDY:
            self._tidied = now
            self._of.tidy()
        intake = self._of.settings().intake
        if intake.label is not None or intake.command is not None:
            self._taking.look()
        self._watching.look()


class Followup:
    """All of them. ``start`` and ``close`` once each; ``hint`` from any thread."""

    def __init__(self, followed: tuple[Followed, ...], fenced: Callable[[FencedError], None]) -> None:
        self._pollers = {
            one.name: Poller(
                one.name,
                Follower(one).look,
                lambda one=one: one.settings().follow.poll_seconds,  # type: ignore[misc]
                lambda reason, one=one: _report(one, reason),  # type: ignore[misc]
                fenced=fenced,
            )
            for one in followed
        }

    def start(self) -> None:
        """Begins to look."""
        for poller in self._pollers.values():
            poller.start()

    def hint(self, repository: str) -> None:
        """A forge says that something changed there. An unknown name is nothing."""
        poller = self._pollers.get(repository)
        if poller is not None:
            poller.hint()

    def close(self, patience: float = 10.0) -> None:
        """Ends all looks; those under way may finish for ``patience`` seconds together."""
        for poller in self._pollers.values():
            poller.stop()
        until = time.monotonic() + patience
        for poller in self._pollers.values():
            poller.close(max(0.0, until - time.monotonic()))


def _report(one: Followed, reason: str) -> None:
    if reason:
        one.audit.append("look-failed", repository=one.name, reason=reason)
    else:
        one.audit.append("look-again", repository=one.name)
