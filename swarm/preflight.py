"""Looks whether what every task stands on is there, before anything is spent: disk, model servers, images, the broker.

What is missing holds tasks back in the queue, with the reason; it fails none. What is the request's own fault is found
when it is handed in (`acceptance`) or in the prepare phase, before a sandbox or a model is used.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pool.types import EndpointStatus
from swarm.scheduling import preflight
from swarm.scheduling.facts import Hold
from swarm.scheduling.preflight import Disk, Server
from swarm.store.queue import Queue

LOOK = 15.0  # seconds between two looks while all is well
AGAIN = 2.0  # and while something is missing

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ground:
    """What is looked at. ``floor`` in bytes; ``images`` are the paths of repositories' images, by repository.

    ``broker`` gives why the broker does not answer, empty when it does. ``window`` are the tokens that a model has to
    take at least.
    """

    folders: tuple[Path, ...]
    floor: int
    tiers: tuple[str, ...]
    window: int
    servers: Callable[[], Sequence[EndpointStatus]]
    broker: Callable[[], Awaitable[str]]
    images: Mapping[str, Path]


class Preflight:
    """Keeps a queue's holds true. ``freed`` is called when something is there again."""

    def __init__(self, ground: Ground, queue: Queue, freed: Callable[[], None]) -> None:
        self._ground = ground
        self._queue = queue
        self._freed = freed

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            pause = AGAIN if await self.once() else LOOK

    async def once(self) -> tuple[Hold, ...]:
        """Look once; what holds tasks back now."""
        ground, before = self._ground, self._queue.holds
        disks = await asyncio.to_thread(_disks, ground.folders)
        missing = await asyncio.to_thread(_missing, ground.images)
        holds = (
            *preflight.disks(disks, ground.floor),
            *preflight.broker(await ground.broker()),
            *preflight.images(missing),
            *preflight.tiers([_server(one) for one in ground.servers()], ground.tiers, ground.window),
        )
        for hold in holds:
            if hold.scope not in {one.scope for one in before}:
                log.warning("%s: %s", hold.scope, hold.reason)
        self._queue.holds = holds
        if {one.scope for one in before} - {one.scope for one in holds}:
            self._freed()
        return holds


def _disks(folders: Sequence[Path]) -> tuple[Disk, ...]:
    return tuple(Disk(str(folder), _free(folder)) for folder in folders)


def _free(folder: Path) -> int | None:
    """Bytes that are free where a folder is, or is to be made."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return None


def _missing(images: Mapping[str, Path]) -> dict[str, str]:
    return {name: f"{path} is not there" for name, path in images.items() if not path.exists()}


def _server(status: EndpointStatus) -> Server:
    up = status.state == "up" and not status.draining
    return Server(status.name, status.tier, up, status.window, status.last_error or status.misfit or status.state)
