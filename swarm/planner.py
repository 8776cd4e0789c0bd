"""Makes the runs of schedules once their time has come: every host looks, and the database lets one make each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from swarm.apart import apart
from swarm.errors import StoreError, SwarmError, TaskError
from swarm.store.rows import Plan
from swarm.store.schedules import RENEW, Due, Schedules
from swarm.types import TaskRequest, TaskView

LOOK = 15.0  # seconds between two looks at most: another host may have been given a schedule
LEAST = 0.2

log = logging.getLogger(__name__)


class Planner:
    """Looks for runs that are due. ``plan`` tells how a request would be worked on, ``woken`` that a task is new."""

    def __init__(
        self,
        schedules: Schedules,
        plan: Callable[[TaskRequest], Awaitable[Plan]],
        woken: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._schedules = schedules
        self._plan = plan
        self._woken = woken
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled. A database that fails is tried again."""
        while True:
            pause = LOOK
            try:
                pause = await self.once()
            except StoreError as error:
                log.warning("schedules wait: %s", error)
            await asyncio.sleep(pause)

    async def once(self) -> float:
        """Make what is due; seconds until the next look. Raises StoreError.

        Whatever is wrong with one schedule holds none of the others.
        """
        runs, following = await self._schedules.due()
        for run in runs:
            with apart(f"schedule {run.name}"):
                await self._made(run)
        return LOOK if following is None else min(LOOK, max(LEAST, following - self._clock()))

    async def run_now(self, name: str) -> TaskView:
        """A run in between, as a person asks for it. Raises TaskError where it is left out, with the reason."""
        run = await self._schedules.now(name)
        made = await self._schedules.fire(run, await self._plan(run.request), asked=True)
        if made is None:
            stands = await self._schedules.show(name)
            why, renew, _ = stands.reason.partition(RENEW)
            mend = f"wait for the end of that task, or cancel it: swarm show {stands.last_task}"
            mend = f"give it another: swarm schedule resume {name}" if renew else mend
            raise TaskError(f'schedule "{name}" made no task: {why}', mend)
        self._woken()
        return made

    async def _made(self, run: Due) -> None:
        try:
            made = await self._schedules.fire(run, await self._plan(run.request))
        except StoreError:
            raise  # it is made once the database takes it
        except SwarmError as error:
            log.warning("schedule %s: %s", run.name, error)
            await self._schedules.pass_over(run, f"its task could not be accepted: {error}")
            return
        except Exception as error:
            await self._schedules.pass_over(run, f"its task could not be made ({type(error).__name__})")
            raise
        if made is not None:
            log.info("schedule %s made task %s", run.name, made.task.id)
            self._woken()
