"""What a person is shown of the whole: where time and budgets went, and the daemon with all that it stands on. Data."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from pool.types import EndpointStatus
from swarm.types import Frozen, Spent, TaskId, TaskState


class PartTime(Frozen):
    """One part of where time went. ``count`` are the times that it came up, ``tokens`` those that models read or wrote.

    The parts "told", "cached" and "recomputed" have no time: tokens read where a server told what its cache held, of
    these what it held, and what a conversation had to have computed once more.
    """

    part: str
    seconds: float = 0.0
    count: int = 0
    tokens: int = 0


class Times(Frozen):
    """Where time went: parts whose seconds sum up to ``seconds``, and what the models' caches were good for."""

    seconds: float
    parts: tuple[PartTime, ...] = ()
    cached_share: float | None = Field(default=None, description="of the tokens read, as far as servers told")
    recomputed_tokens: int = Field(default=0, description="tokens computed once more that a cache had lost")

    @classmethod
    def of(cls, parts: Iterable[PartTime]) -> Times:
        """From the parts alone."""
        found = tuple(parts)
        tokens = {each.part: each.tokens for each in found}
        told = tokens.get("told", 0)
        return cls(
            seconds=sum(each.seconds for each in found),
            parts=found,
            cached_share=tokens.get("cached", 0) / told if told else None,
            recomputed_tokens=tokens.get("recomputed", 0),
        )


class TaskTimes(Frozen):
    """Where the time of a task went, from its first line to ``until``; the time between an end and a retry is none."""

    task: TaskId
    state: TaskState
    until: float
    times: Times


class DayTimes(Frozen):
    """One day, in UTC, as 2026-11-30."""

    day: str
    times: Times


class FleetTimes(Frozen):
    """Where the time of all tasks went, or of one repository's, by day."""

    days: int
    repository: str | None = None
    total: Times
    by_day: tuple[DayTimes, ...] = ()


class Scope(Frozen):
    """What was spent in a scope today, and what may be; ``scope`` is fleet, repository:NAME or user:NAME."""

    scope: str
    spent: Spent
    limits: dict[str, float] = Field(default_factory=dict, description="by the names of what was spent")
    shut: str = Field(default="", description="why nothing more of it begins today")


class BudgetsView(Frozen):
    """The budgets of a day, in UTC, and how far each is used."""

    day: str
    currency: str = "USD"
    scopes: tuple[Scope, ...] = ()


class DaemonHealth(Frozen):
    """The daemon lives, and as whom."""

    version: str
    pid: int
    uid: int
    started: float
    draining: bool = False


class HostView(Frozen):
    """A daemon that works on the database, as all of them see it."""

    name: str
    pid: int
    version: str = ""
    labels: tuple[str, ...] = ()
    slots: int
    started: float
    silent: float = Field(description="seconds since its last heartbeat")
    draining: bool = False
    gone: bool = Field(default=False, description="it gave no heartbeat for its own lease and the grace after it")
    tasks: tuple[str, ...] = Field(default=(), description="what it works on")


class EndpointView(Frozen):
    """One model server as the pool sees it now."""

    name: str
    tier: str
    url: str = ""
    model: str = ""
    up: bool
    in_flight: int = 0
    detail: str = Field(default="", description="why it is down, or what is worth knowing")

    @classmethod
    def of(cls, status: EndpointStatus) -> EndpointView:
        """What a person is shown of the pool's own status."""
        up = status.state == "up"
        return cls(
            name=status.name,
            tier=status.tier,
            url=status.url,
            model=status.model or "",
            up=up,
            in_flight=status.in_flight,
            detail=status.last_error or ("" if up else status.state),
        )


class SandboxView(Frozen):
    """The sandbox backend that was chosen at start, and what it proved."""

    backend: str
    version: str = ""
    proved: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class BrokerView(Frozen):
    """Whether the broker answers."""

    socket: str
    reachable: bool
    uid: int | None = None  # whom the broker runs as
    detail: str = ""


class DaemonStatus(Frozen):
    """Everything that `swarm status` and `swarm doctor` show about a living daemon."""

    health: DaemonHealth
    workers: int
    running: tuple[str, ...] = Field(default=(), description="ids of the tasks being worked on")
    counts: dict[TaskState, int] = Field(default_factory=dict)
    repositories: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    endpoints: tuple[EndpointView, ...] = ()
    sandbox: SandboxView | None = None
    broker: BrokerView
    hosts: tuple[HostView, ...] = Field(default=(), description="every daemon that works on the same database")
