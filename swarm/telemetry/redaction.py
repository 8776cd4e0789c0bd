"""Strikes secrets out of whatever leaves the process: those that are known, those that look like one, and both encoded.

What it cannot know it cannot strike: a password that nobody named and that looks like a word.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus, unquote

STRUCK = "[redacted]"
LONGEST = 2_000_000  # characters of one text that are looked through; the rest is struck as a whole
DEEPEST = 20  # levels of data
_SHORTEST = 6  # a shorter secret would be found in half of every sentence

Decode = Callable[[str], Iterator[str]]
"""What an encoded text may say: more than one where it is not known where it begins."""

# Shapes that issuers publish for their tokens, so that scanners find them. A name may be glued before: MY_ghp_...
_SHAPES = re.compile(
    r"""
      (?<![A-Za-z0-9])(?:
        gh[pousr]_[A-Za-z0-9]{20,255}\b | github_pat_[A-Za-z0-9_]{20,255}\b         # GitHub
      | gl(?:pat|ptt|dt|rt|soat|agent)-[A-Za-z0-9_.-]{20,255}                       # GitLab
      | sk-[A-Za-z0-9_-]{20,255} | hf_[A-Za-z0-9]{30,255}\b | xox[abprs]-[A-Za-z0-9-]{10,255}
      | npm_[A-Za-z0-9]{36}\b | pypi-[A-Za-z0-9_-]{50,255}
      | (?:AKIA|ASIA)[A-Z0-9]{16}\b
      | eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{4,4096}   # JSON Web Token, RFC 7519
      | swc[0-9][.:_-][A-Za-z0-9_.:=-]{16,8192}                                     # a capability
      | swarm_(?=[^A-Z]{0,42}[A-Z])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])               # a token of our api
      )
    | -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY-----(?:[^-]|-(?!-)){0,20000}(?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY-----)?
    """,
    re.VERBOSE | re.DOTALL,
)
_KEYS = r"""(?:pass(?:word|wd|phrase)|secret|(?:api|access|private)[_-]?key|secret[_-]?(?:access[_-]?)?key
      |access[_-]?token|auth[_-]?token|capability)"""
_QUOTE = r"""\\{0,8}["']"""  # as it stands in JSON, and in JSON that is a text in JSON
# Names of much that is no secret (next_token, primary_key): the value has to look like one too, with letters and digits
# and nothing after it that makes it an expression. "tokens" and "max_tokens" are counts.
_PERHAPS = r"""(?:token(?:(?<![a-z0-9]token)|(?-i:(?<=Token)|(?<=TOKEN)))|(?-i:_(?:KEY|PASS|PWD))|passcode|credentials?
      |(?:encryption|signing|master|deploy|service|account)[_-]?key)"""
_LOOKS = r"""(?=[a-z_~+/.-]{0,128}[0-9])(?=[0-9_~+/.-]{0,128}[a-z])
      [a-z0-9](?:[a-z0-9_~+/-]{7,}+(?![(\[]|\.[a-z0-9_])|[a-z0-9_~+/.-]{23,}+(?![(\[]))={0,2}"""
# What a name in front of it makes a secret: a header, a setting, an option. The first letters stand before all else, so
# that most places of a text cost one comparison.
_NAMED = re.compile(
    rf"""(?-i:(?=[_PpAaBbSsCcTtEeMmDd-]))(?:
      (?P<header>\b(?:proxy-)?authorization(?:{_QUOTE})?\s{{0,4}}[:=]\s{{0,4}}(?:{_QUOTE})?
       (?:bearer|basic|token)?\s{{0,4}})(?:[^\s"',;\\]|\\(?!\\{{0,8}}["'])){{6,8192}}
    | (?P<scheme>\bbearer\s{{1,4}})[A-Za-z0-9._~+/=-]{{12,8192}}
    | (?P<quoted>{_KEYS}(?:{_QUOTE})?\s{{0,4}}[:=]\s{{0,4}}(?P<quote>{_QUOTE}))(?:(?!(?P=quote))[^\r\n]){{6,8192}}
    | (?P<key>{_KEYS}(?:{_QUOTE})?\s{{0,4}}[:=]\s{{0,4}})(?:[^\s"',;\\]|\\(?!\\{{0,8}}["'])){{6,8192}}
    | (?P<assigned>(?-i:_(?:TOKEN|PASS|PWD))=(?:{_QUOTE})?)(?![$<{{(%])(?:[^\s"',;\\]|\\(?!\\{{0,8}}["'])){{6,8192}}
    | (?P<perhaps>{_PERHAPS}(?:{_QUOTE})?\s{{0,4}}[:=]\s{{0,4}}(?:{_QUOTE})?){_LOOKS}
    | (?P<option>--(?:[a-z]{{1,16}}-){{0,3}}(?:password|token|secret|key)[\ ](?:{_QUOTE})?){_LOOKS}
    )""",
    re.VERBOSE | re.IGNORECASE,
)
# The user-info of a URL: RFC 3986, 3.2.1.
_URL = re.compile(r"(?P<url>\b[a-z][a-z0-9+.-]{1,20}://)[^\s/\"'<>]{1,512}@", re.IGNORECASE)
_BREAK = r"(?:\r?\n|(?:\\r)?\\n)[ \t]{0,16}"  # as tools wrap what they encode
_LINE_END = r"""(?=={0,2}[ \t]{0,16}(?:[\r\n"'\\]|\Z))"""
_BASE64 = re.compile(rf"[A-Za-z0-9+/_-]{{24,}}+(?:{_BREAK}[A-Za-z0-9+/_-]++{_LINE_END})*+={{0,2}}")
_HEX = re.compile(rf"(?>[0-9a-fA-F]{{2}}(?:[ \t:,]{{1,2}}|{_BREAK})?(?:0x)?){{8,}}+")
_DUMP_LINE = (
    r"[0-9a-fA-F]{6,10}:?[ \t]{1,3}((?:[0-9a-fA-F]{2,4}(?:[ \t]{1,2}|(?=\r?\n|\Z))){1,16})"  # xxd, hexdump -C, od
)
_DUMP = re.compile(rf"(?m:^)(?>{_DUMP_LINE}[^\n]*+(?:\n|\Z))++")
_DUMPED = re.compile(rf"(?m:^){_DUMP_LINE}")
_WORD = re.compile(r"[^\s\"'<>]{12,}+")
_ESCAPE = re.compile(r"(?<!\\)\\{1,8}(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))")
_SECRET_KEYS = re.compile(
    r"(?i)(?:pass(?:word|wd|phrase|code)|secret[_-]?(?:access[_-]?)?key|(?-i:_PASS|_PWD|[a-z]Token|[a-z]Secret)"
    r"|(?:api|access|private|encryption|signing|master|deploy|service|account)[_-]?key|(?:^|_|-)credentials?"
    r"|(?:^|_|-|access|auth|client)(?:secret|token|capability|authorization))$"
)


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
        plain = _URL.sub(rf"\g<url>{STRUCK}@", plain) if "://" in plain else plain
        for shape, decode in _DECODED:
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
                self.text(str(key)): self.data(_hidden(each) if _SECRET_KEYS.search(str(key)) else each, depth + 1)
                for key, each in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.data(each, depth + 1) for each in value]
        return value

    def _unless_secret(self, decode: Decode, found: re.Match[str]) -> str:
        return STRUCK if any(self._secret(decoded) for decoded in decode(found.group())) else found.group()

    def _secret(self, text: str) -> bool:
        """Whether a decoded text tells a secret; without NUL, which UTF-16 has between all letters."""
        plain = text.replace("\0", "")
        known = self._known is not None and self._known.search(plain)
        return bool(known or _SHAPES.search(plain) or _telling(plain))


def encoded(secret: str) -> frozenset[str]:
    """A secret as tools and people write it: plain, quoted for URL and JSON, hex, Base64 whatever stands before it."""
    data = secret.encode("utf-8", "surrogatepass")
    once = {json.dumps(secret, ensure_ascii=plain)[1:-1] for plain in (True, False)}
    found = {
        secret,
        *once,
        *(json.dumps(each)[1:-1] for each in once),
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
    }
    found |= {data.hex(), data.hex().upper(), secret[::-1], base64.b32encode(data).decode().rstrip("=")}
    found |= {line for line in secret.splitlines() if len(line) > 16}
    for start in range(3):
        whole = base64.b64encode(b"\0" * start + data).decode().rstrip("=")
        kept = whole[(start * 8 + 5) // 6 : (start + len(data)) * 8 // 6]
        found |= {kept, kept.replace("+", "-").replace("/", "_")}
    return frozenset(form for form in found if len(form) >= _SHORTEST)


def _name_kept(found: re.Match[str]) -> str:
    kept = next((word for word in found.groups() if word), "")
    return f"{kept}{STRUCK}"


def _telling(text: str) -> bool:
    if "://" not in text and "authorization" not in text.lower():
        return False  # nearly all, without a second look at every letter
    return bool(_URL.search(text)) or any(found.group("header") for found in _NAMED.finditer(text))


def _hidden(value: Any) -> Any:
    """What lies under a key that names a secret; numbers are none, and what holds further values is struck whole."""
    return [_struck(each) for each in value] if isinstance(value, (list, tuple)) else _struck(value)


def _struck(value: Any) -> Any:
    return STRUCK if value and isinstance(value, (str, dict, list, tuple)) else value


def _from_escapes(text: str) -> Iterator[str]:
    if "%" in text or "\\" in text or "&#" in text:
        yield html.unescape(unquote(_ESCAPE.sub(_character, text)))


def _character(found: re.Match[str]) -> str:
    byte, point = found.groups()
    return f"%{byte}" if byte else chr(int(point, 16))


def _from_hex(text: str) -> Iterator[str]:
    digits = re.sub(r"0x|\\[rn]|[^0-9a-fA-F]", "", text)
    for start in range(2):  # a digit may stand before it
        whole = digits[start : start + (len(digits) - start) // 2 * 2]
        yield bytes.fromhex(whole).decode("utf-8", "replace")


def _from_dump(text: str) -> Iterator[str]:
    lines = (re.sub(r"[^0-9a-fA-F]", "", found.group(1))[:32] for found in _DUMPED.finditer(text))
    yield bytes.fromhex("".join(line[: len(line) // 2 * 2] for line in lines)).decode("utf-8", "replace")


def _from_base64(text: str) -> Iterator[str]:
    body = re.sub(r"\\[rn]|[\s=]", "", text).replace("-", "+").replace("_", "/")
    for start in range(4):  # a path or a word may stand before it
        whole = body[start : start + (len(body) - start) // 4 * 4]
        rest = body[start + len(whole) :]
        whole += rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""
        yield base64.b64decode(whole).decode("utf-8", "replace")


_DECODED: tuple[tuple[re.Pattern[str], Decode], ...] = (
    (_DUMP, _from_dump),
    (_WORD, _from_escapes),
    (_HEX, _from_hex),
    (_BASE64, _from_base64),
)
