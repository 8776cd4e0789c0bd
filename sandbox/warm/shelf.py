"""The sandboxes of one spec that are held ready, and what is known about asking for and starting them."""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from sandbox.base import Sandbox
from sandbox.types import SandboxSpec
from sandbox.warm.sizing import Demand, back_off


def key_of(spec: SandboxSpec) -> str:
    """What two specs have in common whose sandboxes can stand in for one another: everything but the labels."""
    return spec.model_copy(update={"labels": {}}).model_dump_json()


@dataclass
class Held:
    """An open sandbox that nobody has used, and what closes it."""

    sandbox: Sandbox
    stack: AsyncExitStack


@dataclass
class Shelf:
    """One spec's. ``starting`` counts those on their way, ``not_before`` is when one may be tried again."""

    key: str
    spec: SandboxSpec
    demand: Demand = field(default_factory=Demand)
    ready: deque[Held] = field(default_factory=deque)
    starting: int = 0
    failures: int = 0
    not_before: float = 0.0

    @property
    def count(self) -> int:
        """Those that are there and those that will be."""
        return len(self.ready) + self.starting

    def started(self, held: Held, seconds: float) -> None:
        """One is ready."""
        self.demand = self.demand.started(seconds)
        self.failures, self.not_before = 0, 0.0
        self.ready.append(held)

    def failed(self, now: float) -> float:
        """One could not be started; seconds until the next try."""
        self.failures += 1
        wait = back_off(self.failures)
        self.not_before = now + wait
        return wait
