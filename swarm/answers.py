"""What the api takes and gives beyond a task itself: pages, filters, changes, rights, and what a caller may do."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from pydantic import Field

from pool.types import EndpointStatus
from swarm.types import Frozen, TaskId, TaskState

T = TypeVar("T")

Role = Literal["viewer", "submitter", "operator"]
"""What a token is for: looking; handing in tasks and moving one's own; everything."""

PAGE = 50  # items of a page where nothing else is asked for
LARGEST_PAGE = 1000
FURTHEST = 10**15 - 1  # of a journal's lines and of all moves: what a cursor may name


EXPORTED = "swarm-exported"
"""The header that goes with an exported attempt."""


class Exported(Frozen):
    """What is to be known of a file that an attempt was written into. ``struck`` counts what looked like a secret."""

    attempt: str
    bytes: int
    struck: int = 0
    unknown_secrets: tuple[str, ...] = Field(
        default=(), description="secrets of the settings that were not to be had there, and so not looked for"
    )


class Page(Frozen, Generic[T]):
    """Some of many. ``next`` is handed back as ``cursor`` to get those that follow; None where there are none."""

    items: tuple[T, ...]
    next: str | None = None


class TaskFilter(Frozen):
    """Which tasks are meant: all that fit everything that is said."""

    state: tuple[TaskState, ...] = Field(default=(), max_length=20, description="any of these")
    repository: str | None = Field(default=None, max_length=200)
    user: str | None = Field(default=None, max_length=200, description="who handed it in")
    batch: str | None = Field(default=None, max_length=100)
    since: float | None = Field(
        default=None, allow_inf_nan=False, description="made at or after this time, in seconds since 1970"
    )


class PageQuery(TaskFilter):
    """Which page of which tasks."""

    limit: int = Field(default=PAGE, ge=1, le=LARGEST_PAGE, description="items of a page")
    cursor: str | None = Field(default=None, max_length=200, description="`next` of the page before")


class ChangesQuery(TaskFilter):
    """From where on, and of which tasks."""

    after: int | None = Field(
        default=None, ge=0, le=FURTHEST, description="begin after this position; 0 is the beginning; default: now"
    )


class Change(Frozen):
    """A task moved. ``position`` counts all moves of all tasks; ``seq`` is its line in the task's own journal."""

    position: int
    task: TaskId
    seq: int
    at: float
    before: TaskState | None = Field(description="None where the task is new")
    state: TaskState
    reason: str = ""
    repository: str = ""
    user: str = ""
    batch: str | None = None


class RetryRequest(Frozen):
    """What a retry may bring along."""

    capability: str | None = Field(
        default=None, min_length=1, max_length=10_000, description="a new one for the same task, where the old ran out"
    )


class ResumeRequest(Frozen):
    """What a resumption may name."""

    attempt: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="the attempt whose work a task that ended goes on from; default: the last that left any",
    )


class PriorityRequest(Frozen):
    """Which priority a task is to have from now on."""

    priority: int = Field(ge=0, le=100, description="larger is sooner, as in a task's request")


class MessageRequest(Frozen):
    """What a person tells a running agent."""

    text: str = Field(min_length=1, max_length=20_000)


class PoolStatus(Frozen):
    """How each model server stands."""

    endpoints: tuple[EndpointStatus, ...]


class EndpointMoved(Frozen):
    """What became of a model server."""

    endpoint: str
    state: Literal["joining", "draining", "drained", "admitted", "removed"]
