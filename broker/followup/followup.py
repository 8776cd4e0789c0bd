"""The follow-up of all repositories: a poller each, started and ended with the broker."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from broker.errors import FencedError
from broker.followup.parts import Followed
from broker.followup.poller import Poller
from broker.followup.records import Recorder
from broker.followup.status import Sticky
from broker.followup.taking import Taking
from broker.followup.watching import Watching

CATCH_UP = 30.0  # seconds between two looks of one round
TIDY = 6 * 3600.0  # seconds between two tidyings of a mirror


class Follower:
    """One repository's looks."""

    def __init__(self, followed: Followed) -> None:
        self._of = followed
        self._tidied = 0.0
        self._round = 0.0  # since when each open pull request is to be looked at once
        recorder = Recorder(followed.name, followed.audit, followed.clock)
        self._taking = Taking(followed, recorder)
        self._watching = Watching(followed, recorder, Sticky(followed))

    def look(self, hinted: bool = False) -> None:  # noqa: FBT001, FBT002 - the poller's own word
        """One look at everything that the settings want followed; none of the forge's time if that is nothing.

        A hint begins a round anew: it may be about a pull request that was looked at just before.
        """
        self._of.newest()
        now = self._of.clock()
        if hinted or not self._watching.behind(self._round):
            self._round = now
        if now - self._tidied >= TIDY:
            self._tidied = now
            self._of.tidy()
        intake = self._of.settings().intake
        try:
            if intake.label is not None or intake.command is not None:
                self._taking.look()
        finally:  # what strangers can write keeps nobody from the own pull requests
            self._watching.look()

    def pause(self) -> float:
        """Seconds until the next look: shorter while some pull requests of this round were not looked at."""
        seconds = self._of.settings().follow.poll_seconds
        return min(seconds, CATCH_UP) if self._watching.behind(self._round) else seconds


class Followup:
    """All of them. ``start`` and ``close`` once each; ``hint`` from any thread."""

    def __init__(self, followed: tuple[Followed, ...], fenced: Callable[[FencedError], None]) -> None:
        self._pollers = {one.name: _poller(one, fenced) for one in followed}

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


def _poller(one: Followed, fenced: Callable[[FencedError], None]) -> Poller:
    follower = Follower(one)
    return Poller(one.name, follower.look, follower.pause, functools.partial(_report, one), fenced=fenced)


def _report(one: Followed, reason: str) -> None:
    if reason:
        one.audit.append("look-failed", repository=one.name, reason=reason)
    else:
        one.audit.append("look-again", repository=one.name)
