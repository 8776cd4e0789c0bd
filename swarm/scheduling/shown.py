"""The queue, its breakers and its schedules as a person is shown them, and what a person says of a schedule. Data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swarm.scheduling.cron import Missed
from swarm.types import Eta, Failure, Frozen, TaskId, TaskRequest

LATEST = 253_402_300_799.0  # the last second of the year 9999, beyond which no time can be told
SAME_RIGHT = "the one that it has"  # stands for the capability of a schedule that is there already
Until = Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]
Uses = Annotated[int, Field(ge=1, le=1_000_000_000)]
ScheduleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,24}$")]


class QueuedView(Frozen):
    """A task in the queue. ``eta`` is None where too little is known."""

    task: TaskId
    place: int
    repository: str
    user: str
    priority: int
    title: str
    queued: float
    eta: Eta | None = None
    waits_for: str = ""


class BreakerView(Frozen):
    """A repository or an image on which the machinery failed; it is open while ``reason`` is not empty."""

    name: str
    failures: int
    until: float | None = None
    last: str = Field(default="", description="the last failure")
    reason: str = Field(default="", description="why nothing of it starts now")


class QueueView(Frozen):
    """The head of the queue, and what holds it back."""

    queued: int
    running: int
    slots: int = Field(description="of all hosts that take tasks")
    entries: tuple[QueuedView, ...] = ()
    breakers: tuple[BreakerView, ...] = ()
    holds: tuple[str, ...] = Field(default=(), description="what keeps this daemon from starting anything")


class ScheduleRequest(Frozen):
    """What a person has done again and again. The request's capability is good for tasks ``sNAME-…`` alone."""

    name: ScheduleName
    cron: str = Field(min_length=9, max_length=200, description="minute, hour, day of month, month, day of week")
    timezone: str = Field(default="UTC", max_length=100)
    request: TaskRequest
    overlap: Literal["skip", "allow"] = Field(default="skip", description="a run while the last one still goes on")
    missed: Missed = Field(default="once", description="runs whose time passed while no daemon was there")
    until: Until | None = Field(default=None, description="when the capability ends, in seconds since 1970")
    uses: Uses | None = Field(default=None, description="tasks that the capability allows")


class ScheduleRight(Frozen):
    """A new capability for a schedule: until when it is good, and for how many tasks."""

    capability: str = Field(min_length=1, max_length=10_000)
    until: Until
    uses: Uses


class ScheduleView(Frozen):
    """A schedule as it stands; its request without the capability."""

    name: ScheduleName
    cron: str
    timezone: str
    request: TaskRequest
    user: str
    enabled: bool
    overlap: Literal["skip", "allow"]
    missed: Missed
    created: float
    next: float | None = None
    last: float | None = None
    last_task: str | None = None
    fired: int = Field(default=0, description="tasks that it made")
    until: float | None = Field(default=None, description="when the right that was given for it ends")
    uses: int | None = Field(default=None, description="how many tasks that right allows")
    reason: str = Field(default="", description="what became of the last run, or why it stopped")


class BatchRequest(Frozen):
    """Tasks that are to be handed in together, still without the right to."""

    tasks: tuple[TaskRequest, ...] = Field(max_length=100)


class BatchFault(Frozen):
    """Why one of them would not be accepted; ``index`` counts from 0."""

    index: int
    failure: Failure
