"""Lines of the log that others can cause as often as they like: so many in an hour, then one that says so."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from broker.audit import Audit

PER_HOUR = 100
_HOUR = 3600.0
_REMEMBERED = 10_000


@dataclass
class _Hour:
    began: float
    lines: int = 0


class Rationing:
    """An hour's ration for each event of each of those who cause it. Used from several threads.

    The log is never rotated and is read whole at every start, so that nobody without a say in it may fill it.
    """

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.time) -> None:
        self._audit = audit
        self._clock = clock
        self._lock = threading.Lock()
        self._hours: OrderedDict[tuple[str, str], _Hour] = OrderedDict()

    def append(self, whose: str, event: str, **fields: str | float) -> None:
        """Appends a line, unless the ration is used up; ``whose`` is a grant, a proposal, a uid or a repository."""
        lines = self._count(whose, event)
        if lines <= PER_HOUR:
            self._audit.append(event, **fields)
        elif lines == PER_HOUR + 1:
            more = "more of the same is left out for an hour"
            self._audit.append(event, **{**fields, "reason": more})

    def _count(self, whose: str, event: str) -> int:
        now = self._clock()
        with self._lock:
            hour = self._hours.setdefault((whose, event), _Hour(now))
            if not 0 <= now - hour.began < _HOUR:
                hour.began, hour.lines = now, 0
            hour.lines += 1
            if len(self._hours) > _REMEMBERED:
                self._hours.popitem(last=False)
            return hour.lines
