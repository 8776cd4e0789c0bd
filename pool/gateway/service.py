"""What the routes of one gateway share: pool, tiers, callers, counts, and whether it still takes work."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from pool.config import GatewayConfig
from pool.gateway.catalogue import Target, alive, no_such_model, target
from pool.gateway.held import Held
from pool.gateway.identity import Trees
from pool.gateway.keys import Caller, Callers, Keys, OneCaller
from pool.gateway.metrics import Metrics
from pool.router import Pool
from pool.tiers.front import Tiers

Clock = Callable[[], float]
FRESH = 1.0  # seconds for which it is believed who serves a name
MOST_NAMES = 10_000
REMEMBERED = 1_000  # requests of which it is known how they ended, where the pool's decision does not tell
WORDS = 500  # characters of such an end


@dataclass
class Service:
    """One gateway in front of one pool. ``draining`` is set first of all when it stops (sgl-project/sglang#39016).

    ``only`` is the one name that may be asked for, where there is but one.
    """

    pool: Pool
    tiers: Tiers
    config: GatewayConfig
    keys: Callers
    metrics: Metrics
    clock: Clock = time.monotonic
    draining: bool = False
    trees: Trees = field(default_factory=Trees)
    only: str | None = None

    def __post_init__(self) -> None:
        most, several = self.config.max_bodies, len(self.config.keys) > 1
        self.held = Held(most, most // 2 if several else most)
        self._plain = frozenset(self.pool.config.tiers)
        self._known: dict[str, Target] = {}
        self._known_until = 0.0
        self._ended: dict[str, str] = {}

    @classmethod
    def of(cls, pool: Pool, environ: Mapping[str, str], clock: Clock = time.monotonic) -> Service:
        """The gateway that the pool's settings ask for. Raises PoolConfigError."""
        config = pool.config.gateway
        return cls(
            pool=pool,
            tiers=Tiers(pool, pool.config),
            config=config,
            keys=Keys(config.keys, environ, clock),
            metrics=Metrics(pool.status),
            clock=clock,
        )

    def for_one(self, caller: Caller, tier: str, bodies: int) -> Self:
        """The same gateway for one caller that may ask for one tier: nothing of others is told. Room for ``bodies``
        (bytes) is its own, counts are shared."""
        own = copy.copy(self)
        own.keys, own.only, own.held = OneCaller(caller), tier, Held(bodies, bodies)
        return own

    @property
    def ready(self) -> bool:
        """Whether requests are wanted: it does not drain, and somebody alive could answer."""
        return not self.draining and bool(alive(self.pool.status()))

    @property
    def virtual(self) -> tuple[str, ...]:
        """Names that are answered by the pool itself: virtual models and `auto`, where it is on."""
        config = self.pool.config
        return tuple(name for name in config.askable if name not in config.tiers)

    def ended(self, number: str) -> str:
        """How a request ended that failed or that the gateway answered itself; empty where that is not remembered."""
        return self._ended.get(number, "")

    def remember(self, number: str, how: str) -> None:
        """Keep how a request ended, for whoever asks why; the oldest is forgotten."""
        self._ended[number] = how[:WORDS]
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def target(self, name: str) -> Target:
        """What a request's ``model`` means."""
        if self.only is not None and name != self.only:
            raise no_such_model(name, (self.only,))
        if name in self._plain:
            return Target("tier", tier=name)
        if self.clock() >= self._known_until:  # a look at every endpoint costs more than the rest of a request
            self._known = {}
            self._known_until = self.clock() + FRESH
        found = self._known.get(name)
        if found is None:
            endpoints = self.pool.status()
            tiers = dict.fromkeys((*self._plain, *(one.tier for one in endpoints)))
            found = target(name, tiers, self.virtual, endpoints)
            if len(self._known) < MOST_NAMES:
                self._known[name] = found
        return found
