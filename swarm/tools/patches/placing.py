"""Finds where the hunks of a patch go in a file. Pure.

A place is searched for with the very text first, then without spaces at line ends, then without any, then without
outermost lines of context that the file holds nowhere. The first way that finds a place decides. Of several places only
that is taken to which the patch points by its anchor, its line number or its order; else none. A place that lies
outside of what the anchors name is not taken either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swarm.tools.editing.edit import Missed
from swarm.tools.editing.nearest import nearest
from swarm.tools.editing.runs import Runs, words
from swarm.tools.patches import anchors, edges
from swarm.tools.patches.anchors import Scope
from swarm.tools.patches.change import Hunk
from swarm.tools.patches.lined import Lined, Taken

_PLACES = 1000  # looked for at most
_WAYS: tuple[tuple[bool, Callable[[str], str]], ...] = ((False, str), (True, str.rstrip), (True, words))


@dataclass(frozen=True)
class Placed:
    """A hunk at the lines from ``start`` to before ``end`` of the file, both counted from 0. ``notes`` are what of the
    patch was not followed."""

    hunk: Hunk
    start: int
    end: int
    tolerant: bool = False
    notes: tuple[str, ...] = ()


def place(lined: Lined, hunk: Hunk, taken: Taken, after: int) -> Placed | Missed:
    """Where a hunk goes. ``after`` is the line behind the hunk before it, ``taken`` are the lines of all those."""
    if not hunk.old:
        return _insertion(lined, hunk, taken)
    named = anchors.scope(lined, hunk.anchors, after) if hunk.anchors else None
    for tolerant, key in _WAYS:
        if tolerant and not any(line.strip() for line in hunk.old):
            continue
        if starts := _starts(lined.runs(key), hunk, taken, named):
            at = _chosen(lined, hunk, starts, after, named)
            notes = _unnamed(lined, hunk)
            return at if isinstance(at, Missed) else Placed(hunk, at, at + len(hunk.old), tolerant, notes)
    cut = _without_edges(lined, hunk, taken, after, named)
    return cut or Missed(nearest("".join(lined.lines), "\n".join(hunk.old)))


def _starts(runs: Runs, hunk: Hunk, taken: Taken, named: Scope | None) -> list[int]:
    """Where the lines are and no other hunk is: as the number tells, else below the anchors, else anywhere."""
    size = len(hunk.old)
    told = hunk.at - 1 if hunk.at is not None else -1
    if (
        (named is None or named.holds(told, told + size))
        and runs.there(hunk.old, told)
        and taken.free(told, told + size)
    ):
        return [told]
    for begin in (max(0, named.line - size + 1), 0) if named is not None else (0,):
        starts = runs.starts(hunk.old, _PLACES, begin)
        if found := [start for start in starts if taken.free(start, start + size)]:
            return found
    return []


def _without_edges(lined: Lined, hunk: Hunk, taken: Taken, after: int, named: Scope | None) -> Placed | Missed | None:
    """The one place of a hunk whose outermost lines of context are not there; its line number does not count."""
    for tried, passed in edges.smaller(hunk, lined):
        starts, size = lined.runs(words).starts(tried.old, 2), len(tried.old)
        if len(starts) == 1 and taken.free(starts[0], starts[0] + size):
            at = _chosen(lined, tried, starts, after, named)
            notes = tuple(f"the line {text.strip()[:80]!r} of its context is not in the file" for text in passed)
            if isinstance(at, Missed):
                return at
            return Placed(tried, at, at + size, tolerant=True, notes=(*notes, *_unnamed(lined, hunk)))
    return None


def _chosen(lined: Lined, hunk: Hunk, starts: Sequence[int], after: int, named: Scope | None) -> int | Missed:
    """The one place that is meant."""
    size = len(hunk.old)
    if named is not None:
        inside = [start for start in starts if named.holds(start, start + size)]
        if not inside:
            return Missed(
                f"its lines are at {_told(starts)}, which is not what {hunk.anchors[-1]!r} at line {named.line + 1} "
                "names: name the line that the place lies below, or give the lines that are there"
            )
        starts = inside
    if hunk.at_end and starts[-1] + size == len(lined.lines):
        return starts[-1]
    if named is not None or len(starts) == 1:
        return starts[0]
    later = [start for start in starts if start >= after > 0]
    if len(later) == 1:
        return later[0]
    return Missed(
        f"its lines are there {len(starts)} times (at {_told(starts)}): add lines of context to make them unique"
    )


def _told(starts: Sequence[int]) -> str:
    return ("lines " if len(starts) > 1 else "line ") + ", ".join(str(start + 1) for start in starts[:10])


def _unnamed(lined: Lined, hunk: Hunk) -> tuple[str, ...]:
    """That an anchor is not there, where the lines alone told the place."""
    gone = anchors.missing(lined, hunk.anchors)
    return (f"the line {gone[:80]!r} that it names is not in the file",) if gone else ()


def _insertion(lined: Lined, hunk: Hunk, taken: Taken) -> Placed | Missed:
    """Where lines go that have nothing around them."""
    last = len(lined.lines)
    at: int | None = None
    if hunk.counted and hunk.at is not None and hunk.at <= last:
        at = hunk.at
    elif hunk.anchors and (named := anchors.scope(lined, hunk.anchors, 0)) is not None:
        at = named.line + 1
    elif hunk.at_end or not lined.lines:
        at = last
    if at is None:
        which = f", and {hunk.anchors[0]!r} is no one line of the file" if hunk.anchors else ""
        return Missed(f"it only adds lines and does not say where{which}: give the lines around them as context")
    if not taken.free(at, at):
        return Missed(f"it adds lines below line {at}, in the midst of those that another hunk changes: join the two")
    return Placed(hunk, at, at)
