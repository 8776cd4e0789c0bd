"""Where time and money went, over HTTP: of one task, of all of them by day, and the budgets of the day."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from swarm.api.desk import Desk
from swarm.api.tasks import TaskOf
from swarm.shown import BudgetsView, FleetTimes, TaskTimes

Days = Annotated[int, Query(ge=1, le=366, description="days in UTC, today the last of them")]
Repository = Annotated[str | None, Query(max_length=200, description="only this one's tasks")]


def routes(desk: Desk) -> APIRouter:
    """The routes over what was spent."""
    door = SpendingDoor(desk)
    router = APIRouter(tags=["spending"])
    add = router.add_api_route
    add("/v1/tasks/{task}/time", door.show_task_time, methods=["GET"])
    add("/v1/times", door.show_times, methods=["GET"])
    add("/v1/budgets", door.show_budgets, methods=["GET"])
    return router


class SpendingDoor:
    """One method a route."""

    def __init__(self, desk: Desk) -> None:
        self._store = desk.store

    async def show_task_time(self, task: TaskOf) -> TaskTimes:
        """Where the time of a task went: parts that sum up to its wall clock, until now where it has not ended."""
        return await self._store.times.task(task)

    async def show_times(self, days: Days = 7, repository: Repository = None) -> FleetTimes:
        """Where the time of all tasks went, by day; read from sums, so it costs the same after a million steps."""
        return await self._store.times.fleet(days, repository)

    async def show_budgets(self) -> BudgetsView:
        """What was spent today by each repository, each user and all, and what may be."""
        return await self._store.budgets.view()
