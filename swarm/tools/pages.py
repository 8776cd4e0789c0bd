"""A text as numbered lines, and what of it is shown: bounded, and never without saying what is missing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from swarm.history import clean

LINES = 400
ROOM = 20_000  # characters of one page
WIDE = 1500  # characters shown of one line


@dataclass(frozen=True)
class Page:
    """``first`` to ``last`` are shown of ``total`` lines; ``cut`` are those of them that are shown in part only."""

    text: str
    first: int
    last: int
    total: int
    cut: frozenset[int] = frozenset()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The lines that are shown whole, as ranges."""
        edges = [self.first - 1, *sorted(self.cut), self.last + 1]
        return tuple((low + 1, high - 1) for low, high in pairwise(edges) if high - low > 1)


def split(text: str) -> list[str]:
    """The lines of a text without their ends, as editors number them: a last newline begins no further line."""
    return text.removesuffix("\n").split("\n") if text else []


def decode(data: bytes) -> str:
    """Bytes as text in which each byte that is no UTF-8 is one odd character, so that nothing moves or is lost."""
    return data.decode("utf-8", "surrogateescape")


def page(lines: list[str], first: int = 1, last: int | None = None) -> Page:
    """Lines from ``first`` with their numbers, as many as fit in the bounds of one page."""
    end = min(last or len(lines), len(lines), first + LINES - 1)
    shown: list[str] = []
    cut, room = set(), ROOM
    for number in range(first, end + 1):
        line = visible(lines[number - 1])
        if len(line) > WIDE:
            cut.add(number)
            line = f"{line[:WIDE]} [... {len(line) - WIDE} more characters in this line]"
        room -= len(line) + 8
        if room < 0 and shown:
            cut.discard(number)
            break
        shown.append(f"{number}\t{line}")
    return Page("\n".join(shown), first, first + len(shown) - 1, len(lines), frozenset(cut))


def visible(line: str) -> str:
    """A line as it is shown: no control character, a byte that is no UTF-8 as one replacement character."""
    shown = line.removeprefix("\ufeff").removesuffix("\r").replace("\r", "\u240d")
    return clean("".join("\ufffd" if "\udc80" <= char <= "\udcff" else char for char in shown))
