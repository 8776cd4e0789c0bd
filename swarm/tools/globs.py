"""Matches paths against glob patterns as models write them: `**`, `*`, `?`, `[...]`, `{a,b}`. Pure, and never slow.

Segments are matched one by one, so no pattern makes the time grow faster than pattern times path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST = 64  # patterns that braces make
_STARS = re.compile(r"\*{3,}")


def matcher(pattern: str) -> Sequence[tuple[str, ...]]:
    """The patterns that one with braces stands for, each as its segments."""
    return [_segments(one) for one in _expanded(pattern.strip())]


def matches(patterns: Sequence[tuple[str, ...]], path: str) -> bool:
    """Whether a path is of one of the forms; a pattern of one segment is looked for in all folders."""
    parts = path.split("/")
    return any(_fits(one if len(one) > 1 else ("**", *one), parts) for one in patterns)


def _segments(pattern: str) -> tuple[str, ...]:
    plain = _STARS.sub("**", pattern.removeprefix("./").lstrip("/"))
    parts = [part for part in plain.split("/") if part]
    if pattern.endswith("/"):
        parts.append("**")
    return tuple(_calm(part) for part in parts)


def _calm(part: str) -> str:
    """A segment in which no star follows another."""
    return part if part == "**" else re.sub(r"\*+", "*", part)


def _expanded(pattern: str) -> list[str]:
    """A pattern for each choice that its braces give."""
    done: list[str] = []
    todo = [pattern]
    while todo and len(done) + len(todo) <= _MOST:
        one = todo.pop()
        match = _BRACES.search(one)
        if match is None or "," not in match[1]:
            done.append(one)
            continue
        todo += [one[: match.start()] + choice + one[match.end() :] for choice in match[1].split(",")]
    return done + todo


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the segments match, `**` standing for any number of them: one row of a table for each of them."""
    row = [True] + [False] * len(parts)
    for segment in pattern:
        if segment == "**":
            for at in range(1, len(row)):
                row[at] = row[at] or row[at - 1]
        else:
            row = [False] + [row[at] and fnmatchcase(part, segment) for at, part in enumerate(parts)]
    return row[-1]
