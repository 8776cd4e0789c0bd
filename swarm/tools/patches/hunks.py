"""Applies the hunks of a patch to the bytes of a file: each where its lines are, and every other byte stays. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from swarm.tools.editing.edit import Missed, reindent
from swarm.tools.editing.runs import LINES, too_much
from swarm.tools.pages import decode
from swarm.tools.patches.change import Hunk
from swarm.tools.patches.lined import Lined, Taken, plain_line
from swarm.tools.patches.placing import Placed, place
from swarm.tools.text import crlf

_BOM = "\ufeff"
# Of one file: hunks, and its characters and its lines times hunks.
_HUNKS, _CHARACTERS, _LINES = 5000, 10_000_000_000, 500_000_000
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


@dataclass(frozen=True)
class Applied:
    """The new content, the first and last new line of each hunk, whether any was matched but for whitespace, and what
    of the patch was not followed."""

    data: bytes
    places: tuple[tuple[int, int], ...]
    tolerant: bool = False
    notes: tuple[str, ...] = ()


def apply(data: bytes, hunks: Sequence[Hunk]) -> Applied | Missed:
    """Apply all hunks, or none."""
    text = decode(data)
    mark = _BOM if text.startswith(_BOM) else ""
    lines: list[str] = _LINE.findall(text[len(mark) :])
    if large := _too_large(text, len(lines), hunks):
        return Missed(large)
    placed = _placed(Lined(lines), hunks)
    if isinstance(placed, Missed):
        return placed
    new, places = _rebuilt(lines, sorted(placed, key=lambda one: (one.start, one.end)))
    made = (mark + "".join(new)).encode("utf-8", "surrogateescape")
    notes = tuple(dict.fromkeys(note for one in placed for note in one.notes))
    return Applied(made, places, any(one.tolerant for one in placed), notes)


def left(data: bytes, hunks: Sequence[Hunk]) -> str:
    """Why a file may not go with these hunks: lines that are given must be all that it holds. Empty where it may."""
    given = [hunk for hunk in hunks if any(text.strip() for _, text in hunk.lines)]
    made = apply(data, given) if given else None
    if made is None:
        return ""
    if isinstance(made, Missed):
        return f"it does not hold the lines that are to go with it: {made.reason}"
    first = next((line for line in decode(made.data).lstrip(_BOM).split("\n") if line.strip()), "")
    return f"it holds more than the lines that are to go with it: {first[:100]!r}" if first else ""


def _too_large(text: str, lines: int, hunks: Sequence[Hunk]) -> str:
    """Why no place is searched for; empty where it is. Each hunk and each anchor may look through all of the file."""
    if lines > LINES:
        return too_much(f"the file has {lines} lines, over {LINES}", "Change it with edit_lines or shell")
    searches = sum(1 + len(hunk.anchors) for hunk in hunks)
    if len(hunks) > _HUNKS or searches * len(text) > _CHARACTERS or searches * lines > _LINES:
        what = f"{len(hunks)} hunks in a file of {lines} lines and {len(text)} characters"
        return too_much(what, "Give fewer hunks at once, or change it with edit_lines or shell")
    return ""


def _placed(lined: Lined, hunks: Sequence[Hunk]) -> list[Placed] | Missed:
    placed: list[Placed] = []
    taken = Taken()
    for number, hunk in enumerate(hunks, 1):
        found = place(lined, hunk, taken, placed[-1].end if placed else 0)
        if isinstance(found, Missed):
            which = f"hunk {number} of {len(hunks)}: " if len(hunks) > 1 else ""
            return Missed(which + found.reason)
        placed.append(found)
        taken.add(found.start, found.end)
    return placed


def _rebuilt(lines: Sequence[str], placed: Sequence[Placed]) -> tuple[list[str], tuple[tuple[int, int], ...]]:
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


def _filled(lines: Sequence[str], one: Placed) -> list[str]:
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


def _shift(one: Placed, lines: Sequence[str]) -> tuple[str, str]:
    """The indentation of the first line that holds anything, in the patch and in the file."""
    pairs = zip(one.hunk.old, lines[one.start : one.end], strict=False)
    return next(((_blanks(given), _blanks(plain_line(found))) for given, found in pairs if given.strip()), ("", ""))


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


def _blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
