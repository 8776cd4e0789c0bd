"""Watches both sides while a bench runs: how late our own loop is, our processor, and the servers' gauges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pool.bench.figures import percentile
from pool.bench.target import Gauges, Target
from pool.types import Frozen

TICK = 0.02  # seconds between looks at our own loop
LOOK = 0.5  # seconds between looks at the servers
MOST = 100_000  # looks that are kept


class Strain(Frozen):
    """What was seen meanwhile. ``lag`` is how late our loop was, p99 in seconds; ``processor`` our share of one core.

    ``running`` and ``waiting`` are means over the looks, None where no server tells; ``kv_usage`` is the highest.
    """

    lag: float = 0.0
    processor: float = 0.0
    running: float | None = None
    most_running: int | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    preemptions: int | None = None
    looks: int = 0


@dataclass
class Watch:
    """Fills while its block runs; `strain` reads it."""

    lags: list[float] = field(default_factory=list)
    looks: list[Gauges] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    burnt: float = field(default_factory=time.process_time)

    def strain(self) -> Strain:
        """What was seen so far."""
        running = [look.running for look in self.looks if look.running is not None]
        waiting = [look.waiting for look in self.looks if look.waiting is not None]
        usage = [look.kv_usage for look in self.looks if look.kv_usage is not None]
        preempted = [look.preemptions for look in self.looks if look.preemptions is not None]
        wall = time.perf_counter() - self.began
        return Strain(
            lag=percentile(self.lags, 99) or 0.0,
            processor=(time.process_time() - self.burnt) / wall if wall > 0 else 0.0,
            running=sum(running) / len(running) if running else None,
            most_running=max(running, default=None),
            waiting=sum(waiting) / len(waiting) if waiting else None,
            kv_usage=max(usage, default=None),
            preemptions=preempted[-1] - preempted[0] if preempted else None,
            looks=len(self.looks),
        )


@asynccontextmanager
async def watching(target: Target) -> AsyncIterator[Watch]:
    """Watch for as long as the block runs."""
    watch = Watch()
    tasks = [asyncio.create_task(_loop(watch)), asyncio.create_task(_servers(watch, target))]
    try:
        yield watch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _loop(watch: Watch) -> None:
    while len(watch.lags) < MOST:
        before = time.perf_counter()
        await asyncio.sleep(TICK)
        watch.lags.append(time.perf_counter() - before - TICK)


async def _servers(watch: Watch, target: Target) -> None:
    while len(watch.looks) < MOST:
        watch.looks.append(await target.gauges())
        await asyncio.sleep(LOOK)
