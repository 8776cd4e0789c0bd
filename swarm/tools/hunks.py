"""Applies the hunks of a patch to the bytes of a file: each where its lines are, and every other byte stays. Pure.

A place is searched for with the very text first, then without spaces at line ends, then without any, then without the
outermost lines of context. The first way that finds a place decides. Of several places only that is taken to which the
patch points by its line number, its anchor or its order; else none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from swarm.tools.edit import Missed, nearest, reindent
from swarm.tools.pages import decode
from swarm.tools.patch import Hunk
from swarm.tools.text import crlf

_BOM = "\ufeff"
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
_PLACES = 1000  # looked for at most
_FUZZ = 2  # lines of context at either end that may be wrong


@dataclass(frozen=True)
class Applied:
    """The new content, the first and last new line of each hunk, and whether any was matched but for whitespace."""

    data: bytes
    places: tuple[tuple[int, int], ...]
    tolerant: bool = False


@dataclass(frozen=True)
class _Placed:
    """A hunk at the lines from ``start`` to before ``end`` of the file, both counted from 0."""

    hunk: Hunk
    start: int
    end: int
    tolerant: bool = False


def apply(data: bytes, hunks: Sequence[Hunk]) -> Applied | Missed:
    """Apply all hunks, or none."""
    text = decode(data)
    mark = _BOM if text.startswith(_BOM) else ""
    lines: list[str] = _LINE.findall(text[len(mark) :])
    placed: list[_Placed] = []
    seen_as = _Keys(lines)
    for number, hunk in enumerate(hunks, 1):
        found = _place(lines, seen_as, hunk, placed)
        if isinstance(found, Missed):
            which = f"hunk {number} of {len(hunks)}: " if len(hunks) > 1 else ""
            return Missed(which + found.reason)
        placed.append(found)
    new, places = _rebuilt(lines, sorted(placed, key=lambda one: (one.start, one.end)))
    made = (mark + "".join(new)).encode("utf-8", "surrogateescape")
    return Applied(made, places, tolerant=any(one.tolerant for one in placed))


class _Keys:
    """The lines of a file as each way of comparing sees them, made once."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._made: dict[Callable[[str], str], list[str]] = {}

    def __call__(self, key: Callable[[str], str]) -> list[str]:
        """By this way."""
        if key not in self._made:
            self._made[key] = [key(_plain(line)) for line in self._lines]
        return self._made[key]


def _place(lines: Sequence[str], seen_as: _Keys, hunk: Hunk, placed: Sequence[_Placed]) -> _Placed | Missed:
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
        return _Placed(tried, at, at + len(wanted), tolerant)
    return nearest("".join(lines), "\n".join(hunk.old))


def _starts(keys: Sequence[str], wanted: Sequence[str], at: int | None, placed: Sequence[_Placed]) -> list[int]:
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
    """The line below the anchors, each searched for below the last; from the top where none is below."""
    for begin in dict.fromkeys((after, 0)):
        at: int | None = begin
        for anchor in anchors:
            wanted = _words(anchor)
            at = next((n + 1 for n in range(at or 0, len(lines)) if _words(_plain(lines[n])) == wanted), None)
            if at is None:
                break
        if at is not None:
            return at
    return None


def _insertion(lines: Sequence[str], hunk: Hunk) -> _Placed | Missed:
    """Where lines go that have nothing around them."""
    if hunk.anchors and (at := _anchor(lines, hunk.anchors, 0)) is not None:
        return _Placed(hunk, at, at)
    if hunk.counted and hunk.at is not None and hunk.at <= len(lines):
        return _Placed(hunk, hunk.at, hunk.at)
    if hunk.at_end or not lines:
        return _Placed(hunk, len(lines), len(lines))
    return Missed("it only adds lines and does not say where: give the lines around them as context")


def _free(start: int, end: int, placed: Sequence[_Placed]) -> bool:
    return all(end <= one.start or start >= one.end for one in placed)


def _rebuilt(lines: Sequence[str], placed: Sequence[_Placed]) -> tuple[list[str], tuple[tuple[int, int], ...]]:
    """The new lines of the file, and where each hunk's own are among them."""
    new: list[str] = []
    places, at = [], 0
    for one in placed:
        new += lines[at : one.start]
        first = len(new) + 1
        new += _filled(lines, one)
        places.append((first, len(new)))
        at = one.end
    new += lines[at:]
    last = placed[-1] if placed and at == len(lines) else None
    return _closed(lines, new, last.hunk if last else None), tuple(places)


def _filled(lines: Sequence[str], one: _Placed) -> list[str]:
    """What stands in a hunk's place: the file's own lines of context, and the new ones in the file's own way."""
    near = "".join(lines[max(0, one.start - 1) : one.end + 1])
    end = "\r\n" if crlf(near or "".join(lines)) else "\n"
    shift = _shift(one, lines)
    filled, at = [], one.start
    for sign, text in one.hunk.lines:
        if sign == "+":
            filled.append(reindent(text, *shift) + end)
            continue
        if sign == " ":
            filled.append(lines[at])
        at += 1
    return filled


def _shift(one: _Placed, lines: Sequence[str]) -> tuple[str, str]:
    """The indentation of the first line that holds anything, in the patch and in the file."""
    pairs = zip(one.hunk.old, lines[one.start : one.end], strict=False)
    return next(((_blanks(given), _blanks(_plain(found))) for given, found in pairs if given.strip()), ("", ""))


def _closed(lines: Sequence[str], new: list[str], last: Hunk | None) -> list[str]:
    """Every line ends but the last one, which ends as the ``last`` hunk tells, where one reaches the file's end.

    Where it does not tell, a new last line ends as the old one did, and an old one as it did before.
    """
    end = "\r\n" if crlf("".join(lines)) else "\n"
    made = [line if line.endswith("\n") else line + end for line in new[:-1]] + new[-1:]
    if not made or last is None:
        return made
    signs = [sign for sign, _ in last.lines if sign != "-"]
    closed = last.closed
    if closed is None and signs[-1:] == ["+"]:
        closed = not lines or lines[-1].endswith("\n")
    if closed is False:
        made[-1] = made[-1].removesuffix("\n").removesuffix("\r")
    elif closed and not made[-1].endswith("\n"):
        made[-1] += end
    return made


def _plain(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _words(line: str) -> str:
    return " ".join(line.split())
