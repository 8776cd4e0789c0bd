"""JSON as models write it, read where there is only one reading. Pure.

A library that mends JSON (json-repair) closes whatever is open, so half a file would become a whole one that gets
written. Here an object must have been closed by its writer: a string or a number that may be cut off is never taken.
Long, since it is one reader, whose parts call one another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

LONGEST = 400_000  # characters that are looked at
_STEPS = 4_000  # readings of strings with quotes in them that are tried before it counts as unreadable
_STEP = 10_000  # characters of such a string that count as one more
_DEPTH = 60
_SPACE = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/|#[^\n]*)*", re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None, "undefined": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'", "`": "`"}
_TRIPLE = ('"""', "'''")
_QUOTES = "\"'`\u201c\u2018"
_CLOSING = {"\u201c": "\u201d", "\u2018": "\u2019"}
_END_OR_NEXT = re.compile(r"""\"\s*[}\]]|[{\[]\s*[\"']""")
_KEY = re.compile(r'"([\w.$ -]{1,64})"\s*:')
_AFTER_VALUE = re.compile(r"\s*(?:[}\]]|,\s*(?:[}\]]|[\"'`\u201c\u2018{\[\d-]|[A-Za-z_][\w.-]*\s*[:,\]}]))")


@dataclass(frozen=True)
class Read:
    """A value, where it ends in the text, and what had to be mended to read it."""

    value: Any
    end: int
    mended: tuple[str, ...] = ()


class _UnreadableError(ValueError):
    """There is no reading here; never leaves this file."""


class _TwiceError(_UnreadableError):
    """A key with two values: no other reading makes that one meaning."""


def load(text: str) -> Read | None:
    """The one value that a text is. None where it cannot be read, or in more than one way."""
    if len(text) > LONGEST:
        return None
    try:
        return Read(_strict(text), len(text))
    except _TwiceError:
        return None
    except (ValueError, RecursionError):
        pass
    if re.match(r'\s*[{[]\s*\\"', text):  # encoded twice, and the outer quotes lost
        with suppress(ValueError, RecursionError):
            return Read(_strict(json.loads(f'"{text.strip()}"', strict=False)), len(text), ("encoded twice",))
    return _mended(text, _skip(text, 0), whole=True)


def whole(text: str) -> Any:
    """The value of a text that is proper JSON; None where it is not."""
    try:
        return _strict(text)
    except (ValueError, RecursionError):
        return None


def prefix(text: str, start: int) -> Read | None:
    """The object or list that begins at ``start``, whatever follows but its own rest. None where none can be read."""
    text = text[: start + LONGEST]
    read: Read | None
    try:
        read = Read(*_DECODER.raw_decode(text, start))
    except _TwiceError:
        return None
    except (ValueError, RecursionError):
        read = _mended(text, start, whole=False)
    return None if read is None or _runs_on(text, read.end) else read


def _runs_on(text: str, end: int) -> bool:
    """Whether what follows an object seems to be its rest: a quote that nobody escaped, as in ``f("}")``, ended it."""
    if text[end : end + 9].lstrip(" ")[:1] in ('"', "'"):
        return True
    following = _END_OR_NEXT.search(text, end)
    return following is not None and following.group().startswith('"')


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _finite(number: str) -> float:
    if abs(value := float(number)) == float("inf"):
        raise ValueError(f"{number} is too large")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise _TwiceError
        found[key] = value
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_object)


def _strict(text: str) -> Any:
    """NaN or an infinity would make every later request invalid; of a key's two values either may be meant."""
    return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_object)


def _mended(text: str, start: int, *, whole: bool) -> Read | None:
    """The plain reading, in which a quote ends its string; else the one in which some do not."""
    try:
        return _Plain(text, whole=whole).read(start)
    except _TwiceError:
        return None
    except (_UnreadableError, RecursionError):
        pass
    if not whole or not text.rstrip().endswith(("}", "]")):
        return None
    try:
        return _Quoted(text, whole=whole).read(start)
    except (_UnreadableError, RecursionError):
        return None


@dataclass
class _Plain:
    """Reads one value. ``whole``: nothing but closing brackets may follow it."""

    text: str
    whole: bool
    mended: dict[str, None] = field(default_factory=dict)
    sure: bool = True  # whether what was read last cannot be the beginning of something longer
    opened: bool = False  # whether a text was read within which a bracket is open

    def read(self, start: int) -> Read:
        value, at = self.value(start, 0)
        if not isinstance(value, dict | list):
            raise _UnreadableError
        at_end = _skip(self.text, at)
        if self.whole and self.text[at_end:].strip("}] \n\t\r;,"):
            raise _UnreadableError
        if self.whole and at_end < len(self.text):
            self.mended["brackets too many"] = None
        return Read(value, at_end if self.whole else at, tuple(self.mended))

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        at = _skip(self.text, at)
        char = self.text[at : at + 1]
        if not char or depth > _DEPTH:
            raise _UnreadableError
        if char in "{[":
            return self.container(at, depth)
        if char in _QUOTES:
            return self.string(at, key=False)
        return self.bare(at)

    def bare(self, at: int) -> tuple[Any, int]:
        self.sure = False
        if found := _NUMBER.match(self.text, at):
            word = found.group().removeprefix("+")
            number: Any = float(word) if re.search(r"[.eE]", word) else int(word) if len(word) < 40 else float(word)
            if number in (float("inf"), float("-inf")):
                raise _UnreadableError
            return number, found.end()
        found = _WORD.match(self.text, at)
        if found is None or found.group() not in _WORDS:
            raise _UnreadableError
        if found.group() not in ("true", "false", "null"):
            self.mended["Python's words"] = None
        return _WORDS[found.group()], found.end()

    def container(self, at: int, depth: int) -> tuple[Any, int]:
        """An object or a list. One that the text ends in is taken where its writer had closed something already."""
        opening = self.text[at]
        found: Any = {} if opening == "{" else []
        at = _skip(self.text, at + 1)
        while self.text[at : at + 1] not in ("}", "]"):
            if at >= len(self.text):
                return self.left_open(found, at)
            at = self.member(found, at, depth)
            at = _skip(self.text, at)
            if self.text[at : at + 1] == ",":
                at = _skip(self.text, at + 1)
                if self.text[at : at + 1] in ("}", "]"):
                    self.mended["a comma too many"] = None
            elif at < len(self.text) and self.text[at] not in "}]":
                self.without_comma(at)
        if self.text[at] != {"{": "}", "[": "]"}[opening]:
            raise _UnreadableError
        self.sure = True
        return found, at + 1

    def without_comma(self, at: int) -> None:
        """Two members with nothing between them; within a line the quotes of a string may be what is wrong."""
        before = at
        while self.text[before - 1] in " \t":
            before -= 1
        if self.text[before - 1] == '"':
            raise _UnreadableError
        self.mended["a comma missing"] = None

    def left_open(self, found: Any, at: int) -> tuple[Any, int]:
        ends = self.text.rstrip()
        if self.opened or not self.sure or not ends.endswith(("}", "]")) or ends.endswith((",", ":")):
            raise _UnreadableError
        self.mended["brackets missing"] = None
        return found, at

    def member(self, found: Any, at: int, depth: int) -> int:
        if isinstance(found, list):
            item, at = self.value(at, depth + 1)
            found.append(item)
            return at
        key, at = self.key(at)
        at = _skip(self.text, at)
        if self.text[at : at + 1] != ":":
            raise _UnreadableError
        value, at = self.value(at + 1, depth + 1)
        if key in found and found[key] != value:
            raise _TwiceError
        found[key] = value
        return at

    def key(self, at: int) -> tuple[str, int]:
        if self.text[at : at + 1] in tuple(_QUOTES):
            return self.string(at, key=True)
        found = _WORD.match(self.text, at)
        if found is None:
            raise _UnreadableError
        self.mended["a key without quotes"] = None
        return found.group(), found.end()

    def string(self, at: int, *, key: bool) -> tuple[str, int]:  # noqa: ARG002  those who try several ends need it
        opening = next((quote for quote in _TRIPLE if self.text.startswith(quote, at)), self.text[at])
        closing = _CLOSING.get(opening, opening)
        end = _closing(self.text, at + len(opening), closing)
        if end is None:
            raise _UnreadableError
        if opening != '"':
            self.mended["other quotes"] = None
        self.sure = True
        text = self.unescaped(self.text[at + len(opening) : end])
        self.opened = self.opened or _left_open(text)
        return text, end + len(closing)

    def unescaped(self, raw: str) -> str:
        if "\\" not in raw:
            if any(char < " " for char in raw):
                self.mended["raw control characters"] = None
            return raw
        try:
            return str(json.loads(f'"{raw}"', strict=False))
        except ValueError:
            self.mended["escapes that are none"] = None
            return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _escape, raw, flags=re.DOTALL)


@dataclass
class _Quoted(_Plain):
    """Reads a value whose strings hold quotes of their own.

    Every end of each string that its place allows is tried. The reading with the most members counts, since what looks
    like the next member is one; another one with as many makes it unreadable. So does a text in that reading whose own
    quotes or brackets are not paired: what is taken for the call's end may then be the text's, and the call cut off.
    """

    steps: int = 0

    def read(self, start: int) -> Read:
        readings: dict[str, int] = {}
        torn: set[str] = set()
        for value, at in self.values(start, 0):
            if isinstance(value, dict | list) and not self.text[at:].strip("}] \n\t\r;,"):
                told = json.dumps(value, sort_keys=True)
                readings[told] = _members(value)
                torn |= {told} if _torn(value) else set()
        most = [told for told, members in readings.items() if members == max(readings.values())]
        if len(most) != 1 or most[0] in torn:
            raise _UnreadableError
        return Read(json.loads(most[0]), len(self.text), ("quotes inside a string", *self.mended))

    def values(self, at: int, depth: int) -> Iterator[tuple[Any, int]]:
        at = _skip(self.text, at)
        self.step()
        char = self.text[at : at + 1]
        if depth > _DEPTH:
            raise _UnreadableError
        if char == '"':
            yield from self.strings(at)
        elif char and char in "{[":
            yield from self.members({} if char == "{" else [], _skip(self.text, at + 1), depth)
        elif _NUMBER.match(self.text, at) or ((word := _WORD.match(self.text, at)) and word.group() in _WORDS):
            yield self.bare(at)

    def step(self, length: int = 0) -> None:
        self.steps += 1 + length // _STEP
        if self.steps > _STEPS:
            raise _UnreadableError

    def strings(self, at: int) -> Iterator[tuple[str, int]]:
        end = at
        while (closed := _closing(self.text, end + 1, '"')) is not None:
            self.step(closed - at)
            end = closed
            if _AFTER_VALUE.match(self.text, end + 1):
                raw = self.text[at + 1 : end]
                yield (_Torn if _unpaired(raw) else str)(self.unescaped(raw)), end + 1

    def members(self, found: Any, at: int, depth: int) -> Iterator[tuple[Any, int]]:
        """Every way to go on in an object or a list, to its end."""
        closing = "}" if isinstance(found, dict) else "]"
        if self.text[at : at + 1] == closing:
            yield found, at + 1
            return
        key = _KEY.match(self.text, at) if closing == "}" else None
        if closing == "}" and (key is None or key[1] in found):
            return
        for value, after in self.values(key.end() if key else at, depth + 1):
            end = _skip(self.text, after)
            if self.text[end : end + 1] == ",":
                end = _skip(self.text, end + 1)
            elif self.text[end : end + 1] != closing:
                continue
            yield from self.members({**found, key[1]: value} if key else [*found, value], end, depth)


class _Torn(str):
    """A text whose own quotes or brackets are not paired."""

    __slots__ = ()


def _torn(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_torn, value.values()))
    return any(map(_torn, value)) if isinstance(value, list) else isinstance(value, _Torn)


def _unpaired(raw: str) -> bool:
    """Whether a string with quotes that nobody escaped may go on behind what was taken for its end."""
    quotes = re.sub(r"\\.", "", raw, flags=re.DOTALL).count('"')
    return quotes > 0 and (quotes % 2 == 1 or _left_open(raw))


def _left_open(text: str) -> bool:
    """Whether a bracket is open at the end of a text, so that the next closing one may be the text's own."""
    depth = {"}": 0, "]": 0, ")": 0}
    for char in re.findall(r"[\[\]{}()]", text):
        closing = {"{": "}", "[": "]", "(": ")"}.get(char)
        if closing:
            depth[closing] += 1
        else:
            depth[char] = max(0, depth[char] - 1)
    return any(depth.values())


def _members(value: Any) -> int:
    """How many members there are, at any depth."""
    if isinstance(value, dict):
        return len(value) + sum(map(_members, value.values()))
    return len(value) + sum(map(_members, value)) if isinstance(value, list) else 0


def _skip(text: str, at: int) -> int:
    """Past white space and comments."""
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _closing(text: str, at: int, quote: str) -> int | None:
    """Where a string that began before ``at`` ends."""
    while True:
        end = text.find(quote, at)
        if end < 0:
            return None
        back = end
        while back > at and text[back - 1] == "\\":
            back -= 1
        if (end - back) % 2 == 0:
            return end
        at = end + 1


def _escape(found: re.Match[str]) -> str:
    told = found.group(1)
    if told.startswith("u") and len(told) == 5:
        return chr(int(told[1:], 16))
    return _ESCAPES.get(told, found.group())


def dumps(value: Any) -> str:
    """A value as JSON that every server takes: no NaN, and letters as they are. Raises ValueError for NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
