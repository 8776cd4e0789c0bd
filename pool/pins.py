"""Remembers where each session's KV cache is. Bounded: the longest unused session is forgotten first."""

from __future__ import annotations

from collections import Counter, OrderedDict

MOST = 10_000


class Pins:
    """The endpoint of each session, by tier. ``sessions`` counts them by endpoint."""

    def __init__(self, most: int = MOST) -> None:
        self.sessions: Counter[str] = Counter()
        self._most = most
        self._places: OrderedDict[tuple[str, str], str] = OrderedDict()

    def get(self, tier: str, session: str) -> str | None:
        """The session's endpoint in this tier."""
        return self._places.get((tier, session))

    def put(self, tier: str, session: str, name: str) -> None:
        """Remember a session's place, as the one used last."""
        before = self._places.pop((tier, session), None)
        if before is not None:
            self.sessions[before] -= 1
        self._places[tier, session] = name
        self.sessions[name] += 1
        if len(self._places) > self._most:
            _, forgotten = self._places.popitem(last=False)
            self.sessions[forgotten] -= 1
