"""How a secret shows up in text: as it is, and in the encodings that tools and people put it into."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_SHORTEST = 6  # anything shorter would be found in half of every sentence
_SHORTEST_BEGINNING = 8  # shorter ones end many a commit's id by chance


def disguises(value: str) -> frozenset[str]:
    """Its forms: raw, reversed, quoted for URL and JSON, hex, Base32, Base64 whatever stands before it.

    Letters keep their case; whoever looks for more compares in lower case. Of many lines each long one counts alone.
    """
    data = value.encode()
    found = {value, value[::-1], json.dumps(value)[1:-1], repr(value)[1:-1]}
    for quoted in (quote(value), quote(value, safe=""), quote_plus(value)):
        found |= {quoted, _ESCAPE.sub(lambda escape: escape.group().lower(), quoted)}
    found |= {data.hex(), data.hex().upper(), data.hex(" "), data.hex(":")}
    found |= {"".join(f"%{byte:02x}" for byte in data), "".join(f"%{byte:02X}" for byte in data)}
    found |= {"".join(f"\\x{byte:02x}" for byte in data), "".join(f"\\u{byte:04x}" for byte in data)}
    found |= {line for line in value.splitlines() if len(line) > 16}
    found.add(base64.b32encode(data).decode().rstrip("="))
    for way in (data, data[::-1]):
        for start in range(3):
            found |= _base64_inside(way, start)
    return frozenset(form for form in found if len(form) >= _SHORTEST)


def struck(text: str, forms: Iterable[str], mark: str) -> str:
    """The text with these struck out, at its end also the beginning of one: somebody may have cut it there."""
    for form in forms:
        if form in text:
            text = text.replace(form, mark)
        if (at := text.rfind(form[:_SHORTEST_BEGINNING], max(len(text) - len(form), 0))) >= 0:
            text = text[:at] + mark if form.startswith(text[at:]) else text
    return text


def _base64_inside(data: bytes, start: int) -> set[str]:
    """The part of a Base64 text that ``data`` alone decides, when it begins ``start`` bytes into a group of three."""
    plain = base64.b64encode(b"\0" * start + data).decode().rstrip("=")
    first = (start * 8 + 5) // 6
    last = (start + len(data)) * 8 // 6
    kept = plain[first:last]
    return {kept, kept.replace("+", "-").replace("/", "_")}
