"""The port of a durable engine: what the coordinator asks of one, whichever it is (see `swarm.engine`).

A run is a flow, started once under a name, and made of phases. A phase that ended is never run again, whatever
happens to the process; one that was cut short is. What a phase returns is text and is kept with it.

Nothing is handed on by the engine itself: a run that a dead process left stands still until someone adopts it, so that
leases and fences, which the store keeps, alone decide who works.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Flow = Callable[[str], Coroutine[Any, Any, str]]
Act = Callable[[], Coroutine[Any, Any, str]]
Ours = Callable[[str], Awaitable[bool]]
Done = Callable[[str], int]
State = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class Ended:
    """How a run ended. ``value`` is the flow's text, or what broke.

    ``parked`` means that it has not: whoever adopts it goes on. ``lost`` means that another process has it now.
    """

    how: Literal["done", "failed", "cancelled", "parked", "lost"]
    value: str = ""


@dataclass(frozen=True)
class RunView:
    """A run as the engine's database has it.

    ``lives`` are processes in a row that had it, did not park it, and got nothing of it done.
    """

    name: str
    state: State
    executor: str
    lives: int
    created: float


class Engine(Protocol):
    """What the coordinator asks of a durable engine; `tests/contract/test_engine.py` holds an adapter to it."""

    async def open(self, flow: Flow, ours: Ours | None = None, done: Done | None = None) -> None:
        """Open for business with ``flow``. Runs of earlier processes stand still until they are adopted.

        ``ours(name)`` is asked before a phase begins and before it is kept: False means that another process has
        the run, and this one's flow sees CancelledError. ``done(name)`` grows with what a run gets done inside of a
        phase, over all its lives: a run that got on is not taken for what ended its process.
        """

    async def start(self, name: str) -> None:
        """Begin a run, once and for all; one that is there already is left as it is."""

    async def run(self, name: str) -> Ended:
        """Begin a run, or join it, and wait for its end. One that ended before is not run again.

        One that an earlier or another process has, and that was not adopted, is ``lost``.
        """

    async def adopt(self, *names: str) -> None:
        """Go on with unfinished runs here, whoever had them: their flow begins anew, and what it did is remembered.

        From now on nothing that another process's flow of them does is kept. Names that are unknown, ended, or
        running here are passed over. One that several processes in a row ended with, and that got nothing done in
        them, may be kept waiting until others like it get on or end.
        """

    async def phase(self, name: str, act: Act) -> str:
        """Inside a flow: what ``act`` returned, now or in an earlier life. Each name once a run, in the same order.

        What ``act`` raises is not kept, and a flow that sees it must end: by raising it on, or by being parked.
        """

    async def wait(self, topic: str, seconds: float) -> str | None:
        """Inside a flow, outside of its phases: the next signal on a topic; None when none came.

        The seconds count from the first time that this was reached, in whichever life that was.
        """

    async def timer(self, seconds: float) -> None:
        """Inside a flow, outside of its phases: sleep, the seconds counted as those of ``wait``."""

    async def signal(self, name: str, topic: str, value: str) -> bool:
        """Leave a signal for a run, wherever and whether or not it waits; False when there is no such run."""

    async def cancel(self, name: str) -> None:
        """Stop a run for good. Its flow sees CancelledError and may tidy up."""

    async def park(self, name: str) -> None:
        """Stop a run in this process only."""

    async def runs(self, *states: State, limit: int = 10_000) -> tuple[RunView, ...]:
        """Runs in these states, oldest first; without any, the unfinished ones."""

    async def forget(self, *names: str) -> None:
        """Delete what is kept of runs that ended; names that are unknown or unfinished are passed over.

        For the engine it is then as if they had never been: only for what is never run, joined or adopted again.
        """

    async def close(self) -> None:
        """Let go of everything. Runs that are still going are parked."""
