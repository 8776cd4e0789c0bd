"""Settings of the queue: how many tasks may run at a time, and when the machinery is left alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from swarm.scheduling.facts import Caps
from swarm.types import Frozen

Cap = Annotated[int, Field(ge=1, le=100_000)]


class SchedulingConfig(Frozen):
    """What bounds how many tasks run at a time, over all hosts. Without any of these only the hosts' workers do."""

    model_config = ConfigDict(allow_inf_nan=False)

    fleet: Cap | None = Field(default=None, description="tasks at a time on all hosts together; default: their workers")
    per_repository: Cap | None = Field(default=None, description="tasks at a time of one repository")
    per_user: Cap | None = Field(default=None, description="tasks at a time of one who hands tasks in")
    per_tier: Cap | None = Field(default=None, description="tasks at a time that began on one tier")
    repositories: dict[str, Cap] = Field(
        default_factory=dict, max_length=10_000, description="the same for repositories by name"
    )
    users: dict[str, Cap] = Field(default_factory=dict, max_length=10_000, description="the same for users by name")
    tiers: dict[str, Cap] = Field(default_factory=dict, max_length=1000, description="the same for tiers by name")
    window: int = Field(
        default=2048, ge=0, description="tokens that a model has to take at least; tiers without one wait"
    )
    expires: float | None = Field(
        default=None, gt=0, description="seconds after which a task that names nothing else leaves the queue unclaimed"
    )
    beyond_limits: bool = Field(default=False, description="a task may name a larger budget than [limits] does")

    @property
    def caps(self) -> Caps:
        """What the scheduler is given."""
        return Caps(**self.model_dump(exclude={"expires", "window", "beyond_limits"}))
