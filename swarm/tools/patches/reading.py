"""Reads patches as models write them, in either form. Pure."""

from __future__ import annotations

from swarm.tools.editing.edit import Missed
from swarm.tools.patches.begin import BEGIN, begin_patch
from swarm.tools.patches.change import Change
from swarm.tools.patches.unified import unified
from swarm.tools.text import unix


def read(text: str) -> list[Change] | Missed:
    """The changes of a patch, in its order."""
    lines = _bare(unix(text))
    changes = begin_patch(lines) if any(line.strip() == BEGIN for line in lines) else unified(lines)
    if isinstance(changes, Missed):
        return changes
    for change in changes:
        if change.kind == "add" and (odd := _unsigned(change)):
            return Missed(f"{change.path} is added, but its line {odd[:80]!r} has no + before it")
        if change.kind == "update" and change.to is None and change.executable is None and not _does(change):
            return Missed(f"the patch changes nothing in {change.path}: it holds no line with + or - for it")
    if not changes:
        return Missed(
            "no file is named in it. Begin with *** Begin Patch and *** Update File: PATH, or with --- and +++ lines"
        )
    return changes


def _does(change: Change) -> bool:
    return any(hunk.changes for hunk in change.hunks)


def _unsigned(change: Change) -> str:
    """A line of a new file that is not added, and so would be lost."""
    lines = (line for hunk in change.hunks for line in hunk.lines)
    return next((text for sign, text in lines if sign != "+" and text.strip()), "")


def _bare(text: str) -> list[str]:
    """The lines without a fence around them."""
    lines = text.strip("\n").split("\n")
    if lines and lines[0].startswith("```"):
        lines = lines[1 : -1 if lines[-1].strip() == "```" else None]
    return lines
