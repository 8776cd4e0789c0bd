"""What weak models do to edits without meaning to: fences around a text, half of a function replaced. Pure."""

from __future__ import annotations

import re

_FENCED = re.compile(r"\s*```[\w+.-]*[ \t]*\n(?P<body>.*?)\n?[ \t]*```\s*", re.DOTALL)
_PROSE = (".md", ".markdown", ".rst", ".txt", ".mdx", ".adoc")
_HEAD = re.compile(r"\s*(?:(?:async\s+)?def|class|(?:pub\s+)?fn|func|function)\b.*[:{]\s*")


def unfenced(text: str, path: str, end: str = "") -> str:
    """The text without the fence that a model put around all of it, in a file of code; ``end`` then ends it."""
    match = _FENCED.fullmatch(text)
    if match is None or "```" in match["body"] or path.lower().endswith(_PROSE):
        return text
    return match["body"] + end


def left_below(search: str, replacement: str, last: int) -> str:
    """Where only the head of a function was searched for and a whole one put in its place: that the old body is still
    there, below line ``last``. Else empty."""
    old, new = search.strip("\n").split("\n"), replacement.strip("\n").split("\n")
    if len(old) != 1 or len(new) < 2 or not _HEAD.fullmatch(old[0]) or old[0].split() != new[0].split():
        return ""
    return (
        f"[only the line {old[0].strip()[:100]!r} was replaced: what was below it is still there, from line {last + 1}."
        " Where the new text takes its place, remove it with edit_lines]"
    )
