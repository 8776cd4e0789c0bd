"""The only mover of states: claims tasks, has attempts made, judges what they came to, and moves each task on."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from swarm import lifecycle
from swarm.budgets.ledger import BudgetLedger
from swarm.engine import Ended, Engine
from swarm.errors import StaleClaimError
from swarm.faults import broken
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Claim, Held, Plan, Settlement
from swarm.store.store import Store
from swarm.types import AttemptResult, Conclusion, Failure, Fault, Outcome, TaskRequest, TaskState, TaskView

CANCEL_PATIENCE = 20.0  # seconds that a caller waits to see a cancelled attempt tidy up

log = logging.getLogger(__name__)


class Run(Protocol):
    """An attempt under way, as `attempt.AttemptRun` makes it."""

    ledger: BudgetLedger

    async def make(self) -> AttemptResult:
        """Everything up to the judgement."""

    async def deliver(self, result: AttemptResult) -> Outcome:
        """Hand the result to the broker."""


class Coordinator:
    """Spreads attempts over at most ``workers`` at a time.

    ``begin`` makes the run of a claim; ``ladder`` are the tiers from the weakest up, for tasks that name none.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        begin: Callable[[Claim], Run],
        *,
        workers: int,
        ladder: tuple[str, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._engine = engine
        self._begin = begin
        self._workers = workers
        self._host = HostFacts(socket.gethostname(), slots=workers)
        self._ladder = ladder
        self._clock = clock
        self._slots = asyncio.Semaphore(workers)
        self._claims: dict[str, Claim] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()
        self._draining = False

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the tasks that are being worked on."""
        return tuple(claim.task.id for claim in self._claims.values())

    @property
    def draining(self) -> bool:
        """Whether nothing new is claimed any more."""
        return self._draining

    async def run(self) -> None:
        """Take over what an earlier daemon left, then work until drained. Raises StoreError when the database fails."""
        for claim in await self._store.adopt():
            self._claims[claim.attempt.id] = claim
        await self._engine.recover(self._flow)
        async with asyncio.TaskGroup() as group:
            for claim in list(self._claims.values()):
                log.info("going on with attempt %s", claim.attempt.id)
                self._follow(group, claim)
            while not self._draining:
                self._woken.clear()
                await self._fill(group)
                await self._rest()

    async def drain(self, patience: float) -> None:
        """Claim nothing more, give running attempts ``patience`` seconds, then park them for the next daemon."""
        self._draining = True
        self._woken.set()
        if self._following and patience > 0:
            await asyncio.wait(set(self._following.values()), timeout=patience)
        left = dict(self._following)
        for attempt in left:
            log.info("parking attempt %s for the next start", attempt)
            await self._engine.park(attempt)
        if left:
            await asyncio.wait(set(left.values()))

    # A person's verbs

    async def submit(self, request: TaskRequest, plan: Plan) -> tuple[TaskView, bool]:
        """Queue a task; the flag tells whether it is new. Raises TaskError."""
        view, new = await self._store.add(request, plan)
        self._woken.set()
        return view, new

    async def cancel(self, task: str) -> TaskView:
        """Stop a task and wait a while for its attempt to tidy up. Raises TaskError when it is being delivered."""
        view = await self._store.cancel(task)
        if view.state is TaskState.RUNNING:
            await self._stop(view.task.id)
        return await self._store.view(view.task.id)

    async def retry(self, task: str) -> TaskView:
        """Queue a task again that ended badly, its budget granted once more. Raises TaskError."""
        view = await self._store.retry(task)
        self._woken.set()
        return view

    async def redeem(self, held: Held, verdict: dict[str, Any]) -> TaskView | None:
        """Move a task that ended to where a later word of the broker's puts it; None where it has moved on since."""
        state, reason = lifecycle.after_word(verdict)
        return await self._store.redeem(held, verdict, state, reason)

    # Machinery

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        while len(self._claims) < self._workers and not self._draining:
            claim = await self._store.queue.claim(self._host)
            if claim is None:
                return
            self._claims[claim.attempt.id] = claim
            self._follow(group, claim)

    async def _rest(self) -> None:
        """Sleep until woken, or until a task that waits for its retry is due."""
        due = await self._store.queue.due() if len(self._claims) < self._workers else None
        wait = None if due is None else max(0.05, due - self._clock())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), wait)

    def _follow(self, group: asyncio.TaskGroup, claim: Claim) -> None:
        name = claim.attempt.id
        task = group.create_task(self._see_through(claim), name=f"attempt {name}")
        self._following[name] = task
        task.add_done_callback(lambda _: self._done(name))

    def _done(self, attempt: str) -> None:
        self._following.pop(attempt, None)
        self._claims.pop(attempt, None)
        self._woken.set()

    async def _see_through(self, claim: Claim) -> None:
        """One attempt from its start to the state that follows."""
        name = claim.attempt.id
        if claim.cancelling:  # asked for just before the last daemon died
            await self._engine.cancel(name)
            ended = Ended("cancelled")
        else:
            ended = await self._engine.run(name)
        if ended.how == "parked":
            return
        try:
            await self._settle(claim, _outcome(ended))
        except StaleClaimError as error:
            log.warning("%s", error)

    async def _settle(self, claim: Claim, outcome: Outcome) -> None:
        result = outcome.result
        if outcome.verdict is not None or outcome.fault is not None:
            state, reason = lifecycle.after_delivery(outcome)
            await self._store.settle(claim, Settlement(state, reason, result, verdict=outcome.verdict))
            return
        decision = await self._decide(claim, result)
        state, reason = decision.state or TaskState.QUEUED, decision.reason
        if await self._store.state(claim.task.id) is TaskState.DELIVERING:
            # Only when the engine's memory was lost in the middle: whether there is a pull request, a person must see.
            state, reason = TaskState.NEEDS_PERSON, f"it was being delivered, and may have been; since then: {reason}"
        end = Settlement(state, reason, result, tier=decision.tier, wait=decision.wait)
        await self._store.settle(claim, end)

    async def _decide(self, claim: Claim, result: AttemptResult) -> lifecycle.Decision:
        spent = (await self._store.view(claim.task.id)).spent
        ladder = () if claim.task.request.tier else self._ladder
        return lifecycle.decide(claim.attempt, result, claim.task.budget, spent, ladder)

    async def _stop(self, task: str) -> None:
        for name, claim in list(self._claims.items()):
            if claim.task.id == task:
                await self._engine.cancel(name)
                if following := self._following.get(name):
                    await asyncio.wait({following}, timeout=CANCEL_PATIENCE)

    async def _flow(self, attempt: str) -> str:
        """What the engine runs: make the attempt and, where the judgement says so, deliver it."""
        claim = self._claims.get(attempt)
        if claim is None or claim.cancelling:
            return ""  # over before the daemon went down; only the engine had not heard of it
        async with self._slots:
            run = self._begin(claim)
            result = await run.make()
            outcome = Outcome(result=result)
            decision = await self._decide(claim, result)
            if decision.kind == "deliver":
                may = await self._store.deliver(claim, decision.reason)
                outcome = await run.deliver(result) if may else Outcome(result=_cancelled(result))
            return outcome.model_dump_json()


def _outcome(ended: Ended) -> Outcome:
    """The end of a run, whatever it was, as the end of an attempt."""
    match ended.how:
        case "done":
            return Outcome.model_validate_json(ended.value)
        case "cancelled":
            return Outcome(result=_cancelled(None))
        case _:
            failure = Failure(what="the attempt broke", why=ended.value, mend="look into the daemon's log, then retry")
            return Outcome(result=broken(Fault(kind="lasting", failure=failure)))


def _cancelled(result: AttemptResult | None) -> AttemptResult:
    conclusion = Conclusion(ending="cancelled", summary="cancelled by a person")
    return AttemptResult(conclusion=conclusion, sealed=result.sealed if result else None)
