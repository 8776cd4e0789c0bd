"""Definitions and mentions by the look of lines. Pure.

For languages without a grammar here, and where grammars may not be run. Patterns are tried on short lines alone, and
none of them can be slow.
"""

from __future__ import annotations

import re

from swarm.tools.mapping.definitions import SIGNATURE, Definition

_WORD = r"(?P<name>[A-Za-z_$][\w$]{0,99})"
_MARKS = (
    r"(?:(?:export|default|pub(?:\([^)]{0,40}\))?|public|private|protected|internal|static|final|abstract|async|open|"
)
_MARKS += r"override|sealed|data|unsafe|extern|inline|const|local|virtual|partial|declare|suspend)\s+){0,6}"
_DEFINES = re.compile(
    rf"^\s*{_MARKS}(?:def|class|func|function\*?|fn|fun|interface|trait|struct|enum|type|module|object|record|protocol|"
    rf"namespace|impl|macro_rules!|sub)\s+(?:\([^)]{{0,80}}\)\s*)?(?:self\.)?{_WORD}"
)
_SHELL = re.compile(rf"^{_WORD}\s*\(\)\s*\{{?\s*$")
_TYPED = re.compile(
    rf"^(?:[\w<>\[\],.&*:]{{1,60}}\s+){{1,5}}[*&]?(?:\w{{1,60}}::)?{_WORD}\s*\([^;{{}}]{{0,200}}\)?\s*(?:const\s*)?\{{?\s*$"
)
_MENTION = re.compile(r"\b(?:[A-Z]\w{2,99}\b|[A-Za-z_]\w{2,99}(?=\s{0,3}\())")
_NOT = frozenset(
    {"if", "for", "while", "switch", "return", "else", "catch", "new", "throw", "case", "in", "of", "elif"}
)
_LONG = 400


def outline(text: str, most: int) -> tuple[Definition, ...]:
    """The definitions of a text, at most so many. Each lasts until the next line that is indented no deeper."""
    lines = text.split("\n")
    found: list[Definition] = []
    open_: list[tuple[int, int]] = []  # of those that go on: where it is in ``found``, and its indentation
    for number, line in enumerate(lines, 1):
        if not line.strip() or len(line) > _LONG:
            continue
        deep = len(line) - len(line.lstrip())
        name = _name(line)
        if name is None and not open_:
            continue
        while open_ and (deep < open_[-1][1] or (deep == open_[-1][1] and name is not None)):
            at, _ = open_.pop()
            found[at] = _until(found[at], number - 1)
        if name is not None and len(found) < most:
            open_.append((len(found), deep))
            found.append(Definition(name, number, number, line.strip()[:SIGNATURE]))
    for at, _ in open_:
        found[at] = _until(found[at], len(lines))
    return tuple(found)


def mentions(text: str, most: int) -> dict[str, int]:
    """Names that look called, or like types, and how often; at most so many of them."""
    counted: dict[str, int] = {}
    for match in _MENTION.finditer(text):
        name = match[0]
        if name in counted or len(counted) < most:
            counted[name] = counted.get(name, 0) + 1
    return counted


def _until(one: Definition, last: int) -> Definition:
    return Definition(one.name, one.first, max(one.first, last), one.signature)


def _name(line: str) -> str | None:
    """What a line defines."""
    for pattern in (_DEFINES, _SHELL, _TYPED):
        match = pattern.match(line)
        if match and match["name"] not in _NOT and line.split(None, 1)[0] not in _NOT:
            return match["name"]
    return None
