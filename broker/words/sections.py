"""Where a proposal's words go in a repository's own template, and who may speak under the broker's headings. Pure."""

from __future__ import annotations

import re

from broker.words.characters import letters
from broker.words.clean import clean
from broker.words.dialect import Dialect
from broker.words.fences import Piece, joined, split

EVIDENCE = "Evidence, as the coordinator reports it"
WARNINGS = "What the broker warns of"
DID = "What the broker did"
_MAX_TEMPLATE = 8_000
_FITTING = re.compile(
    r"\W*(?:description|summary|what\b|changes?\b|overview|why\b|motivation|context|purpose|about|proposed|intent)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]|$)")
_UNDERLINE = re.compile(r"[ ]{0,3}(?:={2,}|-{2,})[ \t]*")
_RESERVED = tuple(letters(name) for name in (EVIDENCE, WARNINGS, DID))


def fill(template: str, body: str, dialect: Dialect) -> str:
    """The template with the body under its first fitting heading, or before it if none fits. Both lose all effect."""
    own, lines = clean(body, dialect), clean(template[:_MAX_TEMPLATE], dialect).split("\n")
    if not template.strip() or lines == [""]:
        return own
    at = _place(lines)
    if at is None:
        return "\n\n".join(part for part in (own, "\n".join(lines)) if part)
    above, below = "\n".join(lines[:at]).rstrip(), "\n".join(lines[at:]).lstrip("\n")
    return "\n\n".join(part for part in (above, own, below) if part)


def without_claims(text: str) -> str:
    """Less what only looks as if the broker said it: its own headings, in words of others, are said to be theirs."""
    pieces = (piece if piece.language is not None else Piece(_owned(piece.text)) for piece in split(text))
    return joined(list(pieces))


def _owned(prose: str) -> str:
    # The letters alone, and on into the lines below: a heading may have markup within a word, and stand on two lines.
    lines, at, owned = prose.split("\n"), 0, []
    spelled = [letters(line) for line in lines]
    whole = "".join(spelled)
    for line, own in zip(lines, spelled, strict=True):
        claims = own and whole.startswith(_RESERVED, at)
        owned.append(f"(not the broker's words) {_bare(line)}" if claims else line)
        at += len(own)
    return "\n".join(owned)


def _bare(line: str) -> str:
    return line.strip("#>*_ \t=-")


def _place(lines: list[str]) -> int | None:
    in_code = False
    for number, line in enumerate(lines):
        in_code ^= line.startswith("```")
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if in_code or not line.strip() or not _FITTING.match(line):
            continue
        if _HEADING.match(line):
            return number + 1
        if _UNDERLINE.fullmatch(below):
            return number + 2
    return None
