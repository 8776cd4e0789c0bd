"""Strikes secrets out of whatever leaves the process: those that are known, those that look like one, and both encoded.

What it cannot know it cannot strike: a password that nobody named and that looks like a word.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus, unquote

STRUCK = "[redacted]"
LONGEST = 2_000_000  # characters of one text that are looked through; the rest is struck as a whole
DEEPEST = 20  # levels of data
_SHORTEST = 6  # a shorter secret would be found in half of every sentence

# Shapes that issuers publish for their tokens, so that scanners find them.
_SHAPES = re.compile(
    r"""
      \bgh[pousr]_[A-Za-z0-9]{20,255}\b | \bgithub_pat_[A-Za-z0-9_]{20,255}\b       # GitHub
    | \bglpat-[A-Za-z0-9_.-]{20,255}                                               # GitLab
    | \bsk-[A-Za-z0-9_-]{20,255} | \bhf_[A-Za-z0-9]{30,255}\b | \bxox[abprs]-[A-Za-z0-9-]{10,255}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \beyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{8,4096}    # JSON Web Token, RFC 7519
    | \bswc[0-9][.:_-][A-Za-z0-9_.:=-]{16,8192} | \bswt_[A-Za-z0-9_-]{16,255}       # a capability, a token of our api
    | -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY-----(?:[^-]|-(?!-)){0,20000}(?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY-----)?
    """,
    re.VERBOSE | re.DOTALL,
)
# What a name in front of it makes a secret: a header, a setting, the user-info of a URL (RFC 3986, 3.2.1).
_NAMED = re.compile(
    r"""
      (?P<header>\b(?:proxy-)?authorization["']?\s{0,4}[:=]\s{0,4}["']?(?:bearer|basic|token)?\s{0,4})[^\s"',;]{6,8192}
    | (?P<scheme>\bbearer\s{1,4})[A-Za-z0-9._~+/=-]{12,8192}
    | (?P<key>(?:password|passwd|secret|api[_-]?key|access[_-]?token|auth[_-]?token|capability)
      ["']?\s{0,4}[:=]\s{0,4}["']?)[^\s"',;]{6,8192}
    | (?P<url>\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@"'<>]{1,512}@
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,16384}={0,2}")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}){20,8192}\b")
_WORD = re.compile(r"[^\s\"'<>]{12,16384}")
_SECRET_KEYS = re.compile(r"(?i)(?:^|_|-)(?:password|passwd|secret|api_?key|token|capability|authorization)$")


class Redactor:
    """Strikes secrets. ``secrets`` are those that are known by value; the ones that are too short are left out."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= _SHORTEST}
        forms = sorted({form for secret in known for form in encoded(secret)}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, forms))) if forms else None

    def text(self, text: str) -> str:
        """The text without them, in time linear in its length."""
        over = len(text) > LONGEST
        plain = text[:LONGEST] if over else text
        if self._known is not None:
            plain = self._known.sub(STRUCK, plain)
        plain = _NAMED.sub(_name_kept, _SHAPES.sub(STRUCK, plain))
        for shape, decode in ((_WORD, _from_url), (_HEX, _from_hex), (_BASE64, _from_base64)):
            plain = shape.sub(partial(self._unless_secret, decode), plain)
        return f"{plain}{STRUCK}" if over else plain

    def data(self, value: Any, depth: int = 0) -> Any:
        """JSON data without them; what lies under a key that names a secret is struck whatever it is."""
        if depth > DEEPEST:
            return STRUCK
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(str(key)): STRUCK
                if each and isinstance(each, str) and _SECRET_KEYS.search(str(key))
                else self.data(each, depth + 1)
                for key, each in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.data(each, depth + 1) for each in value]
        return value

    def _unless_secret(self, decode: Callable[[str], str], found: re.Match[str]) -> str:
        decoded = decode(found.group())
        known = self._known is not None and self._known.search(decoded)
        return STRUCK if decoded and (known or _SHAPES.search(decoded) or _telling(decoded)) else found.group()


def encoded(secret: str) -> frozenset[str]:
    """A secret as tools and people write it: plain, quoted for URL and JSON, hex, Base64 whatever stands before it."""
    data = secret.encode()
    found = {secret, json.dumps(secret)[1:-1], quote(secret), quote(secret, safe=""), quote_plus(secret)}
    found |= {data.hex(), data.hex().upper(), secret[::-1], base64.b32encode(data).decode().rstrip("=")}
    found |= {line for line in secret.splitlines() if len(line) > 16}
    for start in range(3):
        whole = base64.b64encode(b"\0" * start + data).decode().rstrip("=")
        kept = whole[(start * 8 + 5) // 6 : (start + len(data)) * 8 // 6]
        found |= {kept, kept.replace("+", "-").replace("/", "_")}
    return frozenset(form for form in found if len(form) >= _SHORTEST)


def _name_kept(found: re.Match[str]) -> str:
    kept = next((word for word in found.groups() if word), "")
    return f"{kept}{STRUCK}@" if found.group("url") else f"{kept}{STRUCK}"


def _telling(text: str) -> bool:
    return any(found.group("url") or found.group("header") for found in _NAMED.finditer(text))


def _from_url(text: str) -> str:
    return unquote(text) if "%" in text else ""


def _from_hex(text: str) -> str:
    return bytes.fromhex(text).decode("utf-8", "replace")


def _from_base64(text: str) -> str:
    body = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
