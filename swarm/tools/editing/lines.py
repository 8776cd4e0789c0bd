"""Replaces a range of lines in the bytes of a file; every other byte stays. Pure."""

from __future__ import annotations

import re

from swarm.tools.editing.edit import Edited, Missed
from swarm.tools.editing.runs import LINES, Runs, words
from swarm.tools.pages import decode, split
from swarm.tools.text import NUMBERED, crlf, numbered, unix, unnumbered

_BOM = "\ufeff"
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


def replace_lines(data: bytes, first: int, last: int, replacement: str, expect: str | None = None) -> Edited | Missed:
    """Put ``replacement`` in the place of lines ``first`` to ``last``, from 1; before it where ``last`` is one less.

    Line ends are the neighbours' own, a missing one at the file's end stays missing, a byte order mark stays.
    ``expect`` is what the lines must hold now, spaces aside.
    """
    text = decode(data)
    mark = _BOM if text.startswith(_BOM) else ""
    lines = _LINE.findall(text[len(mark) :])
    if last > len(lines) or first > len(lines) + 1:
        return Missed(f"the file has only {len(lines)} lines")
    if expect is not None and (wrong := _unexpected(lines, first, last, expect)):
        return Missed(wrong)
    given = _unnumbered(replacement, first, "".join(lines[first - 1 : last]))
    new = _lines(given, crlf("".join(lines[max(0, first - 2) : last + 1])) if lines else crlf(text))
    if lines[first - 1 : last] == new:
        return Missed("these lines already hold that, so nothing would change")
    before, after = lines[: first - 1], lines[last:]
    made = _ended(before, new, after, open_end=bool(lines) and not lines[-1].endswith("\n"))
    return Edited((mark + made).encode("utf-8", "surrogateescape"), first, first + len(new) - 1)


def _unnumbered(replacement: str, first: int, former: str) -> str:
    """The new text without numbers copied from a view; those that the lines themselves begin with are no such."""
    text = unix(replacement)
    if not numbered(text) or not (match := NUMBERED.match(text.lstrip("\n"))) or abs(int(match[1]) - first) > 1:
        return text
    bare = unnumbered(text)
    return text if numbered(former) and not numbered(bare) else bare


def _lines(text: str, windows: bool) -> list[str]:  # noqa: FBT001  two kinds of line ends
    """The new lines with their ends."""
    if not text:
        return []
    end = "\r\n" if windows else "\n"
    return [line + end for line in text.removesuffix("\n").split("\n")]


def _ended(before: list[str], new: list[str], after: list[str], *, open_end: bool) -> str:
    """The parts together: every line ends but the file's last one where it did not before."""
    whole = [*before, *new, *after]
    if not after and whole:
        if open_end and new:
            whole[-1] = whole[-1].removesuffix("\n").removesuffix("\r")
        if before and new and not before[-1].endswith("\n"):
            before_end = "\r\n" if new[0].endswith("\r\n") else "\n"
            whole[len(before) - 1] += before_end
    return "".join(whole)


def _unexpected(lines: list[str], first: int, last: int, expect: str) -> str:
    """Why the lines are not those expected, and where those are; empty where they are."""
    given = unix(expect)
    found = [words(line) for line in lines[first - 1 : last]]
    for one in dict.fromkeys((given, unnumbered(given) if numbered(given) else given)):
        wanted = split(one)
        if found in ([words(line) for line in wanted], [words(line) for line in one.split("\n")]):
            return ""
    size = len(wanted)
    places = [at + 1 for at in Runs(lines, words).starts(wanted, 5)] if len(lines) <= LINES else []
    elsewhere = (
        f" The lines that you expect are at {', '.join(f'{at}-{at + size - 1}' for at in places)}." if places else ""
    )
    shown = "\n".join(
        f"{n}\t{lines[n - 1].rstrip(chr(10)).rstrip(chr(13))}" for n in range(first, min(last, first + 60) + 1)
    )
    return f"lines {first}-{last} do not hold what you expect.{elsewhere} They hold:\n{shown}"
