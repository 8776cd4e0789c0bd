"""What the broker still holds after a task ended: looked at now and then, until the broker's word is the task's too."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from swarm.apart import apart
from swarm.delivery import BrokerClient
from swarm.errors import BrokerUnreachableError, StoreError
from swarm.store.rows import Held
from swarm.store.store import Store
from swarm.types import TaskView

LOOK = 2.0  # seconds between two rounds
LONGEST = 300.0  # seconds between two looks at the same proposal
OLDEST = 30 * 86400.0  # seconds after its end that a task is still looked at
MOST = 500  # of the newest that are known about at a time
A_ROUND = 20  # questions to the broker

log = logging.getLogger(__name__)


class Redeems(Protocol):
    """Moves a task by a later word of the broker's, as `coordinator.Coordinator` does."""

    async def redeem(self, held: Held, verdict: dict[str, Any]) -> TaskView | None:
        """Moves it; None where it has moved on by itself."""


class Awaiting:
    """Asks the broker about what it holds: stopped, out of hours, or refused and perhaps approved later.

    Nothing is remembered but when to look next, so a restart only looks a little sooner. ``moved`` is told of each
    task that moved. `run` until it is cancelled.
    """

    def __init__(
        self,
        store: Store,
        broker: BrokerClient,
        coordinator: Redeems,
        moved: Callable[[TaskView], None] = lambda _view: None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._broker = broker
        self._coordinator = coordinator
        self._moved = moved
        self._clock = clock
        self._next: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled. A broker or a database that fails is tried again."""
        while True:
            try:
                await self.once()
            except (BrokerUnreachableError, StoreError) as error:
                log.info("what the broker holds cannot be asked about: %s", error)
                await asyncio.sleep(LOOK * 5)
            await asyncio.sleep(LOOK)

    async def once(self) -> None:
        """Looks at those that are due, the longest due first. Raises BrokerUnreachableError and StoreError."""
        now = self._clock()
        held = {one.attempt: one for one in await self._store.held(now - OLDEST, MOST)}
        self._next = {attempt: when for attempt, when in self._next.items() if attempt in held}
        due = sorted((when, attempt) for attempt in held if (when := self._next.get(attempt, 0.0)) <= now)
        for _when, attempt in due[:A_ROUND]:
            with apart(f"proposal {held[attempt].proposal}"):
                await self._look(held[attempt])
            self._next[attempt] = now + pause(now - held[attempt].since)

    async def _look(self, held: Held) -> None:
        word = await self._broker.proposal(held.proposal)
        if word is None or word.kind == held.kind:
            return
        view = await self._coordinator.redeem(held, word.model_dump(mode="json"))
        if view is not None:
            log.info("task %s: %s", held.task, view.reason)
            self._moved(view)


def pause(age: float) -> float:
    """Seconds until the next look at what has been held for ``age`` seconds: a tenth of that, within bounds."""
    return min(LONGEST, max(LOOK, age / 10))
