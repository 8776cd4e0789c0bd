"""The lines of a file that a patch is placed in: searched through often, made ready once. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from swarm.tools.editing.runs import Runs, words

HEADER = re.compile(
    r"\s*(?:(?:export|default|async|public|private|protected|static|abstract|final|pub(?:\([^)]*\))?|unsafe)\s+)*"
    r"(?:def|class|fn|func|function|interface|struct|impl|trait|enum|module|namespace)\b"
)
"""The head of a definition."""
_CUT = 60  # characters from which an anchor may end within a word: git cuts it off at 80 bytes
_BEGINNINGS = 1000  # lines looked at that begin as an anchor does


class Lined:
    """One file as each way of comparing sees it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._runs: dict[Callable[[str], str], Runs] = {}
        self._begun: dict[str, list[int]] = {}

    def runs(self, key: Callable[[str], str]) -> Runs:
        """The lines under ``key``."""
        if key not in self._runs:
            self._runs[key] = Runs((plain_line(line) for line in self.lines), key)
        return self._runs[key]

    def holds(self, line: str) -> bool:
        """Whether any line is this one but for blanks."""
        return words(line) in self._whole

    def named(self, anchor: str, start: int) -> Sequence[int]:
        """The first two lines from ``start`` that are the anchor but for blanks, or else that begin with it and go on
        after a word's end."""
        name = words(anchor)
        whole = self._whole.get(name, [])
        at = bisect_left(whole, start)
        if at < len(whole):
            return whole[at : at + 2]
        if name not in self._begun:
            self._begun[name] = list(self._beginning(name))
        begun = self._begun[name]
        at = bisect_left(begun, start)
        return begun[at : at + 2]

    def reach(self, line: int) -> int:
        """Where the definition ends whose head the line is; the file's end for any other line."""
        return self._ends.get(line, len(self.lines))

    def _beginning(self, name: str) -> Iterator[int]:
        text, begin = self._text, "\n" + name
        at = text.find(begin)
        line = counted = looked = 0
        while at >= 0 and looked < _BEGINNINGS:
            line += text.count("\n", counted, at)
            counted = at
            if len(name) >= _CUT or not (_wordy(name[-1:]) and _wordy(text[at + len(begin)])):
                yield line
            looked += 1
            at = text.find(begin, at + 1)

    @cached_property
    def _ends(self) -> dict[int, int]:
        """Where each definition ends: at the next one that is no deeper."""
        ends: dict[int, int] = {}
        open_heads: list[tuple[int, int]] = []  # depth and line, each deeper than the one before
        for at, line in enumerate(self.lines):
            if not HEADER.match(line):
                continue
            deep = _depth(line)
            while open_heads and open_heads[-1][0] >= deep:
                ends[open_heads.pop()[1]] = at
            open_heads.append((deep, at))
        return ends

    @cached_property
    def _whole(self) -> dict[str, list[int]]:
        """Where each line is, without regard to blanks."""
        found: dict[str, list[int]] = {}
        for at, line in enumerate(self.lines):
            found.setdefault(words(line), []).append(at)
        return found

    @cached_property
    def _text(self) -> str:
        return "\n" + "\n".join(words(line) for line in self.lines) + "\n"


class Taken:
    """The lines that hunks already have, none of them twice."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        """These lines, from 0 to before ``end``, are some hunk's; an empty span is a place between two lines."""
        insort(self._spans, (start, end))

    def free(self, start: int, end: int) -> bool:
        """Whether no other hunk has any of these lines."""
        at = bisect_left(self._spans, (end, -1))
        return at == 0 or self._spans[at - 1][1] <= start


def plain_line(line: str) -> str:
    """A line without its end."""
    return line.removesuffix("\n").removesuffix("\r")


def _wordy(char: str) -> bool:
    return char.isalnum() or char == "_"


def _depth(line: str) -> int:
    """How far a line is set in; a tab counts as one column, as all lines of one file are taken to use the same."""
    return len(line) - len(line.lstrip(" \t"))
