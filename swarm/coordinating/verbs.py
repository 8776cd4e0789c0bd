"""What people ask of tasks, carried out: written down by the store, then done at once where this host has the task."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from swarm.agents import agent_of
from swarm.errors import TaskError
from swarm.store.rows import Plan
from swarm.store.snapshots import Beginning
from swarm.store.store import Store
from swarm.store.verbs import Stand
from swarm.types import ForkRequest, TaskMessage, TaskRequest, TaskState, TaskView

Keep = Callable[[Stand, str], Awaitable[Beginning]]


async def nowhere(_stand: Stand, _task: str) -> Beginning:
    """For a coordinator without git folders: no work of anyone's is kept. Raises TaskError."""
    raise TaskError(
        "this coordinator keeps no git folders, so nothing can be forked from it", "ask the daemon that does"
    )


class Verbs(ABC):
    """All that people may ask. ``keep(stand, task)`` keeps another attempt's work for the task that is forked from it.

    Every method raises TaskNotFoundError, and StoreError when the database fails.
    """

    def __init__(self, store: Store, keep: Keep = nowhere) -> None:
        self._store = store
        self._keep = keep
        self._forking = asyncio.Lock()

    @abstractmethod
    def wake(self) -> None:
        """Something may be claimed."""

    @abstractmethod
    async def stop(self, task: str) -> None:
        """End a task's attempt for good where it runs here, and wait a while to see it tidy up."""

    @abstractmethod
    async def park(self, task: str) -> None:
        """Have a task's attempt save its work and stop where it runs here, and wait a while for that."""

    async def submit(self, request: TaskRequest, plan: Plan) -> tuple[TaskView, bool]:
        """Queue a task; the flag tells whether it is new. Raises TaskError."""
        view, new = await self._store.add(request, plan)
        self.wake()
        return view, new

    async def cancel(self, task: str) -> TaskView:
        """Stop a task and wait a while for its attempt to tidy up. Raises IllegalMoveError when it is delivered now."""
        view = await self._store.verbs.cancel(task)
        if view.state is TaskState.RUNNING:
            await self.stop(view.task.id)
        return await self._store.view(view.task.id)

    async def retry(self, task: str, capability: str | None = None) -> TaskView:
        """Queue a task again that ended badly, its budget granted once more. Raises IllegalMoveError.

        ``capability`` is another one that a person has granted for it.
        """
        view = await self._store.verbs.retry(task, capability)
        self.wake()
        return view

    async def pause(self, task: str) -> TaskView:
        """Save a task's work and stop it until `resume`. Raises IllegalMoveError for one that is over or delivered now.

        One that runs on another host pauses with that one's next heartbeat.
        """
        view = await self._store.verbs.pause(task)
        if view.state is TaskState.RUNNING:
            await self.park(view.task.id)
        return await self._store.view(view.task.id)

    async def prioritise(self, task: str, priority: int, author: str = "") -> TaskView:
        """Give a queued task another priority; the same again changes nothing. Raises IllegalMoveError for others."""
        return await self._store.verbs.prioritise(task, priority, author)

    async def resume(self, task: str, attempt: str | None = None) -> TaskView:
        """Let a paused task go on where it stood, or one that ended badly. Raises IllegalMoveError and TaskError."""
        view = await self._store.verbs.resume(task, attempt)
        self.wake()
        return view

    async def fork(self, task: str, wanted: ForkRequest, user: str = "") -> tuple[TaskView, bool]:
        """A new task that goes on from where another one stood; the flag tells whether it is new. Raises TaskError."""
        async with self._forking:  # no other fork's work may come under this one's id meanwhile
            source = await self._store.verbs.source(task, wanted)
            if isinstance(source, TaskView):
                view, new = source, False
            else:
                work = await self._keep(source, wanted.task)
                view, new = await self._store.verbs.fork(source, wanted, work, user)
        if wanted.instructions:  # also the second time, whose first answer may have been lost half way
            await self._store.messages.add(wanted.task, wanted.instructions, user, "fork")
        self.wake()
        return view, new

    async def message(self, task: str, text: str, author: str, *, key: str | None = None) -> TaskMessage:
        """Say something to a task's agent; ``when`` of the answer tells when it will hear that. Raises TaskError."""
        said = await self._store.messages.add(task, text, author, key)
        view = await self._store.view(said.task)
        return said.model_copy(update={"when": _when(view)})


def _when(view: TaskView) -> str:
    strategy = view.attempts[-1].strategy if view.attempts else view.task.request.strategy
    if view.asks:
        return f"once the work goes on, which it does with: swarm resume {view.task.id}"
    if view.state.final:
        return "the task is over; it is told if it is resumed or tried again"
    if strategy == "sampled_repair":
        return "sampled_repair listens to nobody; an agent that follows it is told when it begins"
    if agent_of(strategy) is not None:
        return "an agent of others cannot be told while it runs; it is told when the next attempt begins"
    return "at the agent's next turn" if view.state is TaskState.RUNNING else "at the agent's first turn"


async def settled(following: asyncio.Task[None] | None, patience: float) -> None:
    """Wait a while for an attempt to be seen through."""
    if following is not None:
        await asyncio.wait({following}, timeout=patience)
