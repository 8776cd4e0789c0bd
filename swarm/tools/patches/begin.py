"""Reads patches between *** Begin Patch and *** End Patch, the form that OpenAI's models are taught. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from swarm.tools.editing.edit import Missed
from swarm.tools.patches.change import Change, Hunk, signed
from swarm.tools.patches.unified import HEAD

BEGIN, _END, _FILE = "*** Begin Patch", "*** End Patch", re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_CLOSING = ("EOF", "PATCH", "```")
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"


def begin_patch(lines: Sequence[str]) -> list[Change] | Missed:
    """The form of *** Begin Patch."""
    changes: list[Change] = []
    inside = False
    for line in _without_fence(lines):
        bare = line.strip()
        if bare in (BEGIN, _END):
            _trim(changes)
            inside = bare == BEGIN
        elif not inside:
            continue  # what stands before, between and after patches
        elif match := _FILE.match(line.rstrip()):
            _trim(changes)
            changes.append(Change(kind=_kind(match[1]), path=match[2].strip()))
        elif not changes:
            if bare:
                return Missed(f"{line[:80]!r} stands before any *** Update File: PATH")
        elif line.startswith(_MOVE):
            changes[-1].to = line.removeprefix(_MOVE).strip()
        else:
            _more(changes[-1], line)
    if inside:
        return Missed(f"it has no end, so some of it may be missing: give all of it, and {_END} as its last line")
    return changes


def _trim(changes: Sequence[Change]) -> None:
    """Empty lines between a hunk and what follows are no lines of the file."""
    for hunk in changes[-1].hunks if changes else ():
        while hunk.lines and hunk.lines[-1] == (" ", ""):
            hunk.lines.pop()


def _without_fence(lines: Sequence[str]) -> Sequence[str]:
    """With an end in the place of what closes a here-document or a fence, where the patch has none: it is whole."""
    last = len(lines)
    while last and lines[last - 1].rstrip() in ("", *_CLOSING):
        last -= 1
    closed = any(line.rstrip() in _CLOSING for line in lines[last:])
    return [*lines[:last], _END] if closed and last and lines[last - 1].strip() != _END else lines


def _kind(word: str) -> Literal["add", "update", "delete"]:
    return "add" if word == "Add" else "delete" if word == "Delete" else "update"


def _more(change: Change, line: str) -> None:
    """One more line of a file's part in the form of *** Begin Patch."""
    hunks = change.hunks
    if line.startswith("@@") and change.kind == "update":
        match = HEAD.match(line)
        anchor = (match["rest"] if match else line.lstrip("@")).strip().removesuffix("@@").strip()
        if not hunks or hunks[-1].lines:
            hunks.append(Hunk())
        hunks[-1].at = int(match["at"]) if match else hunks[-1].at
        hunks[-1].anchors += (anchor,) if anchor else ()
    elif line.startswith(_END_OF_FILE):
        if hunks:
            hunks[-1].at_end = True
    else:
        if not hunks:
            hunks.append(Hunk())
        hunks[-1].lines.append(signed(line, "+" if change.kind == "add" and line else " "))
