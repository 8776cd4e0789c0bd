"""Keeps the addresses of servers out of what clients are told: they see names of endpoints and reasons; pure.

Messages quote what a server, a proxy before it or the network library said, so known addresses are looked for as well
as whatever has the form of one. Pages of public hosts, which error messages point to, stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

HIDDEN = "[address]"
URL = re.compile(r"\b(?:https?|wss?|tcp|grpc|zmq|ipc|unix)(?:\+\w+)?:/[^\s'\"<>()]+")
PAIR = re.compile(r"""\(\s*(['"])[^'"\s]{1,255}\1\s*,\s*\d{1,5}(?:\s*,\s*\d+\s*,\s*\d+)?\s*\)""")  # ('host', 80)
FOUR = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w)(?::\d{1,5})?")
SIX = re.compile(r"\[?(?<![\w:.])((?:[\da-fA-F]{0,4}:){2,7}[\da-fA-F.]*)(?:%\w+)?(?![\w:])(?:\](?::\d{1,5})?)?")
NAMED = re.compile(r"(?<![\w.@/-])(?:localhost|[\w-]{1,63}(?:\.[\w-]{1,63}){1,12}):\d{2,5}\b")
INNER = re.compile(
    r"(?<![\w.@-])(?:[\w-]{1,63}\.){1,12}(?:localhost|local|internal|lan|svc|intranet|corp)\b(?![\w-]|\.\w)"
)
SOCKET = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.(?:sock|socket)\b|(?<![\w.])/(?:var/)?run/[\w./@+-]+")
PRIVATE = {"localhost", "local", "internal", "lan", "svc", "cluster", "intranet", "corp", "home", "arpa", "test"}
FEWEST = 4  # characters of a host's own name that are looked for wherever they stand


def hidden(text: str, urls: Iterable[str] = ()) -> str:
    """The text without addresses: those in ``urls``, and all else that looks like one (URL, IP, host:port, socket)."""
    for known in _names(urls):
        text = re.sub(rf"(?<![\w.-]){re.escape(known)}(?![\w-]|\.\w)", HIDDEN, text)
    text = URL.sub(lambda found: found[0] if _public(found[0]) else HIDDEN, text)
    for pattern in (PAIR, SOCKET, NAMED, INNER):
        text = pattern.sub(HIDDEN, text)
    text = FOUR.sub(lambda found: HIDDEN if _is_ip(found[0].partition(":")[0]) else found[0], text)
    return SIX.sub(lambda found: HIDDEN if _is_ip(found[1]) else found[0], text)


def _names(urls: Iterable[str]) -> list[str]:
    """What a message may call these servers, the longest first. A bare host without a dot may be any word."""
    found: set[str] = set()
    for url in urls:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            continue
        found |= {url, url.rstrip("/"), parts.netloc, f"{host}:{port or 80}"}
        found |= {host} if "." in host and len(host) >= FEWEST else set()
    return sorted(found - {""}, key=len, reverse=True)


def _public(url: str) -> bool:
    """Whether a URL leads to a page of a public host, such as a manual."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    *_, last = labels = host.split(".")
    named = len(labels) > 1 and last.isalpha() and not PRIVATE & set(labels)
    return parts.scheme in ("http", "https") and named and port is None


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
