"""JSON with comments and trailing commas, as devcontainer.json is written. Pure.

The comments are taken out by hand and the rest is left to `json`: the libraries for it read a larger language with
parsers whose time grows with the square of a hostile file, in the daemon's one thread.
"""

from __future__ import annotations

import json
import re
from typing import Any

_LONGEST = 256 * 1024
# Each alternative takes all it can, also of a string or comment without an end: no text is looked at twice.
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)|[,\]}]|[^"/,\]}]+|/', re.DOTALL)


def loads(text: str) -> Any:
    """The value. Raises ValueError for what is not JSON, is nested too deeply, or is over 256 KiB."""
    if len(text) > _LONGEST:
        raise ValueError(f"it is longer than {_LONGEST} characters")
    try:
        return json.loads("".join(_pieces(text.removeprefix("\ufeff"))))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _pieces(text: str) -> list[str]:
    """The text without comments (their line feeds stay, for the places in error messages) and trailing commas."""
    kept: list[str] = []
    comma = -1  # where a comma stands that nothing but space has followed
    for piece in _PIECE.findall(text):
        if piece.startswith(("//", "/*")):
            kept.append("\n" * piece.count("\n"))
            continue
        if piece in {"]", "}"} and comma >= 0:
            kept[comma] = " "
        if piece == ",":
            comma = len(kept)
        elif not piece.isspace():
            comma = -1
        kept.append(piece)
    return kept
