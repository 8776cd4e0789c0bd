"""Words from a model or a repository become words that a forge does nothing with. Pure, bounded, and idempotent."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from broker.words import characters, effects, fences
from broker.words.dialect import Dialect

MAX_BODY, MAX_LINE = 60_000, 2_000

_PASSES = 12  # what one pass removes may join what another removes; what has not settled by then was made not to
_NESTED = re.compile(r"&(?:(?:amp|#0{0,9}38|#x0{0,9}26);)+", re.IGNORECASE)
_PIECE = re.compile(rf"[^\n]{{1,{MAX_LINE}}}(?=\s|\Z)|[^\n]{{1,{MAX_LINE}}}")
_BARE = re.compile(r"[^\w ,.\n]|_")
_DRAFT = re.compile(r"^[\s\[(]*(?:draft|wip)\b[\s\])]*(?::|-(?=\s)|(?<=[\])]))?[\s\])]*", re.IGNORECASE)


def clean(words: str, dialect: Dialect) -> str:
    """Text without effect: nothing hidden, nobody called, nothing closed or commanded, no markup but plain Markdown.

    Code within fences keeps its look. At most MAX_BODY characters in lines of at most MAX_LINE.
    """
    return _settled(words, lambda text: _pass(text, dialect, code=True))


def plain(words: str, dialect: Dialect) -> str:
    """The same for what is read without its fences: titles, commit messages, names."""
    return _settled(words, lambda text: _pass(text, dialect, code=False))


def line(words: str, dialect: Dialect, most: int) -> str:
    """The same on one line of at most ``most`` characters."""
    return _one_line(words, most, lambda text: _line_pass(text, dialect))


def title(words: str, dialect: Dialect, prefix: str = "") -> str:
    """One line of at most the dialect's length, the prefix included. Never empty, and never itself a draft's mark."""
    room = max(dialect.title_chars - len(prefix), 0)
    said = _one_line(words, room, lambda text: _undrafted(_line_pass(text, dialect)))
    return (prefix + (said or "Proposed change"))[: dialect.title_chars].rstrip()


def code(words: str, dialect: Dialect, most: int = 200) -> str:
    """A short text in backticks on one line; empty if nothing is left of it."""
    text = _one_line(words, most, lambda text: _line_pass(text, dialect).replace("`", "'").rstrip("\\"))
    return f"`{text}`" if text else ""


def fitted(words: str, most: int, settle: Callable[[str], str]) -> str:
    """Settled words, no longer than ``most``. What was cut is settled again: it may be longer, and say more."""
    text, less = settle(words), 0
    while len(text) > most:
        text, less = settle(text[: max(most - less, 0)]), 2 * less + 1
    return text


def _one_line(words: str, most: int, one_pass: Callable[[str], str]) -> str:
    # White space is joined within each pass, since joined it may be an effect: "[no  ci]".
    return fitted(words[: 4 * most + MAX_LINE], most, lambda text: " ".join(_settled(text, one_pass).split()))


def _settled(words: str, one_pass: Callable[[str], str]) -> str:
    text = words
    for _ in range(_PASSES):
        before = text
        text = one_pass(text)
        if text == before:
            return text
    return _capped(_BARE.sub(" ", text))


def _line_pass(text: str, dialect: Dialect) -> str:
    return " ".join(_pass(text, dialect, code=False).split())


def _undrafted(text: str) -> str:
    text = text.strip("`#>-*+~= ")
    while (rest := _DRAFT.sub("", text, count=1)) != text:
        text = rest
    return text


def _pass(text: str, dialect: Dialect, *, code: bool) -> str:
    text = _capped(characters.visible(text))
    pieces = fences.split(text) if code else [fences.Piece(text)]
    return _capped(fences.joined([_piece(piece, dialect) for piece in pieces]))


def _piece(piece: fences.Piece, dialect: Dialect) -> fences.Piece:
    if piece.language is not None:
        return fences.Piece(effects.defused_code(piece.text, dialect), piece.language)
    text = characters.visible(characters.folded(html.unescape(_NESTED.sub("&", piece.text))))
    text = effects.defused_prose(effects.without_hidden(text), dialect)
    return fences.Piece(fences.without_strays(text))


def _capped(text: str) -> str:
    lines = (piece.rstrip() for line in text.split("\n") for piece in _broken(line))
    return "\n".join(lines).strip("\n")[:MAX_BODY].strip()


def _broken(line: str) -> list[str]:
    return [line] if len(line) <= MAX_LINE else _PIECE.findall(line)
