"""Strikes every secret that this process lent from any text, in the forms in which it would show up there."""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections import OrderedDict
from urllib.parse import quote, quote_plus

from pydantic import SecretStr

STRUCK = "[secret]"
_KEPT = 128
_SHORTEST = 6  # anything shorter would strike half of every sentence


class Redactor:
    """Knows the newest secrets by value: a message about a call may be written long after the token was given back.

    They live in this process's memory alone, which nobody else can read (`hardening`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def learn(self, secret: SecretStr) -> None:
        """Strikes this one from now on. The oldest are forgotten: tokens that an App minted are void by then."""
        value = secret.get_secret_value()
        with self._lock:
            if value not in self._forms:
                self._forms[value] = tuple(sorted(forms(value), key=len, reverse=True))
            self._forms.move_to_end(value)
            while len(self._forms) > _KEPT:
                self._forms.popitem(last=False)

    def __call__(self, text: str) -> str:
        """The text without them."""
        with self._lock:
            known = [form for found in reversed(self._forms.values()) for form in found]
        for form in known:
            if form in text:
                text = text.replace(form, STRUCK)
        return text


def forms(value: str) -> set[str]:
    """How a secret shows up: as it is, quoted for URL and JSON, as hex, and in Base64 whatever stands before it."""
    data = value.encode()
    found = {value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1], repr(value)[1:-1]}
    found |= {binascii.hexlify(data).decode(), binascii.hexlify(data).decode().upper()}
    found |= {line for line in value.splitlines() if len(line) > 16}  # a key of many lines, shown line by line
    for start in range(3):
        found |= _base64_inside(data, start)
    return {form for form in found if len(form) >= _SHORTEST}


def _base64_inside(data: bytes, start: int) -> set[str]:
    """The part of a Base64 text that ``data`` alone decides, when it begins ``start`` bytes into a group of three."""
    plain = base64.b64encode(b"\0" * start + data).decode().rstrip("=")
    first = (start * 8 + 5) // 6
    last = (start + len(data)) * 8 // 6
    kept = plain[first:last]
    return {kept, kept.replace("+", "-").replace("/", "_")}
