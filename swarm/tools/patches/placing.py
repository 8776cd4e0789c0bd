"""Finds where the hunks of a patch go in a file. Pure.

A place is searched for with the very text first, then without spaces at line ends, then without any, then without the
outermost lines of context. The first way that finds a place decides. Of several places only that is taken to which the
patch points by its line number, its anchor or its order; else none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from swarm.tools.editing.edit import Missed
from swarm.tools.editing.nearest import nearest
from swarm.tools.patches.change import Hunk

_PLACES = 1000  # looked for at most
_FUZZ = 2  # lines of context at either end that may be wrong


@dataclass(frozen=True)
class Placed:
    """A hunk at the lines from ``start`` to before ``end`` of the file, both counted from 0."""

    hunk: Hunk
    start: int
    end: int
    tolerant: bool = False


class Keys:
    """The lines of a file as each way of comparing sees them, made once."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._made: dict[Callable[[str], str], list[str]] = {}

    def __call__(self, key: Callable[[str], str]) -> list[str]:
        """By this way."""
        if key not in self._made:
            self._made[key] = [key(plain_line(line)) for line in self._lines]
        return self._made[key]


def place(lines: Sequence[str], seen_as: Keys, hunk: Hunk, placed: Sequence[Placed]) -> Placed | Missed:
    """Where a hunk goes."""
    if not hunk.old:
        return _insertion(lines, hunk)
    after = placed[-1].end if placed else 0
    for tried, tolerant, key in _ways(hunk):
        wanted = [key(line) for line in tried.old]
        if not any(wanted) and tolerant:
            continue
        starts = _starts(seen_as(key), wanted, tried.at, placed)
        if not starts:
            continue
        at = _chosen(lines, tried, starts, after)
        if at is None:
            where = ", ".join(str(start + 1) for start in starts[:10])
            return Missed(
                f"its lines are there {len(starts)} times (at lines {where}): add lines of context to make them unique"
            )
        return Placed(tried, at, at + len(wanted), tolerant)
    return Missed(nearest("".join(lines), "\n".join(hunk.old)))


def _starts(keys: Sequence[str], wanted: Sequence[str], at: int | None, placed: Sequence[Placed]) -> list[int]:
    """Where the wanted lines are and no other hunk is: where the patch says, else the first of all places."""
    size = len(wanted)

    def there(start: int) -> bool:
        return keys[start] == wanted[0] and keys[start : start + size] == wanted and _free(start, start + size, placed)

    if at is not None and 0 < at <= len(keys) and there(at - 1):
        return [at - 1]
    return list(islice((start for start in range(len(keys) - size + 1) if there(start)), _PLACES))


def _ways(hunk: Hunk) -> Iterator[tuple[Hunk, bool, Callable[[str], str]]]:
    """The hunk, how tolerantly its lines are compared, and by what."""
    yield hunk, False, str
    yield hunk, True, str.rstrip
    yield hunk, True, _words
    for fuzz in range(1, _FUZZ + 1):
        smaller = _without_edges(hunk, fuzz)
        if any(sign == "-" and text.strip() for sign, text in smaller.lines):
            yield smaller, True, _words


def _without_edges(hunk: Hunk, most: int) -> Hunk:
    """Without so many lines of context at either end; its line number moves along."""
    lines, at = list(hunk.lines), hunk.at
    for _ in range(most):
        if lines and lines[0][0] == " ":
            del lines[0]
            at = at + 1 if at is not None else None
        if lines and lines[-1][0] == " ":
            del lines[-1]
    return Hunk(lines, at, hunk.counted, hunk.anchors, hunk.at_end, hunk.closed)


def _chosen(lines: Sequence[str], hunk: Hunk, starts: Sequence[int], after: int) -> int | None:
    """The one place that is meant; None where several may be."""
    if len(starts) == 1:
        return starts[0]
    if hunk.at_end and starts[-1] + len(hunk.old) == len(lines):
        return starts[-1]
    if hunk.anchors and (anchor := _anchor(lines, hunk.anchors, after)) is not None:
        return next((start for start in starts if start >= anchor), None)
    later = [start for start in starts if start >= after > 0]
    return later[0] if len(later) == 1 else None


def _anchor(lines: Sequence[str], anchors: Sequence[str], after: int) -> int | None:
    """The line below the anchors, each searched for below the last; from the top where none is below. An anchor is a
    line or, where no line is the same, the beginning of one."""
    for begin in dict.fromkeys((after, 0)):
        at: int | None = begin
        for anchor in anchors:
            at = _below(lines, _words(anchor), at or 0)
            if at is None:
                break
        if at is not None:
            return at
    return None


def _below(lines: Sequence[str], anchor: str, start: int) -> int | None:
    for same in (str.__eq__, str.startswith):
        for at in range(start, len(lines)):
            if same(_words(plain_line(lines[at])), anchor):
                return at + 1
    return None


def _insertion(lines: Sequence[str], hunk: Hunk) -> Placed | Missed:
    """Where lines go that have nothing around them."""
    if hunk.counted and hunk.at is not None and hunk.at <= len(lines):
        return Placed(hunk, hunk.at, hunk.at)
    if hunk.anchors and (at := _anchor(lines, hunk.anchors, 0)) is not None:
        return Placed(hunk, at, at)
    if hunk.at_end or not lines:
        return Placed(hunk, len(lines), len(lines))
    return Missed("it only adds lines and does not say where: give the lines around them as context")


def _free(start: int, end: int, placed: Sequence[Placed]) -> bool:
    return all(end <= one.start or start >= one.end for one in placed)


def plain_line(line: str) -> str:
    """A line without its end."""
    return line.removesuffix("\n").removesuffix("\r")


def _words(line: str) -> str:
    return " ".join(line.split())
