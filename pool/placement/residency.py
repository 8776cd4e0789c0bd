"""Which endpoint holds which prefix: a radix tree of block keys with one bounded, least-recently-used view an endpoint.

A key stands for its block and all before it, so one comparison settles a whole run and a match costs a few steps
however long the prompt is. Evictions follow vLLM: the longest unused go first, and of those the tail before the head.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from itertools import count
from math import ceil

Chain = Sequence[int]
_ORDER = count()


class Hold:
    """How many keys of a node an endpoint holds, and when they were last used."""

    __slots__ = ("count", "used")

    def __init__(self, keys: int, used: float) -> None:
        self.count = keys
        self.used = used


class Node:
    """A run of keys that was never seen to part, of ``tokens`` tokens each. ``held`` has who holds how much of it."""

    __slots__ = ("children", "held", "keys", "order", "parent", "start", "tokens")

    def __init__(self, keys: array[int], start: int, parent: Node | None, tokens: float) -> None:
        self.keys = keys
        self.start = start
        self.parent = parent
        self.tokens = tokens
        self.children: dict[int, Node] = {}
        self.held: dict[str, Hold] = {}
        self.order = next(_ORDER)


class Shelf:
    """One endpoint's view: tokens held, how many it can hold, and the order of eviction (soonest first).

    The queue may name nodes that were used again or left since; those are told apart when their turn comes.
    """

    __slots__ = ("cap", "holds", "queue", "tokens")

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.holds = 0
        self.tokens = 0.0
        self.queue: list[tuple[float, int, int, Node]] = []


class Residency:
    """The tree and the views. Times are seconds of the pool's clock; ``cap`` is in tokens, for who tells no size."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._top: dict[int, Node] = {}
        self._shelves: dict[str, Shelf] = {}

    def depths(self, chain: Chain) -> dict[str, int]:
        """How many of the chain's first keys each endpoint holds; who holds none is not named."""
        found: dict[str, int] = {}
        for node, matched in self._walk(chain)[0]:
            start = node.start
            for name, hold in node.held.items():
                found[name] = start + min(hold.count, matched)
        return found

    def insert(self, name: str, chain: Chain, block_tokens: float, now: float) -> tuple[int, float | None]:
        """The endpoint holds the whole chain, used just now.

        Returns how many of its keys it held before, and when it had used the last of them.
        """
        if not chain:
            return 0, None
        shelf = self._shelf(name)
        depth, used = 0, None
        for node, matched in self._grow(chain, block_tokens):
            hold = node.held.get(name)
            if hold is None:
                node.held[name] = hold = Hold(0, now)
                shelf.holds += 1
                heapq.heappush(shelf.queue, (now, -node.start, node.order, node))
            elif hold.count:
                depth, used = node.start + min(hold.count, matched), hold.used
            hold.used = now
            if matched > hold.count:
                shelf.tokens += (matched - hold.count) * node.tokens
                hold.count = matched
        if shelf.tokens > shelf.cap:
            self._evict(name, shelf)
        if len(shelf.queue) > 4 * shelf.holds + 64:
            self._tidy(name, shelf)
        return depth, used

    def cut(self, name: str, chain: Chain, keep: int, *, shared: bool = True) -> None:
        """The endpoint holds no more than the first ``keep`` keys of the chain, and nothing that continues the rest.

        Without ``shared`` only what no other prompt continues is forgotten.
        """
        for node, matched in self._walk(chain)[0]:
            if node.start + matched <= keep or name not in node.held:
                continue
            if node.children and not shared:
                continue
            for child in tuple(node.children.values()):
                self._drop_below(name, child)
            self._shrink(name, node, max(0, keep - node.start))

    def drop_older(self, name: str, than: float) -> None:
        """Forget all that the endpoint last used at that time or before."""
        shelf = self._shelf(name)
        while shelf.queue and shelf.queue[0][0] <= than:
            node = heapq.heappop(shelf.queue)[3]
            if (hold := node.held.get(name)) is None:
                continue
            if hold.used <= than:
                self._shrink(name, node, 0)
            else:
                heapq.heappush(shelf.queue, (hold.used, -node.start, node.order, node))

    def clear(self, name: str) -> None:
        """Forget all that the endpoint holds: it was started anew, or its cache was reset."""
        shelf = self._shelves.pop(name, None)
        if shelf is None:
            return
        for _, _, _, node in shelf.queue:
            if node.held.pop(name, None) is not None:
                self._prune(node)
        self._shelves[name] = Shelf(shelf.cap)

    def remove(self, name: str) -> None:
        """Forget the endpoint itself."""
        self.clear(name)
        self._shelves.pop(name, None)

    def resize(self, name: str, cap: int) -> None:
        """The endpoint's cache holds so many tokens."""
        shelf = self._shelf(name)
        if cap != shelf.cap:
            shelf.cap = cap
            self._evict(name, shelf)

    def tokens(self, name: str) -> int:
        """Tokens that the endpoint is believed to hold."""
        shelf = self._shelves.get(name)
        return round(shelf.tokens) if shelf else 0

    def room(self, name: str) -> tuple[float, float]:
        """Tokens that still fit without an eviction, and when that was used last which would be evicted first."""
        shelf = self._shelf(name)
        queue = shelf.queue
        while queue:
            used, _, _, node = queue[0]
            hold = node.held.get(name)
            if hold is not None and hold.used == used:
                return shelf.cap - shelf.tokens, used
            heapq.heappop(queue)
            if hold is not None:
                heapq.heappush(queue, (hold.used, -node.start, node.order, node))
        return shelf.cap - shelf.tokens, 0.0

    def nodes(self) -> int:
        """How many runs the tree has, for those who watch its size."""
        return sum(1 for _ in self._all())

    def _shelf(self, name: str) -> Shelf:
        shelf = self._shelves.get(name)
        if shelf is None:
            shelf = self._shelves[name] = Shelf(self._cap)
        return shelf

    def _walk(self, chain: Chain) -> tuple[list[tuple[Node, int]], int]:
        """The nodes that the chain runs through with the keys matched in each, and the keys matched in all."""
        path: list[tuple[Node, int]] = []
        at, size, children = 0, len(chain), self._top
        while at < size:
            node = children.get(chain[at])
            if node is None:
                break
            keys = node.keys
            end = at + len(keys)
            if end <= size and chain[end - 1] == keys[-1]:
                path.append((node, len(keys)))
                at, children = end, node.children
                continue
            matched = _common(keys, chain, at)
            path.append((node, matched))
            at += matched
            break
        return path, at

    def _grow(self, chain: Chain, block_tokens: float) -> list[tuple[Node, int]]:
        """The path of the chain, whose last part is added where nobody held it before."""
        path, at = self._walk(chain)
        if at == len(chain):
            return path
        last = None
        if path:
            last, matched = path[-1]
            if matched < len(last.keys):
                self._split(last, matched)
            if not last.children:
                last.keys.extend(chain[at:])
                path[-1] = (last, len(last.keys))
                return path
        node = Node(array("Q", chain[at:]), at, last, block_tokens)
        (last.children if last else self._top)[chain[at]] = node
        path.append((node, len(node.keys)))
        return path

    def _split(self, node: Node, at: int) -> None:
        """Part a run in two; the lower part keeps the time of use and goes first, being deeper."""
        lower = Node(node.keys[at:], node.start + at, node, node.tokens)
        del node.keys[at:]
        lower.children, node.children = node.children, {lower.keys[0]: lower}
        for child in lower.children.values():
            child.parent = lower
        for name, hold in node.held.items():
            if hold.count > at:
                lower.held[name] = Hold(hold.count - at, hold.used)
                hold.count = at
                shelf = self._shelves[name]
                shelf.holds += 1
                heapq.heappush(shelf.queue, (hold.used, -lower.start, lower.order, lower))
        if not lower.held:
            node.children = {}

    def _evict(self, name: str, shelf: Shelf) -> None:
        """Let go of the longest unused until the rest fits. Ancestors are never used before what continues them."""
        while shelf.tokens > shelf.cap and shelf.queue:
            used, _, _, node = heapq.heappop(shelf.queue)
            hold = node.held.get(name)
            if hold is None:
                continue
            if hold.used != used:
                heapq.heappush(shelf.queue, (hold.used, -node.start, node.order, node))
                continue
            over = max(1, ceil((shelf.tokens - shelf.cap) / node.tokens - 1e-9))
            if over < hold.count:
                heapq.heappush(shelf.queue, (used, -node.start, node.order, node))
            self._shrink(name, node, max(0, hold.count - over))

    def _tidy(self, name: str, shelf: Shelf) -> None:
        """Rid the queue of nodes that were left."""
        nodes = {node.order: node for _, _, _, node in shelf.queue if name in node.held}
        shelf.queue = [(n.held[name].used, -n.start, n.order, n) for n in nodes.values()]
        heapq.heapify(shelf.queue)

    def _shrink(self, name: str, node: Node, keep: int) -> None:
        hold = node.held.get(name)
        if hold is None or keep >= hold.count:
            return
        shelf = self._shelves[name]
        shelf.tokens -= (hold.count - keep) * node.tokens
        hold.count = keep
        if keep == 0:
            del node.held[name]
            shelf.holds -= 1
            if not shelf.holds:
                shelf.tokens = 0.0  # rounding must not add up
        self._prune(node)

    def _drop_below(self, name: str, node: Node) -> None:
        below = [node]
        while below:
            node = below.pop()
            if name in node.held:  # nobody holds a run without what comes before it
                below.extend(node.children.values())
                self._shrink(name, node, 0)

    def _prune(self, node: Node) -> None:
        """Let go of keys that nobody holds, and of runs without any."""
        if not node.children and node.held:
            longest = max(hold.count for hold in node.held.values())
            del node.keys[longest:]
        while not node.held and not node.children:
            parent = node.parent
            siblings = parent.children if parent else self._top
            if siblings.get(node.keys[0]) is node:
                del siblings[node.keys[0]]
            if parent is None:
                return
            node = parent
            if node.held:
                self._prune(node)
                return

    def _all(self) -> Iterator[Node]:
        below = list(self._top.values())
        while below:
            node = below.pop()
            below.extend(node.children.values())
            yield node


def _common(keys: Chain, chain: Chain, at: int) -> int:
    """How many keys of a run the chain shares from ``at`` on; one agreeing means that all before agree."""
    low, high = 1, min(len(keys), len(chain) - at)  # the first was found by its key
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle - 1] == chain[at + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
