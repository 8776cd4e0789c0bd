"""Matches paths against glob patterns as models write them: `**`, `*`, `?`, `[...]`, `{a,b}`. Pure, and never slow.

Segments are matched one by one, so no pattern makes the time grow faster than pattern times path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarm.tools.inside.grep import of_form

_BRACES = re.compile(r"\{([^{}]*)\}")
MOST = 64
"""Patterns that braces may make."""
_STARS = re.compile(r"\*{3,}")


def matcher(pattern: str) -> Sequence[tuple[str, ...]]:
    """The patterns that one with braces stands for, each as its segments; none where they are too many."""
    return [_segments(one) for one in _expanded(pattern.strip())]


def matches(patterns: Sequence[tuple[str, ...]], path: str) -> bool:
    """Whether a path is of one of the forms; a pattern of one segment is looked for in all folders."""
    return any(of_form(path, one) for one in patterns)


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
    while todo:
        if len(done) + len(todo) > MOST:
            return []
        one = todo.pop()
        match = _BRACES.search(one)
        if match is None or "," not in match[1]:
            done.append(one)
            continue
        todo += [one[: match.start()] + choice + one[match.end() :] for choice in match[1].split(",")]
    return done
