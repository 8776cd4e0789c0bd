"""Keeps the addresses of servers out of what clients are told: they see names of endpoints and reasons; pure.

Messages quote what a server, a proxy before it or the network library said, so known addresses are looked for as well
as whatever has the form of one. Pages of public hosts, which error messages point to, stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

HIDDEN = "[address]"
ONE_SLASH = r"(?:https?|wss?|tcp|grpc|zmq|ipc|unix)(?:\+\w+)?:\\?/"
ENCODED = r"[a-z][a-z\d+]{1,15}%3a%2f"
URL = re.compile(rf"\b(?:{ONE_SLASH}|[a-z][a-z\d+]{{1,15}}:\\?/\\?/|{ENCODED})[^\s'\"<>()]+", re.IGNORECASE)
PAIR = re.compile(r"""\(\s*(['"])[^'"\s]{1,255}\1\s*,\s*\d{1,5}(?:\s*,\s*\d+\s*,\s*\d+)?\s*\)""")  # ('host', 80)
FOUR = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?[^\W_])(?::\d{1,5})?")
SIX = re.compile(r"\[?(?<![\w:.])((?:[\da-fA-F]{0,4}:){2,7}[\da-fA-F.]*)(?:%\w+)?(?![\w:])(?:\](?::\d{1,5})?)?")
NAMED = re.compile(r"(?<![\w.@/-])(localhost|[\w-]{1,63}(?:\.[\w-]{1,63}){1,12}):\d{2,5}\b", re.IGNORECASE)
INNER = re.compile(
    r"(?<![\w.@-])(?:[\w-]{1,63}\.){1,12}(?:localhost|local|internal|lan|svc|intranet|corp)\b(?![\w-]|\.\w)",
    re.IGNORECASE,
)
SOCKET = re.compile(
    r"(?<![\w.])/(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.(?:sock|socket|ipc)\b|(?<![\w.])/(?:var/)?run/[\w./@+-]+"
)
SOURCES = {"py", "c", "cc", "cpp", "cu", "cuh", "h", "hpp", "rs", "go", "js", "ts", "json", "toml", "yaml", "yml"}
PUBLIC = {"com", "net", "org", "io", "dev", "ai", "cloud", "app", "edu"}  # some ends of names that are hosts
VERSIONED = re.compile(  # what stands before a version of four numbers
    r"\b(?:version|release|section|build|cuda|cudnn|cublas|nccl|rocm|driver|nvlink|python|torch|pytorch)[ :=]{1,2}$",
    re.IGNORECASE,
)
PRIVATE = {"localhost", "local", "internal", "lan", "svc", "cluster", "intranet", "corp", "home", "arpa", "test"}
FEWEST = 4  # characters of a host's own name that are looked for wherever they stand


def hidden(text: str, urls: Iterable[str] = ()) -> str:
    """The text without addresses: those in ``urls``, and all else that looks like one (URL, IP, host:port, socket)."""
    for known in _names(urls):
        text = re.sub(rf"(?<![\w.-]){re.escape(known)}(?![\w-]|\.\w)", HIDDEN, text, flags=re.IGNORECASE)
    text = URL.sub(lambda found: found[0] if _public(found[0]) else HIDDEN, text)
    for pattern in (PAIR, SOCKET):
        text = pattern.sub(HIDDEN, text)
    text = NAMED.sub(lambda found: found[0] if _place(found[1]) else HIDDEN, text)
    text = INNER.sub(HIDDEN, text)
    text = FOUR.sub(lambda found: found[0] if _version(found) else HIDDEN, text)
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
        parts = urlsplit(unquote(url).replace("\\/", "/"))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    *_, last = labels = host.split(".")
    named = len(labels) > 1 and last.isalpha() and not PRIVATE & set(labels)
    return parts.scheme in ("http", "https") and named and port is None


def _place(name: str) -> bool:
    """Whether a dotted name before a colon and a number is a place in a source file or in a body, and no host."""
    *before, last = labels = name.lower().split(".")
    if len(labels) < 2 or last in PRIVATE | PUBLIC:
        return False
    numbers = sum(label.isdigit() for label in before)
    return last.isdigit() or (len(labels) == 2 and last in SOURCES) or (0 < numbers < 3 and not before[0].isdigit())


def _version(found: re.Match[str]) -> bool:
    """Whether four numbers are none of an address, or a version by the word before them."""
    address, colon, _ = found[0].partition(":")
    if not _is_ip(address):
        return True
    told = VERSIONED.search(found.string, max(0, found.start() - 20), found.start())
    return told is not None and not colon and ipaddress.ip_address(address).is_global


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
