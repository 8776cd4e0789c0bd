"""Reads unified diffs, git's among them, as models write them. Pure.

Counts in the heads of hunks are taken where they are right and passed over where they are not; line numbers are hints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarm.tools.editing.edit import Missed
from swarm.tools.patches.change import Change, Hunk, signed

HEAD = re.compile(r"^@@+ -(?P<at>\d+)(?:,(?P<old>\d+))? \+\d+(?:,(?P<new>\d+))? @@+(?P<rest>.*)$")
"""The head of a hunk that tells where it goes."""
_NO_NEWLINE = "\\ No newline"
_BINARY = "it holds a binary file, which no patch of text can carry"
_LINK = "it makes a link or a submodule: use shell for that"
_REFUSED = (
    ("GIT binary patch", _BINARY),
    ("Binary files ", _BINARY),
    *((f"{head} mode {kind}", _LINK) for head in ("new file", "new") for kind in ("120000", "160000")),
    ("copy from ", "it copies a file: add the new one with all its lines, or use cp in shell"),
)
_QUOTED = re.compile(r"\\([0-7]{3}|.)")
_GIT = ("diff --git ", "index ", "old mode ", "new mode ", "deleted file mode ", "new file mode ", "similarity index ",
        "dissimilarity index ", "rename from ", "rename to ")  # fmt: skip


def unified(lines: Sequence[str]) -> list[Change] | Missed:
    """A unified diff, git's or any other."""
    changes: list[Change] = []
    at, fresh, cut = 0, True, False  # fresh: the next file's head has not begun
    while at < len(lines):
        line = lines[at]
        if refused := next((why for begin, why in _REFUSED if line.startswith(begin)), ""):
            return Missed(refused)
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
            head = at
            hunk, at = _hunk(lines, head)
            cut = at >= len(lines) and _short(hunk, HEAD.match(lines[head]))
            changes[-1].hunks.append(hunk)
            fresh = True
            continue
        at += 1
    if cut:
        return Missed(
            "its last hunk ends with a removed line and before its head tells, so it may be cut off: give it all"
        )
    return [change for change in changes if change.path]


def _short(hunk: Hunk, head: re.Match[str] | None) -> bool:
    """Whether a hunk that ends with a removed line has fewer old lines and fewer new ones than its head tells."""
    if head is None or not hunk.lines or hunk.lines[-1][0] != "-":
        return False
    new = sum(sign != "-" for sign, _ in hunk.lines)
    return len(hunk.old) < int(head["old"] or 1) and new < int(head["new"] or 1)


def _names(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


def _git(change: Change, line: str) -> None:
    """A line of git's own head."""
    if line.startswith("diff --git ") and (match := re.fullmatch(r'diff --git ("?)a/(.+?)"? ("?)b/(.+?)"?', line)):
        old, new = _unquoted(match[1] + match[2] + match[1]), _unquoted(match[3] + match[4] + match[3])
        change.path = new if old == new else change.path
    elif line.startswith("rename from "):
        change.path = _unquoted(line.removeprefix("rename from "))
    elif line.startswith("rename to "):
        change.to = _unquoted(line.removeprefix("rename to "))
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
    elif old.removeprefix("a/") == new.removeprefix("b/"):
        old = new = old.removeprefix("a/")
    elif old == "/dev/null":
        change.kind, new = "add", new.removeprefix("b/")
    elif new == "/dev/null":
        change.kind, old = "delete", old.removeprefix("a/")
    change.path = new if old == "/dev/null" else old
    if "/dev/null" not in (old, new) and old != new:
        change.to = new


def _path(line: str) -> str:
    """The path of a ``---`` or ``+++`` line, without a time behind it."""
    return _unquoted(line[4:].partition("\t")[0].strip())


def _unquoted(name: str) -> str:
    """A name that git put in quotes, its bytes that are no ASCII as octal numbers."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    inner = name[1:-1].encode("utf-8", "replace").decode("latin-1")
    plain = _QUOTED.sub(lambda match: _escaped(match[1]), inner)
    return plain.encode("latin-1", "replace").decode("utf-8", "replace")


def _escaped(code: str) -> str:
    if len(code) > 1:
        return chr(int(code, 8) & 0xFF)
    return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)


def _hunk(lines: Sequence[str], at: int) -> tuple[Hunk, int]:
    """The hunk whose head stands at ``at``, and where it ends."""
    match = HEAD.match(lines[at])
    hunk = Hunk()
    if match:
        hunk.at, hunk.counted = int(match["at"]), match["old"] == "0"
    if anchor := (match["rest"] if match else lines[at].strip("@")).strip():
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
            hunk.lines.append(signed(line))
    return hunk, end


def _by_counts(lines: Sequence[str], start: int, head: re.Match[str]) -> int | None:
    """Where a hunk ends by the counts in its head; None where they are wrong."""
    old, new = int(head["old"] or 1), int(head["new"] or 1)
    at = start
    while at < len(lines) and (old > 0 or new > 0 or lines[at].startswith(_NO_NEWLINE)):
        line = lines[at]
        if not line.startswith(_NO_NEWLINE):
            sign, _ = signed(line)
            old, new = old - (sign != "+"), new - (sign != "-")
        at += 1
    ended = at >= len(lines) or not lines[at].strip() or _ends(lines, at)
    return at if old == new == 0 and ended else None


def _by_signs(lines: Sequence[str], start: int) -> int:
    """Where a hunk ends by what follows it; empty lines before that are no part of it."""
    at = start
    while at < len(lines) and not _ends(lines, at):
        at += 1
    while at > start and not lines[at - 1]:
        at -= 1
    return at


def _ends(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith(("@@", "diff --git ")) or _names(lines, at)
