"""Strikes every secret that this process lent from any text, in the forms in which it would show up there."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from pydantic import SecretStr

from broker.disguises import disguises, struck

STRUCK = "[secret]"
_KEPT = 128


class Redactor:
    """Knows the newest secrets by value: a message about a call may be written long after the token was given back.

    They live in this process's memory alone, which nobody else can read (`hardening`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def learn(self, secret: SecretStr) -> None:
        """Strikes this one from now on. The oldest of 128 are forgotten: tokens that an App minted are void by then."""
        value = secret.get_secret_value()
        with self._lock:
            if value not in self._forms:
                self._forms[value] = tuple(sorted(disguises(value), key=len, reverse=True))
            self._forms.move_to_end(value)
            while len(self._forms) > _KEPT:
                self._forms.popitem(last=False)

    def __call__(self, text: str) -> str:
        """The text without them, and without the beginning of one where it was cut. Strike first, cut then."""
        with self._lock:
            known = [form for found in reversed(self._forms.values()) for form in found]
        return struck(text, known, STRUCK)


class RedactingFormatter(logging.Formatter):
    """Formats a line of a log, its traceback included, and strikes the secrets from the whole.

    Further lines of it are indented, so that no message writes one that passes for another of the log's.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(levelname)s: %(name)s: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """The line without secrets."""
        return self._redactor(super().format(record)).replace("\r", "\n").replace("\n", "\n    ")
