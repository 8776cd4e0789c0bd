"""The pretend engine's paged KV cache: blocks with keys, prefix reuse, least-recently-used eviction; pure.

Follows vLLM's block pool (v1): a block that nobody holds stays findable by its key until it is taken for another use;
of one sequence the tail is taken first; blocks without a key are taken before any other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import xxhash

KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks became findable: their keys in order, the key before them, and where they begin in their sequence."""

    keys: tuple[int, ...]
    parent: int | None
    first: int
    owner: str


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks were taken for another use."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Everything was forgotten."""


KvEvent = Stored | Removed | Cleared


def chain(data: bytes, block_bytes: int, *, salt: str = "") -> list[int]:
    """One key for each whole block of ``data``; a key stands for its block and all before it."""
    key = xxhash.xxh3_64_intdigest(salt.encode())
    keys = []
    for start in range(0, len(data) - block_bytes + 1, block_bytes):
        key = xxhash.xxh3_64_intdigest(data[start : start + block_bytes], seed=key)
        keys.append(key)
    return keys


@dataclass(slots=True)
class Table:
    """The blocks that one sequence holds, in order."""

    owner: str
    blocks: list[int] = field(default_factory=list)
    named: int = 0


class BlockCache:
    """``total`` blocks of KV memory. ``events`` collects what changed until somebody takes it."""

    def __init__(self, total: int, *, caching: bool = True) -> None:
        self.total = total
        self.caching = caching
        self.events: list[KvEvent] = []
        self._free: OrderedDict[int, None] = OrderedDict((block, None) for block in range(total))
        self._holders = [0] * total
        self._key: list[int | None] = [None] * total
        self._found: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds, findable ones included."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Held share of all blocks, from 0 to 1."""
        return 1.0 - len(self._free) / self.total

    @property
    def cached(self) -> int:
        """Blocks that can be found by their key."""
        return len(self._found)

    def hits(self, keys: Sequence[int]) -> int:
        """How many blocks from the first on are here."""
        for count, key in enumerate(keys):
            if key not in self._found:
                return count
        return len(keys)

    def wanted(self, keys: Sequence[int], blocks: int) -> int:
        """Free blocks that a new sequence of ``blocks`` blocks would use up when it reuses those of ``keys``."""
        idle = sum(1 for key in keys if not self._holders[self._found[key]])
        return blocks - len(keys) + idle

    def reuse(self, table: Table, keys: Sequence[int]) -> None:
        """Let a new sequence hold the blocks of ``keys``, which must be here."""
        for key in keys:
            block = self._found[key]
            if not self._holders[block]:
                del self._free[block]
            self._holders[block] += 1
            table.blocks.append(block)
        table.named = len(table.blocks)

    def grow(self, table: Table, blocks: int) -> bool:
        """Let a sequence hold ``blocks`` blocks in all; False, and nothing done, when there are too few."""
        missing = blocks - len(table.blocks)
        if missing > len(self._free):
            return False
        lost = []
        for _ in range(missing):
            block, _nothing = self._free.popitem(last=False)
            key, self._key[block] = self._key[block], None
            if key is not None:
                del self._found[key]
                lost.append(key)
            self._holders[block] = 1
            table.blocks.append(block)
        if lost:
            self.events.append(Removed(tuple(lost)))
        return True

    def name(self, table: Table, keys: Sequence[int]) -> None:
        """Make the sequence's blocks findable by ``keys``, its whole blocks from the first on."""
        first = table.named
        if not self.caching or len(keys) <= first:
            return
        for index in range(first, len(keys)):
            key, block = keys[index], table.blocks[index]
            if key not in self._found:  # the same block computed twice at a time: the second stays without a key
                self._found[key] = block
                self._key[block] = key
        table.named = len(keys)
        self.events.append(Stored(tuple(keys[first:]), keys[first - 1] if first else None, first, table.owner))

    def release(self, table: Table) -> None:
        """Give a sequence's blocks back, so that its tail is taken before its head."""
        for block in reversed(table.blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None
                if self._key[block] is None:
                    self._free.move_to_end(block, last=False)
        table.blocks.clear()
        table.named = 0

    def clear(self) -> None:
        """Forget every key; who holds blocks keeps them."""
        self._found.clear()
        self._key = [None] * self.total
        self.events.append(Cleared())
