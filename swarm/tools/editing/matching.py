"""Finds the places of a text in another: the very text, or whole lines that are the same but for whitespace. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swarm.tools.editing.runs import Runs, words

BOM = "\ufeff"
PLACES = 50  # counted at most


@dataclass(frozen=True)
class Span:
    """From ``start`` to before ``end``; ``indent`` is that of the text searched for and of the text found."""

    start: int
    end: int
    indent: tuple[str, str] = ("", "")


def exact(text: str, search: str) -> list[Span]:
    """Places of the very text, in a file with CRLF the same text with CRLF; overlapping ones count."""
    for wanted in dict.fromkeys((search, search.replace("\n", "\r\n"))):
        spans: list[Span] = []
        at = text.find(wanted)
        while at >= 0 and len(spans) < PLACES:
            spans.append(Span(at, at + len(wanted)))
            at = text.find(wanted, at + 1)
        if spans:
            return spans
    return []


class Lines:
    """The lines of a text, as often searched as need be: each way of comparing looks at them once."""

    def __init__(self, text: str) -> None:
        self._starts, self._lines = lines_of(text)
        self._filled = [at for at, line in enumerate(self._lines) if line.strip()]
        self._runs: dict[tuple[Callable[[str], str], bool], Runs] = {}

    def find(self, search: str, key: Callable[[str], str], *, blank: bool = True) -> list[Span]:
        """Runs of whole lines that equal the search under ``key``; the last line's own line end stays outside the span.

        Without ``blank`` lines that hold nothing are passed over on both sides.
        """
        given = [line for line in search.strip("\n").split("\n") if blank or line.strip()]
        looked: Sequence[int] = range(len(self._lines)) if blank else self._filled
        if (key, blank) not in self._runs:
            self._runs[key, blank] = Runs((self._lines[at] for at in looked), key)
        starts = self._runs[key, blank].starts(given, PLACES)
        return [self._span(given, looked[first], looked[first + len(given) - 1]) for first in starts]

    def _span(self, given: Sequence[str], top: int, last: int) -> Span:
        end = self._starts[last] + len(self._lines[last].rstrip("\r"))
        return Span(self._starts[top], end, (_indent(given), _indent(self._lines[top : last + 1])))


def same_lines(lines: Lines, search: str) -> list[Span]:
    """Whole lines that are the same but for blanks at their ends."""
    return lines.find(search, str.rstrip)


def same_words(lines: Lines, search: str) -> list[Span]:
    """Whole lines that are the same but for indentation and other blanks."""
    return lines.find(search, words)


def same_but_blank(lines: Lines, search: str) -> list[Span]:
    """As `same_words`, with any number of blank lines between."""
    return lines.find(search, words, blank=False)


def lines_of(text: str) -> tuple[list[int], list[str]]:
    """Where each line starts, and the line without its newline; a byte order mark belongs to no line."""
    at = len(BOM) if text.startswith(BOM) else 0
    starts, lines = [], text[at:].split("\n")
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return starts, lines


def _indent(lines: Sequence[str]) -> str:
    """The leading blanks of the first line that holds anything."""
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip(" \t"))]
