"""Reads the KV events that a vLLM publishes, and keeps the view of its blocks that follows from them. No I/O.

Layout of vllm/distributed/kv_events.py: a batch is msgpack ``[time, events, rank]``; an event is a map tagged by
``type`` (0.32), in older versions an array that begins with its name. Batches are numbered; whoever misses one asks for
it again, and where that fails nothing is known of the endpoint's blocks any more.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
from xxhash import xxh3_64_intdigest

from pool.placement.blocks import token_root

Hash = bytes | int
FIELDS = {
    "BlockStored": (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
        "group_idx",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}  # fmt: skip
MOST_BLOCKS = 2_000_000  # of one endpoint; at 16 tokens each that is a cache of 32 million tokens
MOST_HELD = 10_000  # batches kept while a replay is awaited, as many as vLLM itself keeps


@dataclass(frozen=True, slots=True)
class Event:
    """One event by its name, its fields as vLLM calls them."""

    name: str
    fields: dict[str, Any]


def decode(payload: bytes) -> tuple[Event, ...]:
    """The events of a batch; those of an unknown name are left out. Raises ValueError for what is no batch."""
    try:
        batch = msgpack.unpackb(payload, strict_map_key=False)
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"no batch of KV events: {error}") from error
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
        raise ValueError("no batch of KV events: not a list of a time and events")
    return tuple(_events(batch[1]))


def _events(told: list[Any]) -> Iterator[Event]:
    for event in told:
        if isinstance(event, dict) and str(event.get("type")) in FIELDS:
            yield Event(str(event["type"]), event)
        elif isinstance(event, list) and event and isinstance(event[0], str) and event[0] in FIELDS:
            yield Event(event[0], dict(zip(FIELDS[event[0]], event[1:], strict=False)))


class Published:
    """The blocks that one endpoint has told of, by the keys that `blocks.token_chain` makes of the same tokens.

    ``whole`` tells whether nothing is missing, which is known from the first batch or a whole replay on; what is held
    counts either way. ``block_tokens`` is the size of its blocks, None until the first one came. ``resets`` counts how
    often the cache was seen to be emptied.
    """

    __slots__ = ("_blocks", "_keys", "_most", "block_tokens", "resets", "whole")

    def __init__(self, most: int = MOST_BLOCKS) -> None:
        self._most = most
        self.block_tokens: int | None = None
        self.whole = False
        self.resets = 0
        self._blocks: dict[Hash, tuple[int, set[str]]] = {}
        self._keys: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._blocks)

    def hit(self, chain: Sequence[int]) -> int:
        """How many of the chain's first keys are held. Later ones without an earlier one are of no use."""
        held = self._keys
        for at, key in enumerate(chain):
            if key not in held:
                return at
        return len(chain)

    def apply(self, event: Event) -> None:
        """Take one event. Raises ValueError for one whose fields are not what they should be."""
        fields = event.fields
        if event.name == "AllBlocksCleared":
            self.emptied()
        elif not fields.get("group_idx"):  # hybrid models store further groups of the same tokens
            try:
                if event.name == "BlockStored":
                    self._store(fields)
                else:
                    for name in fields["block_hashes"]:
                        self._remove(name, str(fields.get("medium") or "GPU"))
            except (LookupError, TypeError, AttributeError, OverflowError) as error:
                raise ValueError(f"a KV event {event.name} with odd fields: {error}") from error

    def emptied(self) -> None:
        """The endpoint holds nothing now."""
        self.lost()
        self.whole = True
        self.resets += 1

    def lost(self) -> None:
        """Nothing is known of what the endpoint holds."""
        self._blocks.clear()
        self._keys.clear()
        self.whole = False

    def _store(self, fields: dict[str, Any]) -> None:
        size, parent = int(fields["block_size"]), fields["parent_block_hash"]
        if size <= 0:
            raise ValueError("a block without tokens")
        self.block_tokens = size
        tokens = array("Q", fields["token_ids"])
        extra = fields.get("extra_keys") or ()
        if parent is None:
            key = _root(fields.get("lora_name"), extra[0] if extra else None)
        elif parent in self._blocks:
            key = self._blocks[parent][0]
        else:  # what came before it was missed, so nobody can say what it continues
            self.whole = False
            return
        medium = str(fields.get("medium") or "GPU")
        for at, name in enumerate(fields["block_hashes"]):
            key = xxh3_64_intdigest(tokens[at * size : (at + 1) * size].tobytes(), key)
            self._add(name, key, medium)

    def _add(self, name: Hash, key: int, medium: str) -> None:
        if known := self._blocks.get(name):
            known[1].add(medium)
            return
        if len(self._blocks) >= self._most:
            self.lost()
        self._blocks[name] = (key, {medium})
        self._keys[key] += 1

    def _remove(self, name: Hash, medium: str) -> None:
        known = self._blocks.get(name)
        if known is None:
            return
        known[1].discard(medium)
        if not known[1]:
            del self._blocks[name]
            self._keys[known[0]] -= 1
            if not self._keys[known[0]]:
                del self._keys[known[0]]


def _root(adapter: str | None, extra: object) -> int:
    """What a first block begins from. Extra keys are the adapter, the salt, and what is no text, which we never ask."""
    rest = [one for one in extra if one != adapter] if isinstance(extra, list | tuple) else []
    if all(isinstance(one, str) for one in rest) and len(rest) <= 1:
        return token_root(adapter, rest[0] if rest else None)
    return xxh3_64_intdigest(repr(rest).encode())


class Feed:
    """Follows the numbered batches of one publisher. ``take`` says from which number on to ask for a replay."""

    __slots__ = ("_held", "_last", "_next", "_replaying", "view")

    def __init__(self, view: Published) -> None:
        self.view = view
        self._next = 0
        self._last = -1
        self._replaying = False
        self._held: deque[tuple[int, bytes]] = deque(maxlen=MOST_HELD)

    def take(self, number: int, payload: bytes) -> int | None:
        """A batch came. Where some before it are missing, the number from which to ask for them; held until then."""
        if number <= self._last:  # numbers only grow, so this is another process, with an empty cache
            self.view.emptied()
            self._next = 0
            self._held.clear()
        self._last = number
        if self._replaying or number > self._next:
            self._held.append((number, payload))
            asked, self._replaying = self._replaying, True
            return None if asked else self._next
        self._apply(number, payload)
        return None

    def begin(self) -> int:
        """From which number on to ask for what was published before anybody listened."""
        self._replaying = True
        return self._next

    def replayed(self, number: int, payload: bytes) -> None:
        """A batch came that was asked for again. The publisher may have kept none of the oldest."""
        if number > self._next:
            self.view.lost()
            self._next = number
        self._apply(number, payload)

    def ended(self) -> bool:
        """The replay is over, or there is none. False where batches stay lost: the view begins anew, with a gap."""
        self._replaying = False
        complete = True
        while self._held:
            number, payload = self._held.popleft()
            if number > self._next:
                complete = False
                self.view.lost()
                self._next = number
            self._apply(number, payload)
        return complete

    def _apply(self, number: int, payload: bytes) -> None:
        if number != self._next:
            return  # told before
        self._next += 1
        if number == 0 and not self.view.whole:
            self.view.emptied()  # a publisher begins with its engine
        try:
            for event in decode(payload):
                self.view.apply(event)
        except ValueError:
            self.view.lost()
