"""Search and replace in the bytes of a file: exact first, then tolerant of whitespace, always unique. Pure.

Bytes outside the replaced span are never touched: line ends, byte order mark, tabs and a missing last newline stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from swarm.tools.text import crlf, numbered, unix, unnumbered

_BOM = "\ufeff"
_PLACES = 50  # counted at most
_ODD = "\ufffd"
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "", '"': '"', "'": "'", "\\": "\\"}
_LINES, _WIDE, _WORK = 20_000, 400, 1_000_000  # lines looked at for the nearest, characters of each, and of all


@dataclass(frozen=True)
class Edited:
    """The new content and the lines (from 1, both included) that the replacement now fills, of ``count`` places the
    first. ``was`` are the lines in the place of which it was put."""

    data: bytes
    first: int
    last: int
    tolerant: bool = False
    count: int = 1
    was: int = 1


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
    search, replacement = unix(search), unix(replacement)
    if search == replacement:
        return Missed("search and replacement are the same, so nothing would change")
    for wanted, new in _readings(search, replacement):
        for tolerant, find in ((False, _exact), (True, _same_lines), (True, _same_words), (True, _same_but_blank)):
            spans = find(text, wanted)
            if len(spans) > 1:
                return _ambiguous(text, spans)
            if spans:
                return _apply(text, spans[0], new, tolerant=tolerant)
    if _ODD in search and (found := _odd(text, search, replacement)) is not None:
        return found
    return nearest(text, search)


def replace_all(data: bytes, search: str, replacement: str) -> Edited | Missed:
    """Replace every place that holds exactly ``search``; where there is none, say what `replace` would."""
    text = data.decode("utf-8", "surrogateescape")
    wanted, new = unix(search), unix(replacement)
    if not wanted.strip() or wanted == new:
        return replace(data, search, replacement)
    if wanted not in text and (windows := wanted.replace("\n", "\r\n")) in text:
        wanted, new = windows, new.replace("\n", "\r\n")
    count = text.count(wanted)
    if count < 2:
        return replace(data, search, replacement)
    at = text.index(wanted)
    first = text.count("\n", 0, at) + 1
    made = text.replace(wanted, new).encode("utf-8", "surrogateescape")
    return Edited(made, first, first + new.count("\n"), count=count, was=wanted.count("\n") + 1)


def _readings(search: str, replacement: str) -> Iterator[tuple[str, str]]:
    """The texts as given; without line numbers where every line of the search has one; with escapes undone that a
    model wrote where a newline was meant."""
    yield search, replacement
    if numbered(search) and (bare := unnumbered(search)).strip():
        yield bare, unnumbered(replacement)
    if "\n" not in search and "\\n" in search and (meant := _unescaped(search)).strip():
        yield meant, _unescaped(replacement)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text)


def _exact(text: str, search: str) -> list[_Span]:
    """Places of the very text, in a file with CRLF the same text with CRLF; overlapping ones count."""
    for wanted in dict.fromkeys((search, search.replace("\n", "\r\n"))):
        spans: list[_Span] = []
        at = text.find(wanted)
        while at >= 0 and len(spans) < _PLACES:
            spans.append(_Span(at, at + len(wanted)))
            at = text.find(wanted, at + 1)
        if spans:
            return spans
    return []


def _same_lines(text: str, search: str) -> list[_Span]:
    return _windows(text, search, str.rstrip)


def _same_words(text: str, search: str) -> list[_Span]:
    return _windows(text, search, lambda line: " ".join(line.split()))


def _same_but_blank(text: str, search: str) -> list[_Span]:
    """As `_same_words`, with any number of blank lines between."""
    return _windows(text, search, lambda line: " ".join(line.split()), blank=False)


def _windows(text: str, search: str, key: Callable[[str], str], *, blank: bool = True) -> list[_Span]:
    """Runs of whole lines that equal the search under ``key``; the last line's own line end stays outside the span.

    Without ``blank`` lines that hold nothing are passed over on both sides.
    """
    given = [line for line in search.strip("\n").split("\n") if blank or line.strip()]
    wanted = [key(line) for line in given]
    starts, lines = _lines(text)
    looked = [at for at, line in enumerate(lines) if blank or line.strip()]
    keys = [key(lines[at]) for at in looked]
    spans = []
    for first in range(len(keys) - len(wanted) + 1):
        if keys[first] == wanted[0] and keys[first : first + len(wanted)] == wanted:
            top, last = looked[first], looked[first + len(wanted) - 1]
            end = starts[last] + len(lines[last].rstrip("\r"))
            spans.append(_Span(starts[top], end, (_indent(given), _indent(lines[top : last + 1]))))
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
        new = "\n".join(reindent(line, *span.indent) for line in new.strip("\n").split("\n"))
    if _crlf(text, span):
        new = new.replace("\n", "\r\n")
    if text[span.start : span.end] == new:
        return Missed("the file already holds the replacement there, so nothing would change")
    start, end = span.start, span.end
    if tolerant and not new:  # a line taken out leaves no empty line behind
        end = _past_newline(text, end)
    data = (text[:start] + new + text[end:]).encode("utf-8", "surrogateescape")
    first = text.count("\n", 0, start) + 1
    return Edited(data, first, first + new.count("\n"), tolerant, was=text.count("\n", start, end) + 1)


def _past_newline(text: str, end: int) -> int:
    for newline in ("\r\n", "\n"):
        if text.startswith(newline, end):
            return end + len(newline)
    return end


def reindent(line: str, given: str, found: str) -> str:
    """A line of the replacement, its indentation shifted from the search's to the file's."""
    if given == found or not line.strip():
        return line
    if line.startswith(given):
        return found + line[len(given) :]
    return line


def _crlf(text: str, span: _Span) -> bool:
    """Whether lines end with CRLF in the span, or, where it holds no line end, in the file."""
    inside = text[span.start : span.end]
    return crlf(inside if "\n" in inside else text)


def _ambiguous(text: str, spans: Sequence[_Span]) -> Missed:
    lines = [str(text.count("\n", 0, span.start) + 1) for span in spans]
    places = ", ".join(lines[:10]) + (", ..." if len(lines) > 10 else "")
    count = f"{len(spans)} times" if len(spans) < _PLACES else f"{len(spans)} times or more"
    return Missed(f"the search text is there {count} (at lines {places}): add lines around it to make it unique")


def _odd(text: str, search: str, replacement: str) -> Edited | Missed | None:
    """The place of a search that was copied from a view of bytes that are no UTF-8; those bytes stay as they are."""
    shown = "".join(_ODD if "\udc80" <= char <= "\udcff" else char for char in text)
    spans = _exact(shown, search)
    if len(spans) != 1:
        return _ambiguous(shown, spans) if spans else None
    odd = [char for char in text[spans[0].start : spans[0].end] if char == _ODD or "\udc80" <= char <= "\udcff"]
    if replacement.count(_ODD) not in (0, len(odd)):
        return Missed(
            f"the place holds {len(odd)} bytes that are no UTF-8, shown as {_ODD}: keep all of them in the replacement "
            "or none, or choose a smaller place"
        )
    parts = replacement.split(_ODD)
    new = parts[0] + "".join(byte + part for byte, part in zip(odd, parts[1:], strict=False))
    return _apply(text, spans[0], new, tolerant=False)


def nearest(text: str, search: str) -> Missed:
    """The lines most like the search, so that the next try can copy them."""
    wanted = search.strip("\n").split("\n")
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    _, lines = _lines(text)
    best, place, work = 0.0, -1, _WORK
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[anchor].strip()[:_WIDE])
    for index, line in enumerate(lines[:_LINES]):
        matcher.set_seq1(line.strip()[:_WIDE])
        if matcher.real_quick_ratio() <= best:
            continue
        work -= len(line[:_WIDE])
        if work < 0:
            break
        if matcher.quick_ratio() <= best:
            continue
        work -= len(line[:_WIDE]) * 10
        if (ratio := matcher.ratio()) > best:
            best, place = ratio, index
    if best < 0.4:
        return Missed(
            "the search text is not in the file, and nothing like it: view the file and copy the lines exactly"
        )
    first = max(0, place - anchor)
    shown = lines[first : first + len(wanted) + 1]
    told = "\n".join(f"{first + 1 + offset}\t{line.rstrip(chr(13))[:_WIDE]}" for offset, line in enumerate(shown))
    return Missed(f"the search text is not in the file. The nearest lines are:\n{told}")
