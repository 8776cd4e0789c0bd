"""Long outputs: shortened for the model, kept in memory within bounds, and shown by the page when asked for."""

from __future__ import annotations

import re

LIMIT = 12_000  # characters of one output that go into the conversation
_KEPT = 1_000_000  # characters kept of all of them
_NAME = re.compile(r"output:(\d{1,9})\Z")


class Outputs:
    """By number, from 1. The oldest are dropped first."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._count = 0

    def shorten(self, text: str, limit: int = LIMIT) -> str:
        """The text where it is short; else its head and its larger tail, and between them how to see the rest."""
        if len(text) <= limit:
            return text
        number = self.keep(text)
        head, tail = _ends(text, limit)
        first = head.count("\n") + 1
        last = text.count("\n", 0, len(text) - len(tail))
        left = len(text) - len(head) - len(tail)
        where = f"lines {first}-{max(first, last)}"
        return (
            f"{head}[... {left} characters left out, {where}: to see them, "
            f'view path "output:{number}" first {first} ...]\n{tail}'
        )

    def keep(self, text: str) -> int:
        """Keep a text; the number by which `find` gives it back."""
        self._count += 1
        self._texts[self._count] = text
        while len(self._texts) > 1 and sum(map(len, self._texts.values())) > _KEPT:
            del self._texts[next(iter(self._texts))]
        return self._count

    def find(self, path: str) -> str | None:
        """The text that a path like ``output:3`` names; None where it names no output. Raises KeyError for one that is
        not kept (any more)."""
        match = _NAME.match(path.strip())
        if match is None:
            return None
        return self._texts[int(match[1])]

    def recall(self, count: int) -> None:
        """Go on counting after an earlier part of the conversation, whose outputs are gone."""
        self._count = max(self._count, count)

    @property
    def count(self) -> int:
        """How many were shortened so far."""
        return self._count


def _ends(text: str, limit: int) -> tuple[str, str]:
    """Head and tail, cut at line ends where there are any."""
    head, tail = text[: limit * 2 // 5], text[len(text) - limit * 3 // 5 :]
    head = head[: head.rfind("\n") + 1] or head + "\n"
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail[:-1] else tail
    return head, tail
