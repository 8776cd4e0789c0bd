"""Where each table and key of a TOML document stands: the library that reads TOML does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]

_KEY = r"(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|[A-Za-z0-9_-]+)"
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?$")
_PAIR = re.compile(rf"\s*({_DOTTED})\s*=(.*)$")
_STRING = re.compile(r"\"\"\"|'''|\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*$")


def lines_of(text: str) -> dict[Path, int]:
    """The line (from 1) on which each table and key of a TOML document begins, but for keys inside inline values."""
    found: dict[Path, int] = {}
    tables: dict[Path, int] = {}
    here: Path = ()
    for number, line in _plain_lines(text):
        if table := _TABLE.match(line):
            here = _enter(_parts(table[2]), tables, many=table[1] == "[[")
            found.setdefault(here, number)
        elif pair := _PAIR.match(line):
            found.setdefault(here + _parts(pair[1]), number)
    return found


def line_of(path: Path, lines: dict[Path, int]) -> int | None:
    """The line of a key, or of the nearest thing around it that has one."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return None


def _plain_lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that begin outside of strings and arrays which span lines."""
    quote, depth = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        rest = line
        if quote:
            _, closed, rest = line.partition(quote)
            if not closed:
                continue
            quote = ""
        elif not depth:
            yield number, line
        if not depth and _TABLE.match(line):
            continue
        bare, quote = _without_strings(rest)
        depth = max(0, depth + bare.count("[") + bare.count("{") - bare.count("]") - bare.count("}"))


def _without_strings(line: str) -> tuple[str, str]:
    """The line without its strings and comment, and the quote of a string that is still open at its end."""
    bare, at = "", 0
    while match := _STRING.search(line, at):
        bare, at = bare + line[at : match.start()], match.end()
        if match[0] in {'"""', "'''"}:
            end = line.find(match[0], at)
            if end < 0:
                return bare, match[0]
            at = end + 3
    return bare + line[at:], ""


def _parts(text: str) -> Path:
    """The keys of a dotted key, unquoted."""
    value: Any = tomllib.loads(f"{text} = 0")
    parts: list[str | int] = []
    while isinstance(value, dict):
        name, value = next(iter(value.items()))
        parts.append(name)
    return tuple(parts)


def _enter(parts: Path, tables: dict[Path, int], *, many: bool) -> Path:
    """The full path of a table header: an element of an array of tables is reached through its index."""
    here: Path = ()
    for place, part in enumerate(parts):
        here = (*here, part)
        if many and place == len(parts) - 1:
            tables[here] = tables.get(here, -1) + 1
        if here in tables:
            here = (*here, tables[here])
    return here
