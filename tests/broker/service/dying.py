"""A delivery's rows at which a test lets the broker die."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from broker.delivery.courier import STEPS
from broker.outbox.steps import Steps

NAMES = tuple(step.name for step in STEPS if not step.updates)
MOMENTS = tuple(itertools.product(NAMES, ("begin", "end"), ("before", "after")))


class Killed(BaseException):
    """What a SIGKILL looks like from inside: nothing after it runs."""


class Fatal(Steps):
    """Dies right before or right after one row is written."""

    moment: tuple[str, str, str] | None = None

    def begin(self, proposal: str, name: str) -> None:
        self._row(name, "begin", lambda: super(Fatal, self).begin(proposal, name))

    def end(self, proposal: str, name: str, result: str) -> None:
        self._row(name, "end", lambda: super(Fatal, self).end(proposal, name, result))

    def _row(self, name: str, which: str, write: Callable[[], None]) -> None:
        if self.moment == (name, which, "before"):
            raise Killed
        write()
        if self.moment == (name, which, "after"):
            raise Killed
