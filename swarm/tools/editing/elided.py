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
_AS_IT_WAS = r"(?:same(?:\s+as\s+(?:before|above|it\s+was))?|as\s+(?:before|is|(?:it|they)\s+(?:is|was|were|are)))"
_SAME = rf"(?:(?:is|are|remains?|stays?)\s+)?(?:(?:the\s+)?(?:unchanged|here|omitted|{_AS_IT_WAS})|remains?|stays?)"
_SOME = r"(?:rest|remainder|remaining|existing|previous|other|unchanged|same)"
_DOTS = r"(?:\.{3}|\u2026)"
# All of a line is such a phrase, or begins with dots: a sentence that only begins alike says something of its own.
_LAZY = re.compile(
    rf"""(?P<comment>\#+|//+|/\*+|<!--|--|;+|%|\*|\{{/\*)?\s*\(?
    (?: {_DOTS}(?P<gap>[\s(]*)(?:the\s+)?(?:keep\s+(?:the\s+)?)?{_SOME}\b
        (?:\s+(?:(?:of|the|this)\b.{{0,40}})?(?:{_WHAT}\b.{{0,20}})?(?:\b(?:{_WHAT}|{_SAME}|as)|{_DOTS}))?
      | (?:the\s+)?(?:rest|remainder)\s+of\s+(?:the\s+|this\s+)?(?:\w+\s+)?{_WHAT}\b\s*(?:{_DOTS}|,?\s*\(?{_SAME}\)?)
      | (?:the\s+)?(?:existing|remaining|previous|unchanged|other|same)\s+(?:\w+\s+)?{_WHAT}\s*
        (?:{_DOTS}|(?:go(?:es)?\s+)?,?\s*\(?{_SAME}\)?)
    )
    [\s.\u2026!:)]*(?:\*+/\}}?|-->)?\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_SHORT, _LONG = 8, 300  # no such line is shorter or longer


def stand_in(new: str, old: str = "") -> str:
    """The first line of ``new`` that stands for text left out and is not in ``old``; empty where there is none."""
    known = {line.strip() for line in old.splitlines()}
    for line in new.splitlines():
        if len(line) > _LONG or (bare := line.strip()) in known or len(bare) < _SHORT:
            continue
        lazy = _LAZY.fullmatch(bare)
        if _OURS.search(bare) or (lazy and (lazy["comment"] or lazy["gap"] or not bare.startswith("..."))):
            return bare
    return ""


def refusal(line: str) -> str:
    """What a model is told about it."""
    return (
        f"the text holds {line[:100]!r}, which stands for text that is left out and would be lost. Give the real text "
        "in full, or change only the lines in question with edit or edit_lines. Where the line itself is meant, "
        "write it with shell"
    )
