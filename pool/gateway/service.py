"""What the routes of one gateway share: pool, tiers, callers, counts, and whether it still takes work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pool.config import GatewayConfig
from pool.gateway.catalogue import Target, alive, target
from pool.gateway.identity import Trees
from pool.gateway.keys import Keys
from pool.gateway.metrics import Metrics
from pool.router import Pool
from pool.tiers.front import Tiers

Clock = Callable[[], float]


@dataclass
class Service:
    """One gateway in front of one pool. ``draining`` is set first of all when it stops (sgl-project/sglang#39016)."""

    pool: Pool
    tiers: Tiers
    config: GatewayConfig
    keys: Keys
    metrics: Metrics
    clock: Clock = time.monotonic
    draining: bool = False
    trees: Trees = field(default_factory=Trees)

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

    @property
    def ready(self) -> bool:
        """Whether requests are wanted: it does not drain, and somebody alive could answer."""
        return not self.draining and bool(alive(self.pool.status()))

    @property
    def virtual(self) -> tuple[str, ...]:
        """Names that are answered by the pool itself: virtual models and `auto`, where it is on."""
        config = self.pool.config
        return tuple(name for name in config.askable if name not in config.tiers)

    def target(self, name: str) -> Target:
        """What a request's ``model`` means."""
        endpoints = self.pool.status()
        tiers = dict.fromkeys((*self.pool.config.tiers, *(one.tier for one in endpoints)))
        return target(name, tiers, self.virtual, endpoints)
