"""Words of a repository made fit to be shown to a model as data: nothing in them that a person would not see. Pure."""

from __future__ import annotations

import unicodedata

from swarm.history import clean

_KEPT = frozenset("\n\t ")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0), range(0x1D173, 0x1D17B))
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
"""Characters that are letters or marks to Unicode and nothing to the eye."""


def visible(text: str) -> str:
    """The text without what hides in it: terminal sequences, control, bidirectional and tag characters, characters of
    no width, variation selectors, comments of HTML (which no reader of the rendered page sees)."""
    plain = clean(text)
    hidden = {ord(char): None for char in set(plain) if char not in _KEPT and not _shows(char)}
    return _without_comments(plain.translate(hidden))


def line(text: str, most: int = 200) -> str:
    """The same as one line of at most ``most`` characters."""
    return " ".join(visible(text).split())[:most]


def _shows(char: str) -> bool:
    if char in _FILLERS or any(ord(char) in few for few in _SELECTORS):
        return False
    return unicodedata.category(char) not in _HIDDEN


def _without_comments(text: str) -> str:
    """Each comment becomes a blank, so that what was around it cannot become another one."""
    out, place = [], 0
    while (start := text.find("<!--", place)) >= 0:
        out.append(text[place:start])
        end = text.find("-->", start + 4)
        place = len(text) if end < 0 else end + 3
    return " ".join([*out, text[place:]])
