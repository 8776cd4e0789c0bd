"""One changed file as the scans see it, its lines, and what is new or gone in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_BINARY_PROBE = 8000
PIECE, OVERLAP = 1_200, 300  # patterns may take quadratic time, so long lines are cut


@dataclass(frozen=True)
class Content:
    """``new`` is None for a file that is gone. ``moved``: the same bytes stood under another path that is gone."""

    path: str
    old: bytes
    new: bytes | None
    moved: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


def is_binary(data: bytes) -> bool:
    """Whether git would call it binary: a NUL byte near the start."""
    return b"\0" in data[:_BINARY_PROBE]


def added_lines(old: bytes, new: bytes) -> Iterator[tuple[int, str]]:
    """Lines that occur more often in ``new`` than in ``old``, with their number; moving a line adds nothing."""
    left = Counter(old.split(b"\n"))
    for number, line in enumerate(new.split(b"\n"), start=1):
        if left[line] > 0:
            left[line] -= 1
        else:
            yield number, line.decode("utf-8", "replace")


def pieces(line: str) -> Iterator[str]:
    """The line in parts that overlap, so that no pattern meets a long one and none is missed at a cut."""
    for start in range(0, len(line), PIECE):
        yield line[max(0, start - OVERLAP) : start + PIECE]
