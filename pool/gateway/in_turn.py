"""Brings what a chat says into the order of APIs that tell an answer block by block, each whole before the next; pure.

A chat's chunks may alternate between calls, by their index, and may say something between a call's name and its
arguments. The open block is told as it comes; what belongs to others is held until that one has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pool.wire.arguments import whole_json

Kind = Literal["reasoning", "text", "call"]
VAIN = 64  # readings of a call's arguments that found them unfinished; after so many all else waits for the end


@dataclass(slots=True, eq=False)
class Block:
    """One block of an answer. ``index``, ``id`` and ``name`` are a call's; ``said`` is what came of its text or its
    arguments, kept of calls and of what is held."""

    kind: Kind
    index: int = -1
    id: str = ""
    name: str = ""
    said: list[str] = field(default_factory=list)


Step = tuple[Block, str]
"""A block and what it says further. One that was not told before begins with that, and ends the one before it."""


class InTurn:
    """Takes the deltas of one choice in the order in which they come, or a whole message."""

    def __init__(self) -> None:
        self._open: Block | None = None
        self._held: list[Block] = []
        self._calls: dict[int, Block] = {}
        self._over: set[int] = set()
        self._vain = 0

    def take(self, delta: Mapping[str, Any]) -> Iterator[Step]:
        """What can be told now."""
        if thought := delta.get("reasoning") or delta.get("reasoning_content"):
            yield from self._add(self._text("reasoning"), thought)
        if text := delta.get("content"):
            yield from self._add(self._text("text"), text)
        for position, call in enumerate(delta.get("tool_calls") or ()):
            index = position if (told := call.get("index")) is None else told
            block = self._calls.setdefault(index, Block("call", index))
            function = call.get("function") or {}
            block.id = block.id or call.get("id") or ""
            block.name += function.get("name") or ""
            yield from self._add(block, function.get("arguments") or "")

    def rest(self) -> Iterator[Step]:
        """What was held, once nothing more comes."""
        for block in self._held:
            yield block, "".join(block.said)
        self._held = []

    def _text(self, kind: Kind) -> Block:
        last = self._held[-1] if self._held else self._open
        return last if last is not None and last.kind == kind else Block(kind)

    def _add(self, block: Block, more: str) -> Iterator[Step]:
        if block.index in self._over:  # whole JSON can only be followed by blanks
            return
        if more and (block.kind == "call" or block is not self._open):
            block.said.append(more)
        if block is self._open:
            yield block, more
            return
        if block not in self._held:
            self._held.append(block)
        while self._held and self._ended() and (self._held[0].kind != "call" or self._held[0].name):
            self._open = self._held.pop(0)
            yield self._open, "".join(self._open.said)

    def _ended(self) -> bool:
        """Whether the open block is over, now that something else came: a text is, a call where nothing is missing."""
        block = self._open
        if block is None or block.kind != "call":
            return True
        last = next((more for more in reversed(block.said) if more.strip()), "")
        if self._vain >= VAIN or not last.rstrip().endswith("}"):
            return False
        if whole_json("".join(block.said)):
            self._over.add(block.index)
            return True
        self._vain += 1
        return False
