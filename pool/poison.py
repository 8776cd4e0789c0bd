"""Tells a request that breaks servers from a server that is broken, and remembers it for a while; pure.

A request that fails on one server after the other would be carried through the whole fleet by failover, and would open
every breaker on its way. It is to blame where the servers that it failed on served others at that time; it is sent to
no further one then, and its failures are taken off them. Without such a witness the servers are to blame.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

NEAR = 1.0  # seconds before a failure within which a server's success with another request bears witness
HOLD, LONGEST = 10.0, 120.0  # seconds for which a poisoned request is refused: at first, doubled up to the most
FORGET = 300.0  # seconds after its last failure at which one is forgotten
MOST = 1024  # requests remembered; the one that failed longest ago is forgotten first
ENOUGH = 2  # failures before anything is said of a request
PERSONAL = frozenset(("session_id", "user", "request_id", "prompt_cache_key", "safety_identifier", "priority",
                      "metadata", "stream", "stream_options"))  # fmt: skip
"""Fields that tell who asks or how it is answered, not what a model has to do."""


Mark = tuple[int, str]
"""What stands for a request: roughly, which costs nothing to know, and exactly, which reads all of it."""


def mark_of(body: Mapping[str, Any]) -> str:
    """What stands exactly for a request, whoever sends it."""
    kept = {name: value for name, value in body.items() if name not in PERSONAL}
    return xxhash.xxh3_128_hexdigest(json.dumps(kept, sort_keys=True, default=str).encode())


@dataclass(slots=True)
class _Suspect:
    """``failures`` are by endpoint: the first and the last time, and how often. Seconds of the pool's clock."""

    failures: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    last: float = 0.0
    until: float = 0.0
    hold: float = HOLD


class Suspects:
    """The requests that failed lately. ``succeeded`` tells when a server last did well by any request, if ever."""

    def __init__(self, succeeded: Callable[[str], float | None]) -> None:
        self._succeeded = succeeded
        self._known: OrderedDict[Mark, _Suspect] = OrderedDict()
        self._rough: Counter[int] = Counter()

    def __contains__(self, rough: int) -> bool:
        """Whether something like it failed: only then is it worth while to look exactly."""
        return rough in self._rough

    def failed(self, mark: Mark, endpoint: str, now: float) -> bool:
        """A request failed at a server; whether it is the request that is to blame. Then it is refused for a while."""
        suspect = self._drop(mark)
        if suspect is None or now - suspect.last > FORGET:
            suspect = _Suspect()
        self._known[mark] = suspect
        self._rough[mark[0]] += 1
        if len(self._known) > MOST:
            self._drop(next(iter(self._known)))
        first, _, count = suspect.failures.get(endpoint, (now, now, 0))
        suspect.failures[endpoint] = (first, now, count + 1)
        suspect.last = now
        if not self._guilty(suspect):
            return False
        suspect.until, suspect.hold = now + suspect.hold, min(LONGEST, 2 * suspect.hold)
        return True

    def refused(self, mark: Mark, now: float) -> float:
        """Seconds for which a request is not to be sent; 0 where it may. After that it is tried anew."""
        suspect = self._known.get(mark)
        if suspect is None:
            return 0.0
        if now - suspect.last > max(FORGET, suspect.hold):
            self._drop(mark)
            return 0.0
        return max(0.0, suspect.until - now)

    def cleared(self, mark: Mark) -> None:
        """A server answered it."""
        self._drop(mark)

    def _drop(self, mark: Mark) -> _Suspect | None:
        suspect = self._known.pop(mark, None)
        if suspect is not None:
            self._rough[mark[0]] -= 1
            if not self._rough[mark[0]]:
                del self._rough[mark[0]]
        return suspect

    def _guilty(self, suspect: _Suspect) -> bool:
        """It failed often enough, and each server that it failed on served others meanwhile."""
        if sum(count for _, _, count in suspect.failures.values()) < ENOUGH:
            return False
        alone = len(suspect.failures) < ENOUGH  # one server: only a success between two failures bears witness
        return all(
            (well := self._succeeded(name)) is not None and (well > first if alone else well >= last - NEAR)
            for name, (first, last, _) in suspect.failures.items()
        )
