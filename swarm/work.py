"""What a strategy is given to work with, and what it gives back: protocols only, no behaviour."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pool.gateway.bound import Answered
from pool.types import ChatRequest, CompletionRequest, Reply, Traits
from sandbox.base import Sandbox
from swarm.budgets.account import Ledger
from swarm.budgets.parts import PARTS
from swarm.known import Known
from swarm.manners import Manners
from swarm.types import Conclusion, Experience, Step, Task, TaskMessage


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


async def kept_elsewhere() -> None:
    """The save of a part in a sandbox of its own: whoever began it takes over what is worth keeping."""


_PART = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


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
    ``outcomes`` are what became of earlier attempts at the repository, the newest first.
    ``manners`` are what is set for models by their names, see `swarm.speech.form.choose`.
    ``name`` is that of the part of the work which this is; empty for the whole. ``temperature`` is asked for where the
    model's own is not to be taken, as by tries that are to differ.
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
    known: Known = field(default_factory=Known)
    ladder: tuple[str, ...] = ()
    outcomes: tuple[Experience, ...] = ()
    manners: Mapping[str, Manners] = field(default_factory=dict)
    name: str = ""
    temperature: float | None = None

    def part(
        self, name: str, *, tier: str | None = None, ledger: Ledger | None = None, sandbox: Sandbox | None = None
    ) -> Work:
        """A part of this work as a work of its own: its lines of the journal carry its name, and it knows no others'.

        So a conversation in it, and what goes on after a crash, is as it is in the whole. Its requests are a session of
        their own, ``attempt~name``; a part of a part is ``name.inner``. In a ``sandbox`` of its own nothing is saved,
        since a save is of the whole's workspace; such lines are marked ``fork``, for they change nothing that is kept.
        Raises ValueError for a name that is none.
        """
        if not _PART.fullmatch(name) or name in PARTS:
            raise ValueError(
                f"{name!r} is no name of a part: use lower-case letters, digits and dashes, and none of {PARTS}"
            )
        whole = f"{self.name}.{name}" if self.name else name
        session = f"{self.attempt}.{name}" if self.name else f"{self.attempt}~{name}"
        apart = {} if sandbox is None else {"fork": True}
        own = (line for line in self.past if _within(line, whole))
        past = tuple(
            line.model_copy(update={"attempt": session}) if line.attempt == self.attempt else line for line in own
        )

        async def record(kind: str, data: dict[str, Any]) -> None:
            await self.record(kind, {**data, "part": data.get("part", whole), **apart})

        return replace(
            self,
            name=whole,
            attempt=session,
            tier=tier or self.tier,
            ledger=ledger or self.ledger,
            sandbox=sandbox or self.sandbox,
            record=record,
            save=self.save if sandbox is None else kept_elsewhere,
            past=past,
        )


def _within(line: Step, part: str) -> bool:
    named = str(line.data.get("part", ""))
    return named == part or named.startswith(f"{part}.")


class Strategy(Protocol):
    """A way to work on a task."""

    async def work(self, work: Work) -> Conclusion:
        """Change the workspace until done or out of budget. Raises PoolError or SandboxError for broken machinery."""
