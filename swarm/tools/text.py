"""Text between a model and a file: line ends, and line numbers copied from a view. Pure."""

from __future__ import annotations

import re
from itertools import pairwise

from swarm.history import plain

NUMBERED = re.compile(r"^ *(\d+)(?:\t|\| ?)")


def unix(text: str) -> str:
    """The same with plain newlines."""
    return plain(text).replace("\r\n", "\n")


def numbered(text: str) -> bool:
    """Whether every line that holds anything has a line number before it, each one more than the last."""
    numbers = [NUMBERED.match(line) for line in text.split("\n") if line.strip()]
    found = [int(match[1]) for match in numbers if match]
    return bool(found) and len(found) == len(numbers) and all(b > a for a, b in pairwise(found))


def unnumbered(text: str) -> str:
    """Without the numbers that a view puts before lines."""
    return "\n".join(NUMBERED.sub("", line) for line in text.split("\n"))


def crlf(text: str) -> bool:
    """Whether most lines end with CRLF."""
    return text.count("\r\n") * 2 > text.count("\n")
