"""The page that Prometheus scrapes: the counters, and the fleet looked up at that moment."""

from __future__ import annotations

import importlib.metadata
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from swarm.shown import BrokerView, EndpointView, HostView
from swarm.store.store import Store
from swarm.telemetry.metrics import Fleet, Metrics


@dataclass(frozen=True)
class Measuring:
    """Where the facts come from. ``running`` tells the tasks that this host works on."""

    store: Store
    metrics: Metrics
    state: Path
    running: Callable[[], tuple[str, ...]]
    draining: Callable[[], bool]
    endpoints: Callable[[], tuple[EndpointView, ...]]
    broker: Callable[[], Awaitable[BrokerView]]

    async def page(self) -> bytes:
        """All of it in Prometheus's text format. Raises StoreError."""
        hosts = await self.store.hosts.all()
        oldest = await self.store.queue.oldest()
        return self.metrics.page(
            Fleet(
                version=importlib.metadata.version("agent-swarm"),
                tasks=await self.store.counts(),
                oldest_queued=None if oldest is None else max(0.0, time.time() - oldest),
                slots=sum(host.slots for host in hosts if standing(host) == "up"),
                running=len(self.running()),
                hosts={"up": 0, "draining": 0, "gone": 0} | Counter(map(standing, hosts)),
                endpoints=tuple((one.name, one.tier, one.up) for one in self.endpoints()),
                broker_up=(await self.broker()).reachable,
                draining=self.draining(),
                breakers_open=sum(one.until is not None for one in await self.store.breakers.listed()),
                disk_free=_free(self.state),
            )
        )


def standing(host: HostView) -> str:
    """Whether a host is up, on its way out, or gone without a word."""
    if host.gone:
        return "gone"
    return "draining" if host.draining else "up"


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
