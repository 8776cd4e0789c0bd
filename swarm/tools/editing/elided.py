"""Finds in a new text what stands for text that was left out: a mark of our own, or a comment in place of code. Pure.

Written to a file, such a line loses whatever it stands for. A line that the file already holds is the file's own.
"""

from __future__ import annotations

import re

_OURS = re.compile(
    r"\[\.\.\. \d+ (?:more )?characters\b.*(?:left out|in this line)\b"
    r"|^\[\d+ (?:more|further) lines\b.*\]$"
    r"|^\[lines? \d+.* of \d+ (?:are|is) shown\b.*\]$"
    r"|^\[\d+ bytes of output were left out here\]$"
    r"|^\[output removed to make room: \d+ characters"
)
_WHAT = r"(?:code|file|lines?|contents?|implementation|methods?|functions?|class|tests?|imports?|section|body|stuff)"
_SAME = r"(?:unchanged|same|here|as\s+(?:before|is|it\s+was)|remains?|stays?|omitted|\.{3}|\u2026)"
_LAZY = re.compile(
    rf"""^\s*(?P<comment>\#|//|/\*|<!--|--|;|%|\*|\{{/\*)?\s*
    (?: (?:\.{{3}}|\u2026)(?P<gap>[\s(]*)(?:the\s+)?
        (?:rest|remainder|remaining|existing|previous|other|unchanged|same|keep)\s+(?:of\b|the\b|{_WHAT}\b|as\b|{_SAME})
      | \(?(?:the\s+)?(?:rest|remainder)\s+of\s+(?:the\s+|this\s+)?(?:\w+\s+)?{_WHAT}\b.{{0,40}}{_SAME}
      | (?:existing|remaining|previous|unchanged|other)\s+{_WHAT}\b.{{0,20}}{_SAME}
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_LONG = 300  # no such line is longer


def stand_in(new: str, old: str = "") -> str:
    """The first line of ``new`` that stands for text left out and is not in ``old``; empty where there is none."""
    known = {line.strip() for line in old.splitlines()}
    for line in new.splitlines():
        if len(line) > _LONG or line.strip() in known:
            continue
        lazy = _LAZY.match(line)
        if _OURS.search(line.strip()) or (
            lazy and (lazy["comment"] or lazy["gap"] or not lazy.group().strip("(").startswith("..."))
        ):
            return line.strip()
    return ""


def refusal(line: str) -> str:
    """What a model is told about it."""
    return (
        f"the text holds {line[:100]!r}, which stands for text that is left out and would be lost. Give the real text "
        "in full, or change only the lines in question with edit or edit_lines"
    )
