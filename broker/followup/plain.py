"""Words from a forge without anything hidden, and without anything that moves a cursor or turns text around. Pure."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"
_SELECTORS = {chr(code) for code in (*range(0xFE00, 0xFE10), 0x115F, 0x1160, 0x3164, 0x034F)}
CUT = "\n[cut here]"


def plain(words: str, limit: int) -> str:
    """At most ``limit`` characters without control, bidirectional or invisible characters; newlines and tabs stay.

    Cc, Cf (among them the bidi controls of CVE-2021-42574 and the tag characters), Co, Cs and Cn are left out.
    """
    even = words[: limit * 2].replace("\r\n", "\n").replace("\r", "\n")
    shown = "".join(char for char in even if char in _KEPT or (_seen(char) and char not in _SELECTORS))
    if len(shown) <= limit and len(words) <= limit * 2:
        return shown
    return shown[: limit - len(CUT)] + CUT


def line(words: str, limit: int) -> str:
    """The same on one line."""
    return " ".join(plain(words, limit * 2).split())[:limit]


def _seen(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] != "C" and category not in {"Zl", "Zp"}
