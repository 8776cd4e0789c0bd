"""The only mover of states: claims tasks, has attempts made, judges what they came to, and moves each task on.

Long, since whoever may move a state is one class; what needs no state of it is in `swarm.coordinating`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any, Protocol, TypeVar

from swarm import lifecycle
from swarm.budgets.ledger import BudgetLedger
from swarm.coordinating.ending import cancelled, outcome_of
from swarm.coordinating.membership import Membership
from swarm.coordinating.reconciling import end_stray_runs, forget_old_runs
from swarm.coordinating.station import Station
from swarm.coordinating.verbs import Keep, Verbs, nowhere, settled
from swarm.errors import StaleClaimError, StoreAwayError, StoreError
from swarm.failures import failure_of
from swarm.pulse import Pulse
from swarm.runs import Ended, Engine
from swarm.scheduling.facts import HostFacts
from swarm.store.hosts import Order
from swarm.store.rows import Claim, Held, Settlement
from swarm.store.store import Store
from swarm.types import AttemptResult, Fault, Outcome, TaskState, TaskView

AGAIN = 1.0  # seconds between two tries while the database is away
LAST_TRIES = 10.0  # seconds of them while the daemon ends
LEAVING = 60.0  # seconds that parked attempts may take in all to save their work and say so, while the daemon ends
FORGET = 1800.0  # seconds between two looks for runs that the engine need not remember any more
POLL = 5.0  # seconds after which the queue is looked at again, where other hosts may put something into it

T = TypeVar("T")

log = logging.getLogger(__name__)


class Run(Protocol):
    """An attempt under way, as `attempt.AttemptRun` makes it."""

    ledger: BudgetLedger
    pulse: Pulse

    async def make(self) -> AttemptResult:
        """Everything up to the judgement."""

    async def deliver(self, result: AttemptResult) -> Outcome:
        """Hand the result to the broker."""

    async def standing(self) -> dict[str, Any] | None:
        """The broker's word on what was handed to it before; None where it has none, or does not answer."""


class Coordinator(Verbs):
    """Spreads attempts over the slots of one host, and carries out what people ask of tasks.

    ``begin`` makes the run of a claim, ``keep`` is what a fork takes along: see `Verbs`.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        begin: Callable[[Claim], Run],
        *,
        station: Station,
        keep: Keep = nowhere,
    ) -> None:
        super().__init__(store, keep)
        self._engine = engine
        self._begin = begin
        self._workers = station.workers
        self._member = station.member
        self._membership = Membership(store, station.member, station.pace)
        self._pace = station.pace
        self._ladder = station.ladder
        self._slots = asyncio.Semaphore(station.workers)
        self._claims: dict[str, Claim] = {}
        self._runs: dict[str, Run] = {}
        self._delivering: set[str] = set()
        self._stuck: dict[str, Fault] = {}
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

    @property
    def host(self) -> HostFacts:
        """Which host this is."""
        return self._member.facts

    async def run(self) -> None:
        """Take over what an earlier life left, set right what it left crooked, then work until drained.

        Raises StoreError when the database fails, and DaemonError where another daemon has this host's name.
        """
        claims = await self._membership.join()
        await self._engine.open(self._flow, self._ours, self._steps)
        await end_stray_runs(self._store, self._engine)
        await self._store.queue.sweep()
        async with asyncio.TaskGroup() as group:
            for claim in claims:
                self._follow(group, claim)
            keeping = [group.create_task(each) for each in (self._beat(group), self._sweep(group), self._forget())]
            while not self._draining:
                self._woken.clear()
                await self._patiently(self._fill(group))
                await self._rest()
            while self._following:
                await asyncio.wait(set(self._following.values()))
            for each in keeping:
                each.cancel()
        with suppress(StoreAwayError):
            await self._membership.leave()

    async def drain(self, patience: float) -> None:
        """Claim nothing more, give running attempts ``patience`` seconds, then park them for the next claim."""
        self._draining = True
        self._woken.set()
        with suppress(StoreError):
            await self._membership.drain()
        if self._following and patience > 0:
            await asyncio.wait(set(self._following.values()), timeout=patience)
        left = set(self._following.values())
        await self._park_all(list(self._following))
        if left:
            _, stuck = await asyncio.wait(left, timeout=LEAVING)
            for each in stuck:
                log.warning("%s is left as it is on disk; whoever takes it over goes on from there", each.get_name())
                each.cancel()

    async def redeem(self, held: Held, verdict: dict[str, Any]) -> TaskView | None:
        """Move a task that ended to where a later word of the broker's puts it; None where it has moved on since."""
        state, reason = lifecycle.after_word(verdict)
        return await self._store.redeem(held, verdict, state, reason)

    # What the verbs do here

    def wake(self) -> None:
        """Something may be claimed."""
        self._woken.set()

    async def stop(self, task: str) -> None:
        """End a task's attempt for good, and wait a while to see it tidy up."""
        for name in self._stoppable(task):
            await self._engine.cancel(name)
            await settled(self._following.get(name), self._pace.cancel)

    async def park(self, task: str) -> None:
        """Have a task's attempt save its work and stop, and wait a while for that."""
        for name in self._stoppable(task):
            await self._engine.park(name)
            await settled(self._following.get(name), self._pace.cancel)

    def _stoppable(self, task: str) -> tuple[str, ...]:
        """A task's attempts here, without what is being delivered, or is just about to be: that goes on to its end."""
        held = (name for name, claim in self._claims.items() if claim.task.id == task)
        return tuple(name for name in held if name not in self._delivering)

    async def _park_all(self, names: list[str]) -> None:
        """Stop attempts, all at once: none waits for the database because of another."""
        for name in names:
            log.info("parking attempt %s", name)
        await asyncio.gather(*(self._engine.park(name) for name in names))

    # Claiming

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        while len(self._claims) - len(self._delivering) < self._workers and not self._draining:
            claim = await self._store.queue.claim(self._member.facts)
            if claim is None:
                return
            self._follow(group, claim)

    async def _rest(self) -> None:
        """Sleep until woken, or until a task that waits for its retry is due."""
        due = None
        if len(self._claims) - len(self._delivering) < self._workers:
            with suppress(StoreError):
                due = await self._store.queue.due()
        waits = [max(0.05, due - self._store.clock())] if due is not None else []
        waits += [POLL] if self._store.shared else []
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), min(waits, default=None))

    async def _patiently(self, call: Awaitable[None]) -> None:
        """Make a call that the next round makes again, should it fail: the heartbeat tells whether all does."""
        try:
            await call
        except StoreError as error:
            log.warning("%s", error)
            await asyncio.sleep(AGAIN)

    # The host's life

    async def _beat(self, group: asyncio.TaskGroup) -> None:
        """Say that this host lives, and do what is wanted of its tasks, for ever."""
        while True:
            await asyncio.sleep(self._pace.beat)
            await self._patiently(self._end_stuck())
            before = {(claim.task.id, claim.fence): name for name, claim in self._claims.items()}
            orders = await self._membership.beat()
            if orders is None:
                await self._park_if_lost()
            else:
                await self._patiently(self._compare(group, before, orders))

    async def _compare(
        self, group: asyncio.TaskGroup, before: dict[tuple[str, int], str], orders: tuple[Order, ...]
    ) -> None:
        """Set right where this host and the database do not agree on what it works on."""
        held = {(order.task, order.fence) for order in orders}
        ours = {key: name for key, name in before.items() if key not in held and name in self._claims}
        lost = [name for key, name in ours.items() if self._claims[name].fence == key[1]]
        if lost:
            log.warning("no longer ours: %s", ", ".join(lost))
            await self._park_all(lost)
        await self._obey(orders)
        known = {(claim.task.id, claim.fence) for claim in self._claims.values()}
        for claim in await self._membership.disown(orders, known | set(before)):
            self._follow(group, claim)

    async def _obey(self, orders: tuple[Order, ...]) -> None:
        """What was asked at another host's door."""
        for order in orders:
            for name in self._stoppable(order.task):
                if order.cancelling:
                    await self._engine.cancel(name)
                elif order.pausing:
                    await self._engine.park(name)

    async def _park_if_lost(self) -> None:
        """Stop before anybody else may begin with what is ours: nobody can be asked whether somebody has."""
        if self._membership.lost and self._claims:
            log.error("no heartbeat came through for %.0f s: everything is parked", self._pace.lease)
            await self._park_all(list(self._claims))

    async def _end_stuck(self) -> None:
        for name, run in list(self._runs.items()):
            fault = run.pulse.stuck()
            if fault is not None and name not in self._stuck:
                log.error("attempt %s: %s", name, fault.text)
                self._stuck[name] = fault
                try:
                    await self._engine.cancel(name)
                except StoreError:
                    del self._stuck[name]  # it is still stuck at the next look
                    raise

    async def _sweep(self, group: asyncio.TaskGroup) -> None:
        """Look for what no event told of, for ever."""
        while True:
            await asyncio.sleep(self._pace.sweep)
            if not self._draining:
                await self._patiently(self._look(group))

    async def _forget(self) -> None:
        """Keep the engine's own database from growing, for ever."""
        while True:
            await asyncio.sleep(FORGET)
            await self._patiently(self._forget_runs())

    async def _forget_runs(self) -> None:
        await end_stray_runs(self._store, self._engine)  # of attempts that ended while nobody had them
        await forget_old_runs(self._store, self._engine)

    async def _look(self, group: asyncio.TaskGroup) -> None:
        for claim in await self._membership.inherit():
            self._follow(group, claim)
        await self._store.queue.sweep()
        self._woken.set()

    # One attempt

    def _follow(self, group: asyncio.TaskGroup, claim: Claim) -> None:
        name = claim.attempt.id
        if claim.resumed:
            log.info("going on with attempt %s", name)
        self._claims[name] = claim
        if claim.delivering:
            self._delivering.add(name)
        task = group.create_task(self._see_through(claim), name=f"attempt {name}")
        self._following[name] = task
        task.add_done_callback(lambda _: self._done(name))

    def _done(self, attempt: str) -> None:
        for kept in (self._following, self._claims, self._runs, self._stuck):
            kept.pop(attempt, None)
        self._delivering.discard(attempt)
        self._woken.set()

    async def _see_through(self, claim: Claim) -> None:
        """One attempt from its start to the state that follows, or to where somebody else goes on with it."""
        name = claim.attempt.id
        try:
            ended = await self._ended(claim)
            if ended.how in {"parked", "lost"}:
                await self._insist(lambda: self._give_back(claim))
            else:
                await self._insist(lambda: self._settle(claim, outcome_of(ended, self._stuck.get(name))))
        except StaleClaimError as error:
            log.warning("%s", error)
        except StoreError as error:
            log.warning("attempt %s is left to whoever takes it over: %s", name, error)

    async def _ended(self, claim: Claim) -> Ended:
        name = claim.attempt.id
        try:
            if claim.cancelling:  # asked for just before its worker died
                await self._engine.cancel(name)
                return Ended("cancelled")
            if claim.resumed:
                await self._engine.adopt(name)
            return await self._engine.run(name)
        except StoreError as error:
            log.warning("attempt %s stops: %s", name, error)
            await self._engine.park(name)
            return Ended("parked")

    async def _give_back(self, claim: Claim) -> None:
        why = "its daemon was stopped" if self._draining else "its worker let go of it"
        state = await self._store.leases.give_back(claim, why)
        log.info("attempt %s is parked; task %s is %s", claim.attempt.id, claim.task.id, state.value)

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call until the database has it, however long that one is away; only not while the daemon ends."""
        until: float | None = None
        while True:
            try:
                return await call()
            except StoreAwayError:
                now = time.monotonic()
                until = until or (now + LAST_TRIES if self._draining else None)
                if until is not None and now > until:
                    raise
                await asyncio.sleep(AGAIN)

    async def _settle(self, claim: Claim, outcome: Outcome) -> None:
        result = outcome.result
        lost = outcome.verdict is None and outcome.fault is None
        lost = lost and await self._store.state(claim.task.id) is TaskState.DELIVERING
        if lost:
            outcome = await self._asked(claim, outcome)
        if outcome.verdict is not None or outcome.fault is not None:
            state, reason = lifecycle.after_delivery(outcome)
            # A database that was restored from before the delivery may not know that there was one.
            if not await self._store.deliver(claim, "it was handed to the broker"):
                state, reason = TaskState.NEEDS_PERSON, f"cancelled while it was delivered: {reason}"
            whose = failure_of(state, result, outcome.verdict, outcome.fault)
            await self._store.settle(claim, Settlement(state, reason, result, verdict=outcome.verdict, failure=whose))
            return
        decision = await self._decide(claim, result)
        state, reason = decision.state or TaskState.QUEUED, decision.reason
        if lost:
            # The engine's memory was lost in the middle, and the broker tells nothing: a person must look at the forge.
            state, reason = TaskState.NEEDS_PERSON, f"it was being delivered, and may have been; since then: {reason}"
        end = Settlement(state, reason, result, tier=decision.tier, wait=decision.wait)
        await self._store.settle(claim, end)

    async def _asked(self, claim: Claim, outcome: Outcome) -> Outcome:
        """The outcome with what the broker knows of it: only where the engine's memory of a delivery was lost."""
        word = await self._begin(claim).standing()
        return outcome if word is None else outcome.model_copy(update={"verdict": word})

    async def _decide(self, claim: Claim, result: AttemptResult) -> lifecycle.Decision:
        spent = (await self._store.view(claim.task.id)).spent
        ladder = () if claim.task.request.tier else self._ladder
        return lifecycle.decide(claim.attempt, result, claim.task.budget, spent, ladder)

    async def _ours(self, attempt: str) -> bool:
        """Whether a run is still this host's, as far as the database says; asked before anything is begun or kept."""
        claim = self._claims.get(attempt)
        if claim is None or self._membership.lost:
            return False
        try:
            await self._insist(lambda: self._store.leases.check(claim))
        except StaleClaimError:
            return False
        return True

    def _steps(self, attempt: str) -> int:
        """What an attempt has got done by now, its earlier lives included: its model calls."""
        if attempt in self._runs:
            return self._runs[attempt].ledger.own().steps
        claim = self._claims.get(attempt)
        return claim.attempt.spent.steps if claim else 0

    async def _flow(self, attempt: str) -> str:
        """What the engine runs: make the attempt and, where the judgement says so, deliver it."""
        claim = self._claims.get(attempt)
        if claim is None:
            raise asyncio.CancelledError  # nobody here asked for it
        try:
            return (await self._work(claim)).model_dump_json()
        except (StoreAwayError, StaleClaimError) as error:
            log.warning("attempt %s stops: %s", attempt, error)
            await self._engine.park(attempt)
            raise asyncio.CancelledError from error

    async def _work(self, claim: Claim) -> Outcome:
        name = claim.attempt.id
        async with self._slots if name not in self._delivering else nullcontext():
            run = self._runs[name] = self._begin(claim)
            result = await run.make()
            decision = await self._decide(claim, result)
            if decision.kind != "deliver":
                return Outcome(result=result)
            # Before the database says so: a pause that came a moment earlier must not stop what is handed over by then.
            self._delivering.add(name)
            if not await self._store.deliver(claim, decision.reason):
                self._delivering.discard(name)
                return Outcome(result=cancelled(result))
        self._woken.set()
        return await run.deliver(result)
