"""Whose budgets there are beside a task's own: the lineage's, and a day's of a repository, a user and all. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ConfigDict, Field

from swarm.budgets.sums import LIMITS
from swarm.types import Frozen, Spent

FLEET = "fleet"
_WORDS = {"seconds": "seconds of wall clock"}


class DayBudget(Frozen):
    """What may be spent in a day, from midnight to midnight UTC. None is no limit."""

    model_config = ConfigDict(allow_inf_nan=False)

    steps: int | None = Field(default=None, gt=0, description="turns of agents")
    tokens: int | None = Field(default=None, gt=0, description="tokens read and written by the models")
    gpu_seconds: float | None = Field(default=None, gt=0, description="seconds on an engine, times its GPUs")
    money: float | None = Field(default=None, gt=0, description="in the currency of [prices]")


class DayBudgets(Frozen):
    """Budgets of a day. Nothing more is begun where one is spent, and what runs ends as with its own limit."""

    fleet: DayBudget = Field(default=DayBudget(), description="of all tasks together")
    repository: DayBudget = Field(default=DayBudget(), description="of each repository that has none of its own")
    user: DayBudget = Field(default=DayBudget(), description="of each user who has none of their own")
    repositories: dict[str, DayBudget] = Field(default_factory=dict, max_length=10_000, description="by name")
    users: dict[str, DayBudget] = Field(default_factory=dict, max_length=10_000, description="by name")

    def of(self, scope: str) -> DayBudget:
        """The budget of a scope: "fleet", "repository:NAME" or "user:NAME"."""
        kind, _, name = scope.partition(":")
        match kind:
            case "repository":
                return self.repositories.get(name, self.repository)
            case "user":
                return self.users.get(name, self.user)
            case _:
                return self.fleet


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a scope's budget is used; ``limits`` holds only what has one, by the names of `Spent`."""

    scope: str
    limits: Mapping[str, float]
    spent: Spent


@dataclass(frozen=True, slots=True)
class Gauge:
    """One limit and how far it is used. ``name`` is short and stable ("task.tokens"), ``unit`` a plural in words."""

    name: str
    unit: str
    used: float
    limit: float

    @property
    def share(self) -> float:
        """Of the limit."""
        return self.used / self.limit

    @property
    def whose(self) -> str:
        """Whose limit it is, in words; empty for the task's own."""
        scope = self.name.rpartition(".")[0]
        words = {
            "task": "",
            "part": "the share of this part of the work",
            "lineage": "the budget of the first task and all that came of it",
        }
        return words.get(scope, f"the day's budget of {whose_day(scope)}")

    def told(self) -> str:
        """What is spent, in words: "6 of 5 steps are spent"."""
        words = _WORDS.get(self.unit, self.unit)
        spent = f"{amount(self.used, self.unit)} of {amount(self.limit, self.unit)} {words} are spent"
        return f"{spent} ({self.whose})" if self.whose else spent


def amount(value: float, unit: str) -> str:
    """A number of some unit, as exact as it is of use."""
    return f"{value:.4g}" if unit == "money" else f"{value:.0f}"


def gauges(standing: Standing) -> tuple[Gauge, ...]:
    """The limits of a scope."""
    return tuple(
        Gauge(f"{standing.scope}.{name}", unit, getattr(standing.spent, name), standing.limits[name])
        for name, unit in LIMITS
        if name in standing.limits
    )


def limits_of(budget: Frozen) -> dict[str, float]:
    """What of a budget has a limit, by the names of `Spent`."""
    found = ((name, getattr(budget, name, None)) for name, _ in LIMITS)
    return {name: float(limit) for name, limit in found if limit is not None}


def together(budgets: Sequence[Frozen]) -> dict[str, float]:
    """The limits of several budgets that are spent from together; what one of them does not limit has none."""
    limits = [limits_of(budget) for budget in budgets]
    shared = set(limits[0]).intersection(*limits[1:]) if limits else set()
    return {name: sum(each[name] for each in limits) for name, _ in LIMITS if name in shared}


def day_of(at: float) -> str:
    """The day of a time, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def scopes_of(repository: str, user: str) -> tuple[str, ...]:
    """The scopes of a day that a task's spending counts in."""
    named = (("repository", repository), ("user", user))
    return (*(f"{kind}:{name}" for kind, name in named if name), FLEET)


def whose_day(scope: str) -> str:
    """A scope of a day in words."""
    kind, _, name = scope.partition(":")
    return "all tasks" if kind == FLEET else f"{kind} {name}"


def shut(standing: Standing) -> str:
    """Why nothing more of a scope may begin today; empty where something may."""
    for gauge in gauges(standing):
        if gauge.used >= gauge.limit:
            spent = f"{amount(gauge.used, gauge.unit)} of {amount(gauge.limit, gauge.unit)} {gauge.unit}"
            return (
                f"the day's budget of {whose_day(standing.scope)} is spent ({spent}); "
                "it goes on at 00:00 UTC or with a larger [budgets] in swarm.toml"
            )
    return ""
