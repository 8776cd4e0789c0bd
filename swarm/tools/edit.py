"""Search and replace in the bytes of a file: exact first, then tolerant of whitespace, always unique. Pure.

Bytes outside the replaced span are never touched: line ends, byte order mark, tabs and a missing last newline stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_BOM = "\ufeff"
_NUMBERED = re.compile(r"^ *\d+(?:\t|\| ?)")
_ANCHORS = 20_000


@dataclass(frozen=True)
class Edited:
    """The new content and the lines (from 1, both included) that the replacement now fills."""

    data: bytes
    first: int
    last: int
    tolerant: bool = False


@dataclass(frozen=True)
class Missed:
    """Why nothing was replaced, in words for the model."""

    reason: str


@dataclass(frozen=True)
class _Span:
    start: int
    end: int
    indent: tuple[str, str] = ("", "")


def replace(data: bytes, search: str, replacement: str) -> Edited | Missed:
    """Replace the one place of ``data`` that ``search`` means by ``replacement``.

    Tried in order: the exact text; the same lines but for spaces at their ends and the kind of line end; the same but
    for indentation too, which the replacement then takes over; both without the line numbers that ``view`` prints.
    The first way that finds anything decides, and it must find exactly one place.
    """
    if not search.strip():
        return Missed("the search text is empty: give the lines to replace, or write the whole file")
    text = data.decode("utf-8", "surrogateescape")
    search, replacement = _unix(search), _unix(replacement)
    if search == replacement:
        return Missed("search and replacement are the same, so nothing would change")
    for wanted, new in _readings(search, replacement):
        for tolerant, find in ((False, _exact), (True, _same_lines), (True, _same_words)):
            spans = find(text, wanted)
            if len(spans) > 1:
                return _ambiguous(text, spans)
            if spans:
                return _apply(text, spans[0], new, tolerant=tolerant)
    return _nearest(text, search)


def _readings(search: str, replacement: str) -> list[tuple[str, str]]:
    """The texts as given, and without line numbers where every line of the search has one."""
    readings = [(search, replacement)]
    lines = [line for line in search.split("\n") if line.strip()]
    if all(_NUMBERED.match(line) for line in lines):
        readings.append((_unnumbered(search), _unnumbered(replacement)))
    return readings


def _unnumbered(text: str) -> str:
    return "\n".join(_NUMBERED.sub("", line) for line in text.split("\n"))


def _unix(text: str) -> str:
    """A model's text with plain newlines and without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n")


def _exact(text: str, search: str) -> list[_Span]:
    """Places of the very text, in a file with CRLF the same text with CRLF."""
    for wanted in dict.fromkeys((search, search.replace("\n", "\r\n"))):
        spans = [_Span(m.start(), m.end()) for m in re.finditer(f"(?={re.escape(wanted)})", text)]
        if spans:
            return [_Span(span.start, span.start + len(wanted)) for span in spans]
    return []


def _same_lines(text: str, search: str) -> list[_Span]:
    return _windows(text, search, str.rstrip)


def _same_words(text: str, search: str) -> list[_Span]:
    return _windows(text, search, lambda line: " ".join(line.split()))


def _windows(text: str, search: str, key: Callable[[str], str]) -> list[_Span]:
    """Runs of whole lines that equal the search under ``key``; the last line's own line end stays outside the span."""
    wanted = [key(line) for line in search.strip("\n").split("\n")]
    starts, lines = _lines(text)
    keys = [key(line) for line in lines]
    spans = []
    for first in range(len(lines) - len(wanted) + 1):
        if keys[first : first + len(wanted)] == wanted:
            last = first + len(wanted) - 1
            end = starts[last] + len(lines[last].rstrip("\r"))
            spans.append(
                _Span(starts[first], end, (_indent(search.strip("\n").split("\n")), _indent(lines[first : last + 1])))
            )
    return spans


def _lines(text: str) -> tuple[list[int], list[str]]:
    """Where each line starts, and the line without its newline; a byte order mark belongs to no line."""
    at = len(_BOM) if text.startswith(_BOM) else 0
    starts, lines = [], text[at:].split("\n")
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return starts, lines


def _indent(lines: Sequence[str]) -> str:
    """The leading blanks of the first line that holds anything."""
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip(" \t"))]


def _apply(text: str, span: _Span, replacement: str, *, tolerant: bool) -> Edited | Missed:
    new = replacement
    if tolerant:
        new = "\n".join(_reindent(line, *span.indent) for line in new.strip("\n").split("\n"))
    if _crlf(text, span):
        new = new.replace("\n", "\r\n")
    if text[span.start : span.end] == new:
        return Missed("the file already holds the replacement there, so nothing would change")
    start, end = span.start, span.end
    if tolerant and not new:  # a line taken out leaves no empty line behind
        end = _past_newline(text, end)
    data = (text[:start] + new + text[end:]).encode("utf-8", "surrogateescape")
    first = text.count("\n", 0, start) + 1
    return Edited(data, first, first + new.count("\n"), tolerant)


def _past_newline(text: str, end: int) -> int:
    for newline in ("\r\n", "\n"):
        if text.startswith(newline, end):
            return end + len(newline)
    return end


def _reindent(line: str, given: str, found: str) -> str:
    """A line of the replacement, its indentation shifted from the search's to the file's."""
    if given == found or not line.strip():
        return line
    if line.startswith(given):
        return found + line[len(given) :]
    return line


def _crlf(text: str, span: _Span) -> bool:
    """Whether lines end with CRLF in the span, or, where it holds no line end, in the file."""
    inside = text[span.start : span.end]
    judged = inside if "\n" in inside else text
    return judged.count("\r\n") * 2 > judged.count("\n")


def _ambiguous(text: str, spans: Sequence[_Span]) -> Missed:
    lines = [str(text.count("\n", 0, span.start) + 1) for span in spans]
    places = ", ".join(lines[:10]) + (", ..." if len(lines) > 10 else "")
    return Missed(
        f"the search text is there {len(spans)} times (at lines {places}): add lines around it to make it unique"
    )


def _nearest(text: str, search: str) -> Missed:
    """The lines most like the search, so that the next try can copy them."""
    wanted = search.strip("\n").split("\n")
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    _, lines = _lines(text)
    best, place = 0.0, -1
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[anchor].strip())
    for index, line in enumerate(lines[:_ANCHORS]):
        matcher.set_seq1(line.strip())
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, place = ratio, index
    if best < 0.4:
        return Missed(
            "the search text is not in the file, and nothing like it: view the file and copy the lines exactly"
        )
    first = max(0, place - anchor)
    shown = lines[first : first + len(wanted) + 1]
    numbered = "\n".join(f"{first + 1 + offset}\t{line.rstrip(chr(13))}" for offset, line in enumerate(shown))
    return Missed(f"the search text is not in the file. The nearest lines are:\n{numbered}")
