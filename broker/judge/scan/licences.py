"""Licence headers that a change removes, and licence files that it deletes or guts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from broker.judge.scan.content import Content, is_binary

_HEAD_LINES, _HEAD_BYTES, _MAX_LINE = 60, 16_384, 400
_LICENCE = re.compile(
    r"spdx-(?:license-identifier|filecopyrighttext)|\bcopyright\b|\(c\) ?\d{4}|\u00a9|\blicen[sc]ed under\b"
    r"|\ball rights reserved\b|\bpermission is hereby granted\b|\bthis program is free software\b"
    r"|\bsubject to the terms of the\b.{0,80}\blicen[sc]e\b",
    re.IGNORECASE,
)
_FILE = re.compile(r"(?:licen[sc]es?|copying|notice|copyright)(?:[.-][a-z0-9.-]{1,40})?", re.IGNORECASE)
_DECORATION = re.compile(r"\W+|\b(?:19|20)\d\d\b")  # comment signs, and years that a new year changes


class Licences:
    """Looks at one proposal: a file that moves may keep its header where it goes."""

    def __init__(self) -> None:
        self._gone: dict[str, tuple[str, frozenset[str]]] = {}  # by file name: path and header of a deleted file
        self._come: dict[str, tuple[str, frozenset[str]]] = {}

    def look(self, content: Content) -> Iterator[str]:
        """What a file loses, in words."""
        if is_binary(content.old) or content.moved:
            return
        is_licence = bool(_FILE.fullmatch(content.name))
        if content.new is None:
            if is_licence:
                yield "is a licence file, and deleted"
            elif header := _header(content.old, _HEAD_LINES):
                self._gone[content.name] = content.path, header
            return
        kept = _header(content.new, 4 * _HEAD_LINES)
        if not content.old:
            self._come[content.name] = content.path, kept
            return
        if lost := sorted(_header(content.old, _HEAD_LINES) - kept):
            yield f"loses a line of its licence header: {lost[0][:80]!r}"
        elif is_licence and 2 * len(content.new.split()) < len(content.old.split()):
            yield "is a licence file, and loses more than half of its words"

    def close(self) -> Iterator[tuple[str, str]]:
        """Path and words of files that lost their header by being moved."""
        for name, (path, header) in self._gone.items():
            if name in self._come and (lost := sorted(header - self._come[name][1])):
                yield self._come[name][0], f"was {path} and loses a line of its licence header: {lost[0][:80]!r}"


def _header(data: bytes, lines: int) -> frozenset[str]:
    text = data[: _HEAD_BYTES * (lines // _HEAD_LINES)].decode("utf-8", "replace")
    found = (line[:_MAX_LINE] for line in text.splitlines()[:lines] if _LICENCE.search(line[:_MAX_LINE]))
    return frozenset(" ".join(_DECORATION.sub(" ", line).split()) for line in found)
