"""Reads patches as models write them: unified diffs, git's among them, and the form between *** Begin Patch and *** End
Patch. Pure.

Counts in the heads of hunks are taken where they are right and passed over where they are not; line numbers are hints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from swarm.tools.edit import Missed
from swarm.tools.text import unix

Sign = Literal[" ", "-", "+"]
_HEAD = re.compile(r"^@@+ -(?P<at>\d+)(?:,(?P<old>\d+))? \+\d+(?:,(?P<new>\d+))? @@+(?P<rest>.*)$")
_NO_NEWLINE = "\\ No newline"
_GIT = ("diff --git ", "index ", "old mode ", "new mode ", "deleted file mode ", "new file mode ", "similarity index ",
        "dissimilarity index ", "rename from ", "rename to ")  # fmt: skip
_BEGIN, _END, _FILE = "*** Begin Patch", "*** End Patch", re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"


@dataclass
class Hunk:
    """Lines with their signs. ``at`` is the first old line's number as the patch says it, ``counted`` that it says that
    there is none, ``anchors`` lines above it, ``closed`` whether the new last line ends where the patch tells."""

    lines: list[tuple[Sign, str]] = field(default_factory=list)
    at: int | None = None
    counted: bool = False
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    closed: bool | None = None

    @property
    def old(self) -> list[str]:
        """What must be there."""
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def changes(self) -> bool:
        """Whether anything in it is added or removed."""
        return any(sign != " " for sign, _ in self.lines)


@dataclass
class Change:
    """What a patch does to one file; ``to`` is its new path where it moves."""

    kind: Literal["add", "update", "delete"]
    path: str
    hunks: list[Hunk] = field(default_factory=list)
    to: str | None = None
    executable: bool | None = None

    @property
    def added(self) -> str:
        """The content of a file that is added."""
        lines = [text for hunk in self.hunks for sign, text in hunk.lines if sign == "+"]
        open_end = bool(self.hunks) and self.hunks[-1].closed is False
        return "\n".join(lines) + ("" if open_end or not lines else "\n")


def read(text: str) -> list[Change] | Missed:
    """The changes of a patch, in its order."""
    lines = _bare(unix(text))
    changes = _begin_patch(lines) if any(line.strip() == _BEGIN for line in lines) else _unified(lines)
    if isinstance(changes, Missed):
        return changes
    for change in changes:
        if change.kind == "update" and change.to is None and change.executable is None and not _does(change):
            return Missed(f"the patch changes nothing in {change.path}: it holds no line with + or - for it")
    if not changes:
        return Missed(
            "no file is named in it. Begin with *** Begin Patch and *** Update File: PATH, or with --- and +++ lines"
        )
    return changes


def _does(change: Change) -> bool:
    return any(hunk.changes for hunk in change.hunks)


def _bare(text: str) -> list[str]:
    """The lines without a fence around them."""
    lines = text.strip("\n").split("\n")
    if lines and lines[0].startswith("```"):
        lines = lines[1 : -1 if lines[-1].strip() == "```" else None]
    return lines


def _begin_patch(lines: list[str]) -> list[Change] | Missed:
    """The form of *** Begin Patch."""
    start = next(at for at, line in enumerate(lines) if line.strip() == _BEGIN)
    changes: list[Change] = []
    for line in lines[start + 1 :]:
        if line.strip() == _END:
            break
        if match := _FILE.match(line.rstrip()):
            changes.append(Change(kind=_kind(match[1]), path=match[2].strip()))
        elif not changes:
            if line.strip():
                return Missed(f"{line[:80]!r} stands before any *** Update File: PATH")
        elif line.startswith(_MOVE):
            changes[-1].to = line.removeprefix(_MOVE).strip()
        else:
            _more(changes[-1], line)
    return changes


def _kind(word: str) -> Literal["add", "update", "delete"]:
    return "add" if word == "Add" else "delete" if word == "Delete" else "update"


def _more(change: Change, line: str) -> None:
    """One more line of a file's part in the form of *** Begin Patch."""
    hunks = change.hunks
    if line.startswith("@@") and change.kind == "update":
        match = _HEAD.match(line)
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
        hunks[-1].lines.append(_signed(line, "+" if change.kind == "add" else " "))


def _signed(line: str, bare: Sign = " ") -> tuple[Sign, str]:
    """A line of a hunk; one that lost its sign is taken as ``bare``, where it holds nothing as an empty line."""
    if line.startswith("+"):
        return "+", line[1:]
    if line.startswith("-") and bare != "+":
        return "-", line[1:]
    if line.startswith(" ") and bare != "+":
        return " ", line[1:]
    return bare, line


def _unified(lines: list[str]) -> list[Change] | Missed:
    """A unified diff, git's or any other."""
    changes: list[Change] = []
    at, fresh = 0, True  # fresh: the next file's head has not begun
    while at < len(lines):
        line = lines[at]
        if line.startswith(("GIT binary patch", "Binary files ")):
            return Missed("it holds a binary file, which no patch of text can carry")
        if line.startswith(_GIT):
            if line.startswith("diff --git ") or fresh:
                changes.append(Change("update", ""))
                fresh = False
            _git(changes[-1], line)
        elif _names(lines, at):
            if fresh or changes[-1].hunks:
                changes.append(Change("update", ""))
            _named(changes[-1], line, lines[at + 1])
            fresh, at = False, at + 1
        elif line.startswith("@@"):
            if not changes or not changes[-1].path:
                return Missed("a hunk stands before any file's name: begin with --- a/PATH and +++ b/PATH")
            hunk, at = _hunk(lines, at)
            changes[-1].hunks.append(hunk)
            fresh = True
            continue
        at += 1
    return [change for change in changes if change.path]


def _names(lines: list[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


def _git(change: Change, line: str) -> None:
    """A line of git's own head."""
    if line.startswith("diff --git ") and (match := re.fullmatch(r'diff --git "?a/(.+?)"? "?b/(.+?)"?', line)):
        change.path = match[2] if match[1] == match[2] else change.path
    elif line.startswith("rename from "):
        change.path = line.removeprefix("rename from ")
    elif line.startswith("rename to "):
        change.to = line.removeprefix("rename to ")
    elif line.startswith("deleted file mode "):
        change.kind = "delete"
    elif line.startswith(("new file mode ", "new mode ")):
        change.kind = "add" if line.startswith("new file") else change.kind
        change.executable = line.endswith("755")


def _named(change: Change, before: str, after: str) -> None:
    """The two lines that name a file before and after."""
    old, new = _path(before), _path(after)
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    elif old == "/dev/null":
        change.kind, new = "add", new.removeprefix("b/")
    elif new == "/dev/null":
        change.kind, old = "delete", old.removeprefix("a/")
    change.path = new if old == "/dev/null" else old
    if "/dev/null" not in (old, new) and old != new:
        change.to = new


def _path(line: str) -> str:
    """The path of a ``---`` or ``+++`` line, without a time behind it."""
    name = line[4:].partition("\t")[0].strip()
    return name[1:-1].replace('\\"', '"').replace("\\\\", "\\") if name.startswith('"') and name.endswith('"') else name


def _hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    """The hunk whose head stands at ``at``, and where it ends."""
    match = _HEAD.match(lines[at])
    hunk = Hunk()
    if match:
        hunk.at, hunk.counted = int(match["at"]), match["old"] == "0"
    elif anchor := lines[at].lstrip("@").strip().removesuffix("@@").strip():
        hunk.anchors = (anchor,)
    end = _by_counts(lines, at + 1, match) if match else None
    if end is None:
        end = _by_signs(lines, at + 1)
    for line in lines[at + 1 : end]:
        if line.startswith(_NO_NEWLINE):
            if hunk.lines and hunk.lines[-1][0] != "-":
                hunk.closed = False
            elif hunk.closed is None:
                hunk.closed = True
        else:
            hunk.lines.append(_signed(line))
    return hunk, end


def _by_counts(lines: list[str], start: int, head: re.Match[str]) -> int | None:
    """Where a hunk ends by the counts in its head; None where they are wrong."""
    old, new = int(head["old"] or 1), int(head["new"] or 1)
    at = start
    while at < len(lines) and (old > 0 or new > 0 or lines[at].startswith(_NO_NEWLINE)):
        line = lines[at]
        if not line.startswith(_NO_NEWLINE):
            sign, _ = _signed(line)
            old, new = old - (sign != "+"), new - (sign != "-")
        at += 1
    ended = at >= len(lines) or not lines[at].strip() or _ends(lines, at)
    return at if old == new == 0 and ended else None


def _by_signs(lines: list[str], start: int) -> int:
    """Where a hunk ends by what follows it; empty lines before that are no part of it."""
    at = start
    while at < len(lines) and not _ends(lines, at):
        at += 1
    while at > start and not lines[at - 1]:
        at -= 1
    return at


def _ends(lines: list[str], at: int) -> bool:
    return lines[at].startswith(("@@", "diff --git ")) or _names(lines, at)
