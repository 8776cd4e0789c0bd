"""Whether a host that is silent is dead: seen from here alone, so that no two clocks are ever compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from swarm.store.leases import Peer

MOST = 1000  # hosts that are remembered


@dataclass
class Silence:
    """Remembers since when each host has given no sign of life. ``patience`` in seconds is for who tells of none.

    There are two signs, its heartbeat and the journals of its attempts: a host is dead when neither has moved for as
    long as its own patience, while it was looked at. One that is only slow, or whose heartbeat alone broke, is left
    in peace.
    """

    patience: float
    _seen: dict[tuple[str, str | None], tuple[Peer, float]] = field(default_factory=dict)

    def dead(self, peer: Peer, now: float) -> bool:
        """Whether a host is to be given up. ``now`` is of a clock that only grows."""
        if peer.host is None:
            return True
        key = (peer.host, peer.life)
        before, since = self._seen.get(key, (None, now))
        if before != peer:
            self._remember(key, peer, now)
            return False
        return now - since >= (self.patience if peer.patience is None else peer.patience)

    def _remember(self, key: tuple[str, str | None], peer: Peer, now: float) -> None:
        self._seen.pop(key, None)
        while len(self._seen) >= MOST:
            self._seen.pop(next(iter(self._seen)))
        self._seen[key] = (peer, now)
