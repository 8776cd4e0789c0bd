"""What the daemon says about itself: text or one JSON object a line, without secrets and control characters."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TextIO

from swarm.telemetry.redaction import Redactor
from swarm.telemetry.spans import trace_id

_BUSY = ("httpx", "alembic", "uvicorn.error")  # what they say at info, the daemon says itself or nobody needs
LONGEST = 20_000  # characters of one line's message; a model's output may be in it

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_about: ContextVar[dict[str, str] | None] = ContextVar("about", default=None)


@contextmanager
def about(**facts: str) -> Iterator[None]:
    """What lines said inside the block are about: ``task``, ``attempt``. Kept apart between tasks of the loop."""
    token = _about.set({**(_about.get() or {}), **facts})
    try:
        yield
    finally:
        _about.reset(token)


class TextFormatter(logging.Formatter):
    """Lines without control characters and without those that turn text around: models write into them.

    Further lines of a message or a traceback are indented, so that none of them passes for one of the log's own.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return _clean(self._redactor.text(super().format(record))).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """One object a line: time (RFC 3339, UTC), level, logger, message, what it is about, trace_id, exception."""

    def __init__(self, redactor: Redactor, host: str) -> None:
        super().__init__()
        self._redactor = redactor
        self._host = host

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        facts = _about.get() or {}
        told: dict[str, str] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._cleaned(record.getMessage()),
            "host": self._host,
            **facts,
        }
        if task := facts.get("task"):
            told["trace_id"] = f"{trace_id(task):032x}"
        if record.exc_info:
            told["exception"] = self._cleaned(self.formatException(record.exc_info))
        return json.dumps(told, ensure_ascii=False)

    def _cleaned(self, text: str) -> str:
        return _clean(self._redactor.text(text))


def configure(
    form: Literal["text", "json"],
    level: str,
    redactor: Redactor,
    *,
    host: str = "",
    stream: TextIO | None = None,
) -> None:
    """Have everything logged in one form, unless somebody else (a test) has said how before."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(redactor, host) if form == "json" else TextFormatter(redactor))
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _BUSY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _clean(text: str) -> str:
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text) - LONGEST} more characters)"
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", short)
