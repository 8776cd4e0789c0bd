"""What was denied on the way out: frozen records, a bounded log of them, and one line each of the logger."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field

from sandbox.types import Frozen

LOGGER = logging.getLogger("sandbox.egress")
TASK, KIND = "task", "kind"  # the labels that name the task, and what a sandbox is for
LOUD = frozenset({1, 10, 100, 1_000, 10_000, 100_000, 1_000_000})  # repetitions that get a line of their own

_Key = tuple[str, ...]


class Attempted(Frozen):
    """What somebody inside tried. Text as it came: it is cleaned where it is written down."""

    host: str = ""
    port: int = 0
    method: str = ""
    path: str = ""


class Denied(Frozen):
    """One thing that was not let out; ``count`` of them, the last at ``time``."""

    time: float = Field(description="seconds since the epoch, of the last one")
    exit: Literal["model", "packages"]
    task: str
    kind: str = Field(description="what the sandbox was for: work, check, setup")
    host: str
    port: int
    method: str
    path: str
    reason: str
    count: int = 1

    @property
    def line(self) -> str:
        """One line for a log."""
        where = f"{self.host}:{self.port}" if self.host else "-"
        times = f" ({self.count} times)" if self.count > 1 else ""
        what = f"{self.method or '-'} {where} {self.path or '-'}: {self.reason}{times}"
        return f"denied task={self.task or '-'} kind={self.kind or '-'} exit={self.exit} {what}"


class DeniedLog:
    """The last ``capacity`` different denials. The same again is counted; a task gets ``lines`` lines."""

    def __init__(
        self,
        on_denied: Callable[[Denied], None] | None = None,
        *,
        capacity: int = 1_000,
        lines: int = 200,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._on_denied = on_denied
        self._capacity = capacity
        self._lines = lines
        self._clock = clock
        self._records: OrderedDict[_Key, Denied] = OrderedDict()
        self._told: OrderedDict[str, int] = OrderedDict()

    @property
    def records(self) -> tuple[Denied, ...]:
        """What is kept, the one denied last at the end."""
        return tuple(self._records.values())

    def of(self, task: str, kind: str | None = None) -> tuple[Denied, ...]:
        """What is kept of one task; with ``kind`` of its sandboxes of that kind alone."""
        return tuple(r for r in self._records.values() if r.task == task and kind in {None, r.kind})

    def note(
        self, way: Literal["model", "packages"], labels: Mapping[str, str], attempted: Attempted, reason: str
    ) -> Denied:
        """Write one denial down. The path is no part of what makes two the same: it is the attacker's to vary."""
        fresh = Denied(
            time=self._clock(),
            exit=way,
            task=cleaned(labels.get(TASK, ""), 128),
            kind=cleaned(labels.get(KIND, ""), 32),
            host=cleaned(attempted.host, 255),
            port=attempted.port,
            method=cleaned(attempted.method, 20),
            path=cleaned(attempted.path, 200),
            reason=cleaned(reason, 400),
        )
        key = (fresh.exit, fresh.task, fresh.kind, fresh.host, str(fresh.port), fresh.method, fresh.reason)
        before = self._records.pop(key, None)
        record = fresh.model_copy(update={"count": before.count + 1}) if before else fresh
        self._records[key] = record
        if len(self._records) > self._capacity:
            self._records.popitem(last=False)
        if record.count in LOUD:
            self._tell(record)
        return record

    def _tell(self, record: Denied) -> None:
        told = self._told.pop(record.task, 0) + 1
        self._told[record.task] = told
        if len(self._told) > self._capacity:
            self._told.popitem(last=False)
        if told > self._lines:
            return
        LOGGER.warning("%s", record.line)
        if told == self._lines:
            LOGGER.warning("denied task=%s: further denials are kept, not told", record.task or "-")
        if self._on_denied:
            self._on_denied(record)


def cleaned(text: str, most: int) -> str:
    """Text from inside as it may stand in a log: one line, no control or formatting characters, at most ``most``."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"
