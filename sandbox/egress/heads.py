"""What of a request's head is let in, and which of its fields travel on. Pure; h11 does the parsing itself.

h11 forgives what smugglers live on: bare line feeds, folded lines, Content-Length beside Transfer-Encoding (its
documentation, "intentional leniency"; RFC 9112 sections 2.2, 5.2 and 6.1). That is refused here, on the raw bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

Field = tuple[bytes, bytes]

HOP = frozenset(  # RFC 9110 section 7.6.1, and what names a way instead of a thing
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"proxy-authenticate", b"proxy-authorization", b"proxy-authentication-info", b"http2-settings", b"alt-svc"),
        *(b"expect", b"host"),
    }
)
_ONCE = (b"host", b"content-length", b"transfer-encoding")
_BARE = re.compile(rb"(?<!\r)\n")
_ODD = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # in a line without its line end; a tab may be


def fault(head: bytes, most: int) -> str | None:
    """Why this head (up to and without the empty line) may be read in two ways, or None. At most ``most`` fields."""
    lines = head.split(b"\r\n")
    if any(_ODD.search(line) for line in lines):
        return "its head holds a bare line feed, carriage return or control character"
    if any(line[:1] in {b" ", b"\t"} for line in lines):
        return "its head holds a folded line"
    if len(lines) - 1 > most:
        return f"its head holds more than {most} fields"
    names = [line.split(b":", 1)[0].strip().lower() for line in lines[1:]]
    for name in _ONCE:
        if names.count(name) > 1:
            return f"its head names {name.decode()} twice"
    if b"content-length" in names and b"transfer-encoding" in names:
        return "its head names content-length beside transfer-encoding"
    return None


def hopeless(start: bytes | bytearray) -> str | None:
    """Why the beginning of a head cannot become one, or None: told at once, where waiting would only time out."""
    if not start[:1].isalpha():
        return "it is not HTTP (TLS begins with a CONNECT here)"
    return "its head holds a bare line feed" if _BARE.search(start) else None


def onward(fields: Iterable[Field], passed: Collection[str]) -> list[Field]:
    """The fields that travel on: those that ``passed`` names (``x-*`` names all that begin so), never a hop's own."""
    fields = list(fields)
    named = _named_by_connection(fields)
    whole = {name.encode() for name in passed if not name.endswith("*")}
    begins = tuple(name[:-1].encode() for name in passed if name.endswith("*"))
    return [
        (name, value)
        for name, value in fields
        if name not in HOP and name not in named and (name in whole or name.startswith(begins))
    ]


def homeward(fields: Iterable[Field], kept_back: Collection[bytes] = ()) -> list[Field]:
    """The fields of an answer that are told inside: all but a hop's own and what is kept back."""
    lower = [(name.lower(), value) for name, value in fields]
    named = _named_by_connection(lower)
    return [(n, v) for n, v in lower if n not in HOP and n not in named and n not in kept_back]


def value_of(fields: Iterable[Field], name: bytes) -> str | None:
    """The first field of that name, as text."""
    return next((value.decode("latin-1") for key, value in fields if key == name), None)


def _named_by_connection(fields: Iterable[Field]) -> set[bytes]:
    told = [value for name, value in fields if name == b"connection"]
    # What frames the message is never left out by a field from outside.
    return {word.strip().lower() for value in told for word in value.split(b",")} - {b"content-length"}
