"""Finds the places of a text in another: the very text, or whole lines that are the same but for whitespace. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


def same_lines(text: str, search: str) -> list[Span]:
    """Whole lines that are the same but for blanks at their ends."""
    return _windows(text, search, str.rstrip)


def same_words(text: str, search: str) -> list[Span]:
    """Whole lines that are the same but for indentation and other blanks."""
    return _windows(text, search, lambda line: " ".join(line.split()))


def same_but_blank(text: str, search: str) -> list[Span]:
    """As `same_words`, with any number of blank lines between."""
    return _windows(text, search, lambda line: " ".join(line.split()), blank=False)


def _windows(text: str, search: str, key: Callable[[str], str], *, blank: bool = True) -> list[Span]:
    """Runs of whole lines that equal the search under ``key``; the last line's own line end stays outside the span.

    Without ``blank`` lines that hold nothing are passed over on both sides.
    """
    given = [line for line in search.strip("\n").split("\n") if blank or line.strip()]
    wanted = [key(line) for line in given]
    starts, lines = lines_of(text)
    looked = [at for at, line in enumerate(lines) if blank or line.strip()]
    keys = [key(lines[at]) for at in looked]
    spans = []
    for first in range(len(keys) - len(wanted) + 1):
        if keys[first] == wanted[0] and keys[first : first + len(wanted)] == wanted:
            top, last = looked[first], looked[first + len(wanted) - 1]
            end = starts[last] + len(lines[last].rstrip("\r"))
            spans.append(Span(starts[top], end, (_indent(given), _indent(lines[top : last + 1]))))
    return spans


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
