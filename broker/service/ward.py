"""A repository in the broker's care, and what every verb works with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker.audit import Audit
from broker.capability import Mint
from broker.config.repository import Repository
from broker.config.settings import BrokerConfig
from broker.errors import AbsentError, BusyError
from broker.forge.base import Forge, Tracker
from broker.judge.inspection import never
from broker.judge.quarantine import Quarantine
from broker.judge.scan.scanner import Scanner
from broker.mirror import Mirror
from broker.outbox.store import OutboxStore
from broker.provenance.store import Provenance
from broker.rationing import Rationing

PERSONS_PATIENCE = 5.0  # seconds that a person's call waits for its turn; a coordinator's asks again by itself
Current = Callable[[], BrokerConfig]
"""The settings as they are now. A call asks once at its start and keeps to that answer."""


@dataclass(frozen=True)
class Ward:
    """A repository: its forge, its conversations, its mirror, and whose turn it is with its proposals."""

    name: str
    forge: Forge
    tracker: Tracker
    mirror: Mirror
    current: Current
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def turn(self, patience: float) -> Iterator[None]:
        """Lets proposals in one by one. Raises BusyError where another has its turn for ``patience`` seconds more.

        Whoever has it may wait for a forge that is silent; whoever waits for it holds one of few threads.
        """
        if not self._lock.acquire(timeout=patience):
            mend = f"ask again in a while; `swarm-broker stop {self.name}` ends what is under way at its next step"
            raise BusyError(f"a proposal for {self.name} is being delivered just now", mend)
        try:
            yield
        finally:
            self._lock.release()

    def settings(self) -> Repository:
        """Its settings now. Raises AbsentError once they name it no more."""
        found = self.current().repositories.get(self.name)
        if found is None:
            raise AbsentError(f"{self.name} is no longer among the broker's repositories", "the operator names it")
        return found

    def object_format(self) -> str:
        """Of its objects, as the mirror was made; the forge is asked only where there is none (any more)."""
        try:
            return "sha256" if self.mirror.git.hash_bytes == 32 else "sha1"
        except FileNotFoundError:
            return self.forge.object_format()


class Wards:
    """All of them by name; which there are is settled at start."""

    def __init__(
        self, current: Current, forges: Mapping[str, Forge], trackers: Mapping[str, Tracker], mirrors: Path
    ) -> None:
        self._wards = {
            name: Ward(name, forge, trackers[name], Mirror(mirrors / f"{name}.git", forge), current)
            for name, forge in forges.items()
        }

    def get(self, name: str) -> Ward:
        """One of them. Raises AbsentError."""
        ward = self._wards.get(name)
        if ward is None:
            raise AbsentError(f"there is no repository {name!r}", f"the broker knows: {', '.join(sorted(self._wards))}")
        return ward

    def all(self) -> tuple[Ward, ...]:
        """All, in the order of the settings."""
        return tuple(self._wards.values())


@dataclass(frozen=True)
class Desk:
    """What every verb works with."""

    current: Current
    wards: Wards
    outbox: OutboxStore
    audit: Audit
    mint: Mint
    quarantine: Quarantine
    scanner: Scanner
    clock: Callable[[], float]
    provenance: Provenance
    rationing: Rationing
    watch: Callable[[str, bytes], bool] = never
