"""Search and replace in the bytes of a file: exact first, then tolerant of whitespace, always unique. Pure.

Bytes outside the replaced span are never touched: line ends, byte order mark, tabs and a missing last newline stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from swarm.tools.editing.matching import PLACES, Lines, Span, exact, same_but_blank, same_lines, same_words
from swarm.tools.editing.nearest import nearest
from swarm.tools.editing.runs import LINES, too_much
from swarm.tools.text import crlf, numbered, unix, unnumbered

_ODD = "\ufffd"
_LARGEST = 8_000_000  # characters that a replacement of every place may make
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "", '"': '"', "'": "'", "\\": "\\"}


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
    lines = Lines(text) if (total := text.count("\n")) <= LINES else None
    for wanted, new in _readings(search, replacement):
        for tolerant, spans in _tried(text, lines, wanted):
            if len(spans) > 1:
                return _ambiguous(text, spans)
            if spans:
                return _apply(text, spans[0], new, tolerant=tolerant)
    if _ODD in search and (found := _odd(text, search, replacement)) is not None:
        return found
    return Missed(nearest(text, search) if lines is not None else _too_many(total))


def _too_many(total: int) -> str:
    what = f"the exact text is not there, and the file has {total} lines, over {LINES}"
    return too_much(what, "Copy the text exactly, or use edit_lines")


def _tried(text: str, lines: Lines | None, wanted: str) -> Iterator[tuple[bool, list[Span]]]:
    """The places that each way finds, and whether it is a tolerant one; of too many lines only the exact way's."""
    yield False, exact(text, wanted)
    if lines is not None:
        for find in (same_lines, same_words, same_but_blank):
            yield True, find(lines, wanted)


def replace_all(data: bytes, search: str, replacement: str) -> Edited | Missed:
    """Replace every place that holds exactly ``search``, whatever its line ends, which stay; where there is none, say
    what `replace` would."""
    text = data.decode("utf-8", "surrogateescape")
    wanted, new = unix(search), unix(replacement)
    if not wanted.strip() or wanted == new:
        return replace(data, search, replacement)
    ends = "\r\n" if crlf(text) else "\n"
    sought = re.compile(r"\r?\n".join(re.escape(part) for part in wanted.split("\n")))
    count = sum(1 for _ in sought.finditer(text))
    if count < 2:
        return replace(data, search, replacement)
    if len(text) + count * (len(new) + new.count("\n") - len(wanted)) > _LARGEST:
        return Missed(f"the text is there {count} times, and the new file would be larger than {_LARGEST} characters")
    made = sought.sub(lambda match: new.replace("\n", _ends(match[0], ends)), text)
    at = next(sought.finditer(text)).start()
    first = text.count("\n", 0, at) + 1
    return Edited(
        made.encode("utf-8", "surrogateescape"), first, first + new.count("\n"), count=count, was=wanted.count("\n") + 1
    )


def _ends(inside: str, otherwise: str) -> str:
    """The line end of a replacement: that of its place, or, where the place holds none, of the file."""
    if "\n" not in inside:
        return otherwise
    return "\r\n" if crlf(inside) else "\n"


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


def _apply(text: str, span: Span, replacement: str, *, tolerant: bool) -> Edited | Missed:
    new = replacement
    if tolerant:
        new = "\n".join(reindent(line, *span.indent) for line in new.strip("\n").split("\n"))
    if "\n" in new:
        new = new.replace("\n", _ends(text[span.start : span.end], "\r\n" if crlf(text) else "\n"))
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


def _ambiguous(text: str, spans: Sequence[Span]) -> Missed:
    lines = [str(text.count("\n", 0, span.start) + 1) for span in spans]
    places = ", ".join(lines[:10]) + (", ..." if len(lines) > 10 else "")
    count = f"{len(spans)} times" if len(spans) < PLACES else f"{len(spans)} times or more"
    return Missed(f"the search text is there {count} (at lines {places}): add lines around it to make it unique")


def _odd(text: str, search: str, replacement: str) -> Edited | Missed | None:
    """The place of a search that was copied from a view of bytes that are no UTF-8; those bytes stay as they are."""
    shown = "".join(_ODD if "\udc80" <= char <= "\udcff" else char for char in text)
    spans = exact(shown, search)
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
