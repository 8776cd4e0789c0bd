"""Text that a reader cannot see: bidirectional controls (CVE-2021-42574), invisible and control characters."""

from __future__ import annotations

import unicodedata

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_FILLERS = frozenset("\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0")
_JOINERS = frozenset("\u200c\u200d")
_FINE_CONTROLS = frozenset("\t\n\r\f")


def hidden_in(line: str) -> str | None:
    """The first such character of a line, in words; None if there is none."""
    if line.isascii() and line.isprintable():
        return None
    for at, char in enumerate(line):
        if char.isascii() and (char.isprintable() or char in _FINE_CONTROLS):
            continue
        if char in _BIDI:
            return f"a bidirectional control U+{ord(char):04X}"
        if _is_invisible(line, at, char):
            return f"an invisible character U+{ord(char):04X}"
        if unicodedata.category(char) == "Cc" and char not in _FINE_CONTROLS:
            return f"a control character U+{ord(char):04X}"
    return None


def _is_invisible(line: str, at: int, char: str) -> bool:
    if char in _JOINERS:  # part of emoji and of several scripts, never between ASCII letters
        around = line[max(0, at - 1) : at] + line[at + 1 : at + 2]
        return all(near.isascii() for near in around)
    if "\U000e0100" <= char <= "\U000e01ef":
        return True
    return char in _FILLERS or unicodedata.category(char) in {"Cf", "Zl", "Zp", "Co"}
