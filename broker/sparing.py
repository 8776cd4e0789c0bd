"""Keeps standard error from being filled: what is logged again and again is said a few times a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

PER_MINUTE = 10
_MINUTE = 60.0


class Sparing(logging.Filter):
    """Lets so many records of each logger through in a minute; whoever can connect can cause some of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._records: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is said."""
        with self._lock:
            if self._clock() - self._began >= _MINUTE:
                self._began = self._clock()
                self._records.clear()
            said = self._records[record.name] = self._records.get(record.name, 0) + 1
            return said <= PER_MINUTE
