"""The queue over HTTP: what waits and why, breakers, schedules, and whether a batch would be accepted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from swarm.api.desk import CallerOf, Desk
from swarm.errors import TaskError, TaskNotFoundError
from swarm.planner import Planner
from swarm.scheduling.shown import (
    BatchFault,
    BatchRequest,
    BreakerView,
    QueueView,
    ScheduleRequest,
    ScheduleRight,
    ScheduleView,
)
from swarm.types import Failure, TaskView

Limit = Annotated[int, Query(ge=1, le=500, description="tasks at the head of the queue")]
Name = Annotated[str, Path(max_length=400, description="repository:NAME or image:NAME")]
Schedule = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,24}$", description="a schedule's name")]


def routes(desk: Desk) -> APIRouter:
    """The routes over the queue and what fills it."""
    door = QueueDoor(desk)
    router = APIRouter(tags=["queue"])
    add = router.add_api_route
    add("/v1/queue", door.show_queue, methods=["GET"])
    add("/v1/breakers", door.list_breakers, methods=["GET"])
    add("/v1/breakers/{name:path}/reset", door.reset_breaker, methods=["POST"], status_code=204)
    add("/v1/batches", door.check_batch, methods=["POST"])
    add("/v1/schedules", door.list_schedules, methods=["GET"])
    add("/v1/schedules", door.add_schedule, methods=["POST"], status_code=201)
    add("/v1/schedules/{name}", door.show_schedule, methods=["GET"])
    add("/v1/schedules/{name}", door.remove_schedule, methods=["DELETE"], status_code=204)
    add("/v1/schedules/{name}/pause", door.pause_schedule, methods=["POST"])
    add("/v1/schedules/{name}/resume", door.resume_schedule, methods=["POST"])
    add("/v1/schedules/{name}/run", door.run_schedule, methods=["POST"], status_code=201)
    return router


class QueueDoor:
    """One method a route; its docstring is what the description of the api says."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store
        self._planner = Planner(desk.store.schedules, desk.plan, desk.coordinator.wake)

    async def show_queue(self, limit: Limit = 50) -> QueueView:
        """The head of the queue by age and priority: each task's place, when it is done, and why it waits."""
        return await self._store.line.shown(limit)

    async def list_breakers(self) -> tuple[BreakerView, ...]:
        """Repositories and images on which the machinery failed, and whether they are left alone for it."""
        return await self._store.line.breakers()

    async def reset_breaker(self, name: Name) -> None:
        """Forget the failures of a repository or an image, so that its tasks start again at once."""
        if not await self._store.breakers.reset(name):
            raise TaskNotFoundError(f'no failure is counted for "{name}"', "see which: swarm breaker list")
        self._desk.coordinator.wake()

    async def check_batch(self, wanted: BatchRequest) -> tuple[BatchFault, ...]:
        """Why some of these tasks would not be accepted; nothing is stored, and no capability is needed yet."""
        faults = []
        for index, request in enumerate(wanted.tasks):
            try:
                await self._desk.plan(request.model_copy(update={"capability": "to be granted"}))
            except TaskError as error:
                failure = Failure(what="the task is not accepted", why=str(error), mend=error.mend)
                faults.append(BatchFault(index=index, failure=failure))
        return tuple(faults)

    async def list_schedules(self) -> tuple[ScheduleView, ...]:
        """All schedules, by name."""
        return await self._store.schedules.listed()

    async def add_schedule(self, wanted: ScheduleRequest, caller: CallerOf) -> ScheduleView:
        """Have a task made again and again. The same once more changes nothing."""
        await self._desk.plan(wanted.request)
        return await self._store.schedules.add(wanted, caller.name)

    async def show_schedule(self, name: Schedule) -> ScheduleView:
        """One schedule."""
        return await self._store.schedules.show(name)

    async def remove_schedule(self, name: Schedule) -> None:
        """Forget a schedule; the tasks that it made stay."""
        await self._store.schedules.remove(name)

    async def pause_schedule(self, name: Schedule) -> ScheduleView:
        """Make no further runs until it is resumed."""
        return await self._store.schedules.pause(name)

    async def resume_schedule(self, name: Schedule, right: ScheduleRight | None = None) -> ScheduleView:
        """Go on from now, under a new right where one is given."""
        return await self._store.schedules.resume(name, right)

    async def run_schedule(self, name: Schedule) -> TaskView:
        """Make a run now, in between."""
        return await self._planner.run_now(name)
