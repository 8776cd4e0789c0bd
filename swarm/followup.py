"""What happens on a forge becomes work here: tasks that people ask for there, more work on a pull request, and word of
how far it is. The broker has judged who may ask; what was said stays data."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from pydantic import Field, ValidationError

from swarm.apart import apart
from swarm.budgets.sums import remaining, total
from swarm.delivery import BrokerClient, NoteState
from swarm.errors import BrokerError, IllegalMoveError, StoreError, SwarmError, TaskError, TaskNotFoundError
from swarm.prompts import wanted_of_issue, wanted_of_pull
from swarm.store.rows import Plan
from swarm.store.store import Store
from swarm.types import INTAKE, Frozen, Happening, TaskRequest, TaskState, TaskView

WAIT = 25.0  # seconds that the broker may keep a question for events
PAUSE = 0.2  # seconds between two questions, for a broker that does not wait
LOOK = 1.0  # seconds between two looks at tasks that somebody on the forge waits for
LONGEST = 120.0  # seconds to wait after failures
TRIES = 8  # of one word on the forge; then the next change is told instead
MAX_TOLD = 1000  # tasks that are told about at a time

S = TaskState
STATES: dict[TaskState, NoteState] = {
    S.QUEUED: "queued",
    S.RUNNING: "working",
    S.PAUSED: "waiting",
    S.DELIVERING: "checking",
    S.DELIVERED: "delivered",
    S.REFUSED: "waiting",
    S.NEEDS_PERSON: "waiting",
    S.CANCELLED: "cancelled",
    S.NO_CHANGE: "failed",
    S.LIMIT_HIT: "failed",
    S.GAVE_UP: "failed",
    S.CHECKS_FAILED: "failed",
    S.INFRA_FAILED: "failed",
    S.EXPIRED: "failed",
}

log = logging.getLogger(__name__)


class Memory(Frozen):
    """What outlives the daemon: the last event that was handled, and which tasks are told about, each as told last."""

    last: int = 0
    told: dict[str, str] = Field(default_factory=dict)


class Coordinates(Protocol):
    """Takes tasks in and stops them, as `coordinator.Coordinator` does."""

    async def submit(self, request: TaskRequest, plan: Plan) -> tuple[TaskView, bool]:
        """Queue a task."""

    async def cancel(self, task: str) -> TaskView:
        """Stop one."""


class Followup:
    """Listens to the broker's events and tells the forge of their tasks. `run` until it is cancelled.

    An event is handled, then remembered: after a kill it is handled once more, which finds what it made the first time.
    """

    def __init__(
        self,
        file: Path,
        *,
        broker: BrokerClient,
        store: Store,
        coordinator: Coordinates,
        plan: Callable[[TaskRequest], Awaitable[Plan]],
    ) -> None:
        self._file = file
        self._broker = broker
        self._store = store
        self._coordinator = coordinator
        self._plan = plan
        self._memory = _read(file)
        self._stumbled = (0, 0)  # the event that failed last, and how often
        self._failures: dict[str, tuple[int, float]] = {}  # by task: how often a word failed, and when to say it again

    async def run(self) -> None:
        """Until cancelled. A broker, a database or a disk that fails is tried again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(), name="events")
            group.create_task(self._tell(), name="status comments")

    # --- what happened

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                await self.once(WAIT)
            except SwarmError as error:
                failures += 1
                log.warning("no word of the forges: %s", error)
            except Exception:
                failures += 1
                log.exception("no word of the forges")
            else:
                failures = 0
            await asyncio.sleep(min(LONGEST, 2.0 ** min(failures, 10)) if failures else PAUSE)

    async def once(self, wait: float = 0.0) -> None:
        """Takes the events that there are. Raises what goes wrong with one of them.

        One that fails TRIES times is passed over, so that those after it are heard.
        """
        happenings, last = await self._broker.events(self._memory.last, wait)
        if last < self._memory.last:
            log.warning("the broker's events begin anew: its state was replaced")
            self._remember(last=0)
            return
        for one in happenings:
            if one.number > self._memory.last:
                await self._tried(one)
                self._remember(last=one.number)
        if last > self._memory.last:
            self._remember(last=last)  # past those that are not known here

    async def _tried(self, one: Happening) -> None:
        number, tries = self._stumbled
        tries = tries + 1 if number == one.number else 1
        self._stumbled = (one.number, tries)
        if tries < TRIES:
            await self._take(one)
            return
        with apart(f"event {one.number} is passed over after {tries} tries"):
            await self._take(one)

    async def _take(self, one: Happening) -> None:
        log.info("event %d: %s for task %s in %s", one.number, one.kind, one.task, one.repository)
        try:
            if one.kind == "intake":
                await self._begin(one)
            elif one.kind in {"review", "check", "conflict"}:
                await self._go_on(one)
            else:
                await self._note(one)
        except TaskNotFoundError:
            log.info("task %s is none of this daemon's", one.task)
        except (TaskError, ValidationError) as error:
            log.warning("event %d could not be taken: %s", one.number, error)
            why = str(error) if isinstance(error, TaskError) else "it does not fit this daemon"
            await self._say(one.capability, "failed", why)

    async def _begin(self, one: Happening) -> None:
        request = TaskRequest(
            repository=one.repository,
            instructions=wanted_of_issue(one.issue, one.title, one.text),
            base=one.base,
            capability=one.capability,
            base_commit=one.base_commit,
            title=one.title[:200] or None,
            idempotency_key=f"{INTAKE}{one.repository}:{one.issue}:{one.task}"[:200],
            task=one.task,
        )
        await self._submit(request)

    async def _go_on(self, one: Happening) -> None:
        root = await self._store.task(one.task)
        again = f"{root.id[:28]}-f{one.number}"
        kin = await self._store.lineage(root.id)
        budget = remaining(root.budget, total(view.spent for view in kin))
        if budget is None:
            await self._say(root.request.capability, "waiting", "The budget of this task is spent.")
            return
        rounds = root.budget.rounds
        if rounds is not None and len(kin) > rounds and all(view.task.id != again for view in kin):
            await self._say(root.request.capability, "waiting", f"All {rounds} further rounds of it are spent.")
            return
        said = hashlib.sha256(f"{one.kind}\0{one.text}".encode()).hexdigest()[:12]
        request = TaskRequest(
            repository=root.request.repository,
            instructions=wanted_of_pull(one.kind, one.pull, root.request.instructions, one.text),
            base=root.request.base,
            capability=root.request.capability,
            test_command=root.request.test_command,
            strategy=root.request.strategy,
            tier=root.request.tier,
            budget=budget,
            title=root.request.title,
            idempotency_key=f"{INTAKE}{root.id}:{one.number}:{said}",
            task=again,
            follows=root.id,
        )
        await self._submit(request)

    async def _submit(self, request: TaskRequest) -> None:
        view, _new = await self._coordinator.submit(request, await self._plan(request))
        if view.task.id not in self._memory.told and len(self._memory.told) < MAX_TOLD:
            self._remember(told={**self._memory.told, view.task.id: ""})

    async def _note(self, one: Happening) -> None:
        """The pull request is over, or a person has to go on: whatever still works on it stops."""
        reason = f"pull request {one.pull}: {one.url}" if one.url else f"pull request {one.pull}"
        await self._store.remark(one.task, f"on the forge: {one.kind}", reason)
        for view in await self._store.lineage(one.task):
            if not view.state.final:
                try:
                    await self._coordinator.cancel(view.task.id)
                except IllegalMoveError as error:
                    log.info("%s", error)

    # --- how far it is

    async def _tell(self) -> None:
        while True:
            try:
                await self.tell()
            except StoreError as error:
                log.warning("the forges are told nothing now: %s", error)
                await asyncio.sleep(LOOK * 5)
            await asyncio.sleep(LOOK)

    async def tell(self) -> None:
        """Says on the forge what has changed since it was said last. Raises StoreAwayError.

        What goes wrong with one task is tried again later, and keeps nobody else's word.
        """
        for name, told in list(self._memory.told.items()):
            if time.monotonic() < self._failures.get(name, (0, 0.0))[1]:
                continue
            with apart(f"word of task {name}"):
                self._later(name)
                if await self._brought_up(name, told):
                    self._failures.pop(name, None)

    async def _brought_up(self, name: str, told: str) -> bool:
        """Whether the forge knows by now how a task stands, or need not."""
        try:
            view = await self._store.view(name)
        except TaskError:
            self._forget(name)
            return True
        state = STATES[view.state]
        if state != told and not await self._told(view, state):
            return False
        if view.state.final:
            self._forget(name)
        elif state != told:
            self._remember(told={**self._memory.told, name: state})
        return True

    def _later(self, name: str) -> None:
        """Looks at a task again after a pause, unless all goes well with it now."""
        failed = self._failures.get(name, (0, 0.0))[0]
        self._failures[name] = (failed + 1, time.monotonic() + min(LONGEST, 4.0 * 2.0 ** min(failed, 10)))

    def tell_again(self, view: TaskView) -> None:
        """A task that was told of as ended has moved after all: whoever asked for it on the forge hears of it."""
        asked = (view.task.request.idempotency_key or "").startswith(INTAKE)
        if asked and view.task.id not in self._memory.told and len(self._memory.told) < MAX_TOLD:
            self._remember(told={**self._memory.told, view.task.id: STATES[S.NEEDS_PERSON]})

    async def _told(self, view: TaskView, state: NoteState) -> bool:
        """Whether nothing is left to say: it was said, or was tried often enough."""
        task = await self._store.task(view.task.id)
        try:
            await self._broker.comment(task.request.capability, state, view.reason if view.state.final else "")
        except BrokerError as error:
            log.warning("task %s could not be told about: %s", view.task.id, error)
            return self._failures.get(view.task.id, (0, 0.0))[0] >= TRIES
        return True

    async def _say(self, capability: str, state: NoteState, text: str) -> None:
        """One word that is not worth a second try."""
        if not capability:
            return
        try:
            await self._broker.comment(capability, state, text)
        except SwarmError as error:
            log.warning("the forge could not be told: %s", error)

    # --- memory

    def _forget(self, name: str) -> None:
        self._failures.pop(name, None)
        self._remember(told={task: state for task, state in self._memory.told.items() if task != name})

    def _remember(self, *, last: int | None = None, told: dict[str, str] | None = None) -> None:
        self._memory = Memory(
            last=self._memory.last if last is None else last, told=self._memory.told if told is None else told
        )
        fresh = self._file.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(self._memory.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._file)


def _read(file: Path) -> Memory:
    try:
        return Memory.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return Memory()
    except ValidationError:
        log.warning("%s is damaged; all events that the broker still has are looked at again", file)
        return Memory()
