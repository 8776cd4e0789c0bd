"""The lines of a file that are most like a text which is not in it, so that the next try can copy them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from swarm.tools.editing.matching import lines_of

_AROUND = 2  # lines shown before and after
_LINES, _WIDE, _WORK = 20_000, 400, 1_000_000  # lines looked at, characters of each, and of all


def nearest(text: str, search: str) -> str:
    """That the search is not there, and the lines most like it."""
    wanted = search.strip("\n").split("\n")
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    _, lines = lines_of(text)
    best, place = _best(lines, wanted[anchor].strip()[:_WIDE])
    if best < 0.4:
        return "the search text is not in the file, and nothing like it: view the file and copy the lines exactly"
    first = max(0, place - anchor - _AROUND)
    shown = lines[first : place - anchor + len(wanted) + _AROUND]
    told = "\n".join(f"{first + 1 + offset}\t{line.rstrip(chr(13))[:_WIDE]}" for offset, line in enumerate(shown))
    return f"the search text is not in the file. The nearest lines are:\n{told}"


def _best(lines: Sequence[str], wanted: str) -> tuple[float, int]:
    """How like the likest line is, from 0 to 1, and where it is; of a huge file within a bound of work."""
    best, place, work = 0.0, -1, _WORK
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    for index, line in enumerate(lines[:_LINES]):
        matcher.set_seq1(line.strip()[:_WIDE])
        if matcher.real_quick_ratio() <= best:
            continue
        work -= len(line[:_WIDE])
        if work < 0:
            break
        if matcher.quick_ratio() <= best:
            continue
        work -= len(line[:_WIDE]) * 10
        if (ratio := matcher.ratio()) > best:
            best, place = ratio, index
    return best, place
