"""What a strategy is given to work with, and what it gives back: protocols only, no behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pool.gateway.bound import Answered
from pool.types import ChatRequest, CompletionRequest, Reply, Traits
from sandbox.base import Sandbox
from swarm.budgets.notices import Notice
from swarm.budgets.prices import Counted
from swarm.budgets.scopes import Gauge
from swarm.errors import BudgetExceededError
from swarm.known import Known
from swarm.types import Budget, Conclusion, Spent, Step, Task, TaskMessage


class Chat(Protocol):
    """The part of the pool that agent-side code sees."""

    async def chat(self, request: ChatRequest) -> Reply:
        """One chat turn. Raises PoolError."""

    async def complete(self, request: CompletionRequest) -> Reply:
        """One raw completion. Raises PoolError."""

    async def native_tools(self, tier: str) -> bool:
        """Whether the tier's endpoints speak native tool calls; else they are spoken as text. Raises PoolError."""

    async def traits(self, tier: str) -> Traits:
        """What all who may answer for a tier have in common, from what was seen of them. Raises PoolError."""

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:
        """A session runs a tool and will come back, after about ``expected`` seconds where that is known."""

    def end_session(self, session: str) -> None:
        """A session has had its last turn: whatever is kept for it may go."""


class Ledger(Protocol):
    """The budget of the whole task, counted over all attempts."""

    @property
    def budget(self) -> Budget:
        """What may be spent."""

    def spent(self) -> Spent:
        """What has been spent, wall clock included."""

    def seconds_left(self) -> float:
        """Of the wall clock."""

    def late(self) -> BudgetExceededError:
        """The error of the wall clock that was to end first, for whoever has waited until then."""

    def gauges(self) -> tuple[Gauge, ...]:
        """Every limit that may be met, the task's own first."""

    def notice(self, told: int) -> Notice | None:
        """What is newly to be told of what is left, where so many marks were told of before."""

    def left(self) -> str:
        """What may still be spent, in words."""

    def bill(self, call: Counted, guess: int = 0) -> Spent:
        """What a model call cost; ``guess`` are its tokens where the server counted none."""

    def admit(self) -> None:
        """Asked before whatever spends more. Raises BudgetExceededError where nothing is left of a limit."""

    def charge(self, cost: Spent) -> None:
        """Count something. Raises BudgetExceededError once a limit is passed."""


class Calls(Protocol):
    """What an agent inside the sandbox asks of models, as it is counted outside."""

    @property
    def over(self) -> str:
        """Why no further call is answered: the budget is spent. Empty while some are."""

    @property
    def limit(self) -> str:
        """Which limit was hit then, as `BudgetExceededError` names it."""

    @property
    def model(self) -> str:
        """The model that answered last."""

    @property
    def answers(self) -> int:
        """Calls that were answered."""

    @property
    def quiet(self) -> float:
        """Seconds since the last answer; 0 while a call is under way."""

    def taken(self) -> Sequence[Answered]:
        """The calls that ended since this was asked last."""


class Models(Protocol):
    """The gateway as programs inside sandboxes reach it."""

    def serving(self, attempt: str, task: str, tier: str, ledger: Ledger) -> AbstractAsyncContextManager[Calls]:
        """Answer what comes out of an attempt's sandboxes, for one tier, at its ledger's cost."""


def unnoted(session: str, failed: bool) -> None:  # noqa: FBT001  what it is told, in the order of Work.note
    """For those who let nobody know how a check went."""


async def nothing_said(_after: int) -> tuple[TaskMessage, ...]:
    """For those whom nobody can say anything to."""
    return ()


@dataclass(frozen=True)
class Work:
    """One attempt's work phase: the open sandbox holds the checkout, the strategy leaves its result there.

    ``record(kind, data)`` appends to the journal and returns once it is on disk. ``save()`` seals the workspace into
    the attempt's salvage ref; call it after a change worth keeping. ``past`` are the journal lines of this same attempt
    from before the daemon died, empty on a first run: finished model calls in it are not paid for again. They end
    before the first line with ``changed`` set whose effect no salvage kept, so they agree with the workspace.
    ``models`` serves programs inside a sandbox that was opened with the network "model".
    ``note(session, failed)`` tells how a check of the changed work went, for whoever chooses the model.
    ``inbox(after)`` are the messages of people to this task with a number above ``after``, the oldest first.
    ``known`` is what the repository says of itself: data, as everything out of it.
    ``ladder`` are the tiers, from the weakest up, that may be asked beside ``tier``: none where a person named it.
    """

    task: Task
    attempt: str
    tier: str
    sandbox: Sandbox
    pool: Chat
    ledger: Ledger
    test_command: str | None
    record: Callable[[str, dict[str, Any]], Awaitable[None]]
    save: Callable[[], Awaitable[None]]
    past: tuple[Step, ...] = ()
    note: Callable[[str, bool], None] = unnoted
    models: Models | None = None
    inbox: Callable[[int], Awaitable[tuple[TaskMessage, ...]]] = nothing_said
    known: Known = Known()
    ladder: tuple[str, ...] = ()


class Strategy(Protocol):
    """A way to work on a task."""

    async def work(self, work: Work) -> Conclusion:
        """Change the workspace until done or out of budget. Raises PoolError or SandboxError for broken machinery."""
