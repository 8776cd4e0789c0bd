"""Where in a file the lines lie that a hunk names by its anchors. Pure.

An anchor is one line of the file, or the one line that begins with it; further anchors are each the first below the
last. What they name reaches to the next definition that is no deeper, where the line itself is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swarm.tools.patches.lined import Lined


@dataclass(frozen=True)
class Scope:
    """From the anchor's line to before ``end``, both counted from 0."""

    line: int
    end: int

    def holds(self, start: int, end: int) -> bool:
        """Whether lines begin below the anchor, or have it among them, and no later than with the line behind what it
        names: git names for a hunk what lies before its first line, even where that is the next definition's head."""
        return start <= self.end and end > self.line


def scope(lined: Lined, anchors: Sequence[str], after: int) -> Scope | None:
    """What the anchors name below line ``after``, else in all of the file; None for nothing, or for several lines."""
    for begin in dict.fromkeys((after, 0)):
        at, line = begin, -1
        for depth, anchor in enumerate(anchors):
            named = lined.named(anchor, at)
            if not named or (depth == 0 and len(named) > 1):
                break
            line, at = named[0], named[0] + 1
        else:
            return Scope(line, lined.reach(line))
    return None


def missing(lined: Lined, anchors: Sequence[str]) -> str:
    """The first anchor that the file holds nowhere; empty where all are there."""
    return next((anchor for anchor in anchors if not lined.named(anchor, 0)), "")
