"""Sets of line numbers as sorted ranges, both ends included. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same lines in as few ranges as can be; empty ones vanish."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(one for one in ranges if one[0] <= one[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def covers(ranges: Ranges, first: int, last: int) -> bool:
    """Whether all lines from ``first`` to ``last`` are in it; no line at all always is."""
    return first > last or any(low <= first and last <= high for low, high in ranges)


def before(ranges: Ranges, line: int) -> Ranges:
    """What lies before a line."""
    return joined((low, min(high, line - 1)) for low, high in ranges)


def after(ranges: Ranges, line: int, moved: int = 0) -> Ranges:
    """What lies after a line, its numbers moved by so many lines."""
    return joined((max(low, line + 1) + moved, high + moved) for low, high in ranges)
