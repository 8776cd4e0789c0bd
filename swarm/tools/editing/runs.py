"""Finds runs of equal lines in a file, in a time that grows with the file and not with how alike its lines are. Pure.

Each different line is one character of a text, in which the string search of the language, which is linear, looks for
the run. Bounds are counts of lines and bytes, never of time, so that a replay comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

LINES = 500_000  # of a file, above which its lines are not compared


class Runs:
    """The lines of one file as one way of comparing sees them."""

    def __init__(self, lines: Iterable[str], key: Callable[[str], str]) -> None:
        self._key = key
        self._marks: dict[str, str] = {}
        self._text = "".join(self._mark(key(line)) for line in lines)

    def starts(self, wanted: Sequence[str], most: int, begin: int = 0) -> list[int]:
        """Where from line ``begin`` the wanted lines are, counted from 0; overlapping places count, up to ``most``."""
        run = self._run(wanted)
        found: list[int] = []
        at = self._text.find(run, begin) if run else -1
        while at >= 0 and len(found) < most:
            found.append(at)
            at = self._text.find(run, at + 1)
        return found

    def there(self, wanted: Sequence[str], start: int) -> bool:
        """Whether the wanted lines begin just there."""
        run = self._run(wanted)
        return bool(run) and start >= 0 and self._text.startswith(run, start)

    def _run(self, wanted: Sequence[str]) -> str:
        """The wanted lines as characters; empty where the file holds one of them nowhere."""
        marks = [self._marks.get(self._key(line), "") for line in wanted]
        return "".join(marks) if all(marks) else ""

    def _mark(self, line: str) -> str:
        mark = self._marks.get(line)
        if mark is None:
            mark = self._marks[line] = chr(len(self._marks))
        return mark


def too_much(what: str, mend: str) -> str:
    """What a model is told of a search that is not begun."""
    return f"too much to search: {what}. {mend}"


def words(line: str) -> str:
    """A line with one blank for any number of them, and none at its ends."""
    return " ".join(line.split())
