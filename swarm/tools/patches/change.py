"""What a patch does, as data: files and the hunks in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Sign = Literal[" ", "-", "+"]


@dataclass
class Hunk:
    """Lines with their signs. ``at`` is the first old line's number as the patch says it, ``counted`` that it says that
    there is none, ``anchors`` lines above it, ``closed`` whether the new last line ends where the patch tells."""

    lines: list[tuple[Sign, str]] = field(default_factory=list)
    at: int | None = None
    counted: bool = False
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    closed: bool | None = None

    @property
    def old(self) -> list[str]:
        """What must be there."""
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def changes(self) -> bool:
        """Whether anything in it is added or removed."""
        return any(sign != " " for sign, _ in self.lines)


@dataclass
class Change:
    """What a patch does to one file; ``to`` is its new path where it moves."""

    kind: Literal["add", "update", "delete"]
    path: str
    hunks: list[Hunk] = field(default_factory=list)
    to: str | None = None
    executable: bool | None = None

    @property
    def added(self) -> str:
        """The content of a file that is added; an empty line that lost its sign is one of its lines."""
        lines = [text for hunk in self.hunks for sign, text in hunk.lines if sign != "-"]
        open_end = bool(self.hunks) and self.hunks[-1].closed is False
        return "\n".join(lines) + ("" if open_end or not lines else "\n")


def signed(line: str, bare: Sign = " ") -> tuple[Sign, str]:
    """A line of a hunk; one that lost its sign is taken as ``bare``, where it holds nothing as an empty line."""
    if line.startswith("+"):
        return "+", line[1:]
    if line.startswith("-") and bare != "+":
        return "-", line[1:]
    if line.startswith(" ") and bare != "+":
        return " ", line[1:]
    return bare, line
