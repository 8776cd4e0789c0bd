"""Passes over the outermost lines of a hunk's context where they are not in the file. Pure.

Only lines that are nowhere in it: one that is elsewhere, or the head of a definition, tells that another place is
meant. Some line of context must be left that is there, so that more than the removed lines points to the place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swarm.tools.patches.change import Hunk
from swarm.tools.patches.lined import HEADER, Lined

_MOST = 2  # lines of context at either end that may be wrong


def smaller(hunk: Hunk, lined: Lined) -> Iterator[tuple[Hunk, tuple[str, ...]]]:
    """The hunk without lines of its edges, the fewest first, and those lines."""
    counts = [(top, bottom) for top in range(_MOST + 1) for bottom in range(_MOST + 1) if top + bottom]
    for top, bottom in sorted(counts, key=sum):
        left = hunk.lines[top : len(hunk.lines) - bottom]
        gone = hunk.lines[:top] + hunk.lines[len(hunk.lines) - bottom :]
        if not left or any(sign != " " for sign, _ in gone):
            continue
        passed = tuple(text for _, text in gone if text.strip())
        if any(sign == "-" and text.strip() for sign, text in left) and _may_go(passed, left, lined):
            yield Hunk(left, anchors=hunk.anchors, at_end=hunk.at_end, closed=hunk.closed), passed


def _may_go(passed: Sequence[str], left: Sequence[tuple[str, str]], lined: Lined) -> bool:
    if any(HEADER.match(text) or lined.holds(text) for text in passed):
        return False
    return not passed or any(sign == " " and text.strip() for sign, text in left)
