"""One try at a task: prepare, work, seal, check, deliver, each journaled as it happens and remembered by the engine.

Long, since the phases of one try share what they are made with, and are read in their order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sandbox.base import Sandbox
from sandbox.images.prepare import Prepared as Opened
from sandbox.images.setup import SetUp
from sandbox.trees.workspace import Workspace
from sandbox.types import SandboxSpec, SealedTree, SelfTest
from swarm.agents import agent_of
from swarm.budgets.ledger import BudgetLedger
from swarm.budgets.prices import Prices
from swarm.checks import Rules, check
from swarm.conversation.lessons import Tried, after_failed, goes_on, tried
from swarm.delivery import BrokerClient, Offer, compose, mirror_request, proposal_name
from swarm.errors import BrokerError, StaleClaimError, StoreError, TaskError
from swarm.faults import broken, fault_of
from swarm.knowledge.briefing import Briefer, Ground
from swarm.knowledge.proving import DISCOVER
from swarm.known import KNOWN, Briefing, Known
from swarm.lifecycle import pauses
from swarm.manners import Manners
from swarm.prompts import after_needed
from swarm.pulse import COMMAND, MODEL, ROOM, Pulse, PulsingChat, PulsingSandbox
from swarm.rooms import Rooms, Tree
from swarm.runs import Engine
from swarm.store.journal import surviving
from swarm.store.rows import Claim
from swarm.store.store import Store
from swarm.strategies.auto import AUTO
from swarm.types import AttemptResult, CheckReport, Experience, Failure, Fault, Frozen, Outcome, Phase, Step, Task
from swarm.work import Chat, Models, Strategy, Work, unnoted
from swarm.workroom import (
    SAVE_LIMIT,
    Quota,
    Room,
    fork_ref,
    found,
    found_tree,
    salvage_ref,
    save_quietly,
    sealed_facts,
    work_in,
)

_PARTS = {MODEL: "pool", COMMAND: "tools"}  # of where time went, for what was broken off

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What an attempt is made with; `wiring` names the concrete ones.

    ``workspace`` gives the trusted git directory of a repository, ``strategy`` a way of working by its name,
    ``test_command`` the operator's or the person's command for a task. ``proved`` is what the sandboxes proved at
    start. ``note(session, failed)`` is told of each check. ``models`` serves agents that run inside a sandbox,
    ``agent_setup`` gives the commands that install the one which a strategy is. ``stall`` is after how many seconds
    without a sign of life an attempt is stuck, ``delivery`` for how many one waits for a broker that is away.
    ``prices`` is what model calls cost, ``clock`` what the wall clock of budgets is read from. ``briefer`` tells what a
    repository says of itself and finds test commands; ``ladder`` are the tiers, the weakest first. ``manners`` are what
    is set for models.
    """

    rooms: Rooms
    spec: SandboxSpec
    pool: Chat
    broker: BrokerClient
    workspace: Callable[[str], Workspace]
    strategy: Callable[[str], Strategy]
    test_command: Callable[[Task], str | None]
    proved: SelfTest | None = None
    note: Callable[[str, bool], None] = unnoted
    models: Models | None = None
    agent_setup: Callable[[str], tuple[str, ...]] = lambda _: ()
    stall: float = 0.0
    delivery: float = 0.0
    prices: Prices = field(default_factory=Prices)
    clock: Callable[[], float] = time.monotonic
    briefer: Briefer | None = None
    ladder: tuple[str, ...] = ()
    manners: Mapping[str, Manners] = field(default_factory=dict)


class Prepared(Frozen):
    """What the prepare phase leaves behind."""

    base: str = ""
    fault: Fault | None = None


class Checked(Frozen):
    """What the check phase leaves behind."""

    report: CheckReport | None = None
    fault: Fault | None = None


class AttemptRun:
    """An attempt under way in this process. A later process makes another one for the same claim and goes on.

    Working and sealing are one phase of the engine, since a sandbox does not outlive its process; the journal tells
    them apart.
    """

    def __init__(self, parts: Parts, store: Store, engine: Engine, claim: Claim) -> None:
        self._parts = parts
        self._store = store
        self._engine = engine
        self._claim = claim
        self._task = claim.task
        self._workspace = parts.workspace(claim.task.request.repository)
        self._ref = claim.attempt.salvage or salvage_ref(claim.attempt.id)
        self._said: set[str] = set()
        self._tried: tuple[Tried, ...] = ()
        self._built_on: Tried | None = None
        self._outcomes: tuple[Experience, ...] = ()
        self.pulse = Pulse(parts.stall)
        name = claim.attempt.id
        self.ledger = BudgetLedger(
            claim.task.budget,
            claim.before,
            claim.attempt.spent,
            lambda spent: store.budgets.spend(name, spent, self.ledger.heard),
            prices=parts.prices,
            clock=parts.clock,
        )

    async def make(self) -> AttemptResult:
        """Everything up to the judgement: prepare, work, seal, check. Raises StaleClaimError and StoreError."""
        result = self._claim.carried or await self._worked()
        if result.sealed is None or not result.sealed.changed or result.conclusion.ending != "finished":
            return result
        if result.report is None or result.report.verdict != "passed":
            checked = Checked.model_validate_json(await self._engine.phase("check", self._check))
            result = result.model_copy(update={"report": checked.report, "fault": checked.fault})
        return result.model_copy(update={"fault": None}) if result.report else result

    async def deliver(self, result: AttemptResult) -> Outcome:
        """Hand the sealed tree to the broker, once however often this is called.

        A broker that is away is waited for, in no phase, so that the wait outlives this process.
        """

        async def act() -> str:
            return (await self._deliver(result)).model_dump_json()

        outcome = Outcome.model_validate_json(await self._engine.phase("deliver", act))
        for number, pause in enumerate(pauses(self._parts.delivery), start=2):
            if outcome.fault is None or outcome.fault.kind != "passing":
                break
            await self._engine.timer(pause)
            outcome = Outcome.model_validate_json(await self._engine.phase(f"deliver-{number}", act))
        return outcome

    async def standing(self) -> dict[str, Any] | None:
        """The broker's word on what was handed to it before; None where it has none, or does not answer."""
        try:
            word = await self._parts.broker.proposal(proposal_name(self._task, self._claim.refusals))
        except BrokerError as error:
            log.warning("attempt %s: %s", self._claim.attempt.id, error)
            return None
        return word.model_dump(mode="json") if word else None

    async def _worked(self) -> AttemptResult:
        prepared = Prepared.model_validate_json(await self._engine.phase("prepare", self._prepare))
        if prepared.fault:
            return broken(prepared.fault)

        async def act() -> str:
            return (await self._work(prepared.base)).model_dump_json()

        return AttemptResult.model_validate_json(await self._engine.phase("work", act))

    # Phases

    async def _prepare(self) -> str:
        async with self._phase(Phase.PREPARE):
            try:
                return Prepared(base=await self._base()).model_dump_json()
            except (StoreError, StaleClaimError):
                raise
            except Exception as error:  # noqa: BLE001 - every ending of a phase is a value
                return Prepared(fault=await self._fault(error)).model_dump_json()

    async def _base(self) -> str:
        """The base commit, in the trusted git directory."""
        await self._draw()
        wanted = self._task.request.base_commit
        if wanted and await self._workspace.has(wanted):
            return wanted
        have = tuple((await self._workspace.refs("refs/bases/")).values())

        async def take(commit: str, pack: AsyncIterator[bytes]) -> None:
            await self._workspace.take_pack(pack, commit)

        got = await self._parts.broker.mirror(mirror_request(self._task, have), take)
        if wanted and got != wanted and not await self._workspace.has(wanted):
            raise BrokerError(f"the capability is for base {got}, the task for {wanted}", "submit the task again")
        return wanted or got

    async def _require(self, base: str) -> None:
        """Have the base here, also where another host had prepared for the work. Raises BrokerError."""
        if await self._workspace.has(base):
            return
        got = await self._base()
        if not await self._workspace.has(base):
            why = f"the work stands on {base}, and what can be had is {got}"
            raise BrokerError(why, "let it go on at the host that began it, or submit the task again")

    async def _draw(self) -> None:
        """The task's own right, where it came with a standing one: on the base as it is now."""
        request = self._task.request
        if request.standing:
            right = await self._parts.broker.draw(request.capability, self._task.id)
            given = right.capability, right.base, right.base_commit
            self._task = await self._store.needs.granted(self._claim, *given)

    async def _told(self) -> Task:
        """The task as its agent is told of it, with what became of the tasks that it needs and of earlier attempts."""
        request = self._task.request
        told = request.instructions
        if request.needs:
            told = after_needed(told, await self._store.needs.results(self._task.id))
        told = after_failed(told, self._tried, self._built_on)
        return self._task.model_copy(update={"request": request.model_copy(update={"instructions": told})})

    async def _learn(self) -> None:
        """What earlier attempts teach one that begins afresh, and whose work it builds on, if any's was good."""
        if self._claim.source is not None:
            return  # it goes on from another one, whose whole conversation it knows
        self._tried = tried(await self._store.tries.before(self._task.id, self._claim.attempt.number))
        better = goes_on(self._tried)
        tree = await self._tree_of(better.salvage) if better is not None and better.salvage else None
        if better is None or tree is None:
            return
        self._built_on = better
        # As a line of the journal it is what a fork or a replay of this attempt begins with as well.
        await self._record_once("salvage", {"ref": better.salvage, "tree": tree})

    async def _tree_of(self, ref: str) -> str | None:
        return await found_tree(self._workspace, self._store, self._task.request.repository, ref)

    async def _work(self, base: str) -> AttemptResult:
        past = await self._past()
        self.ledger.heard(await self._store.budgets.standings(self._claim.attempt.id))
        try:
            await self._require(base)
            await self._learn()
            if self._claim.attempt.strategy == AUTO:
                self._outcomes = await self._store.outcomes.of(self._task.request.repository)
            async with self._phase(Phase.WORK):
                briefing = await self._briefing(base, past)
                async with self._room(base) as room:
                    return await self._worked_in(room, past, briefing)
        except (StoreError, StaleClaimError):
            raise
        except Exception as error:  # noqa: BLE001 - a sandbox that does not open or close is a value as well
            return broken(await self._fault(error))
        finally:
            self._parts.pool.end_session(self._claim.attempt.id)
            self.ledger.flush()

    async def _worked_in(self, room: Room, past: tuple[Step, ...], briefing: Briefing) -> AttemptResult:
        strategy = self._parts.strategy(self._claim.attempt.strategy)
        bench = self._bench(room, past, await self._told(), briefing)
        result = await work_in(room, strategy, bench, self.ledger, lambda: self.pulse.silent)
        await self._journal_broken_off()
        if result.fault:
            await self._journal_fault(result.fault)
        return await self._seal(room, result)

    async def _seal(self, room: Room, result: AttemptResult) -> AttemptResult:
        if result.fault:
            await save_quietly(room)
            return result
        async with self._phase(Phase.SEAL):
            sealed = sealed_facts(await room.save())
        await self._record_once("sealed", sealed.model_dump(mode="json"))
        return result.model_copy(update={"sealed": sealed})

    async def _check(self) -> str:
        async with self._phase(Phase.CHECK):
            try:
                sealed = await self._sealed()
                command = await self._test_command(sealed.base)
                report = await check(self._fresh(sealed), sealed, command, rules=self._rules())
                self._doubt(report)
            except (StoreError, StaleClaimError):
                raise
            except Exception as error:  # noqa: BLE001 - the work is sealed; whatever broke here, it can be checked again
                return Checked(fault=await self._fault(error)).model_dump_json()
        keys = {"verdict", "reason", "fixed", "broken", "weakened", "flaky"}
        await self._record("report", report.model_dump(mode="json", include=keys))
        self.ledger.flush()
        return Checked(report=report).model_dump_json()

    async def _deliver(self, result: AttemptResult) -> Outcome:
        async with self._phase(Phase.DELIVER):
            try:
                sealed = await self._sealed()
                await self._store.leases.check(self._claim)
                verdict = await self._parts.broker.propose(compose(self._offer(result, sealed)), sealed.pack)
            except (StoreError, StaleClaimError):
                raise
            except Exception as error:  # noqa: BLE001 - the work is kept; a person can have it delivered again
                return Outcome(result=result, fault=await self._fault(error))
        word = verdict.model_dump(mode="json")
        told = {key: value for key, value in word.items() if key != "kind"}
        await self._record_once(verdict.kind, told)
        return Outcome(result=result, verdict=word)

    # Means

    def _offer(self, result: AttemptResult, sealed: SealedTree) -> Offer:
        return Offer(
            task=self._task,
            attempt=self._claim.attempt,
            conclusion=result.conclusion,
            report=result.report,
            spent=self.ledger.spent(),
            sealed=sealed_facts(sealed),
            proved=self._parts.proved,
            refusals=self._claim.refusals,
        )

    @asynccontextmanager
    async def _room(self, base: str) -> AsyncIterator[Room]:
        """A sandbox with the base in it, or with what an earlier life of this attempt had saved."""
        saved = await self._saved()
        limit = min(self._parts.spec.limits.disk, SAVE_LIMIT)
        tree = self._tree(saved or base, base)
        async with self._opening("work", base, tree, self._installed()) as prepared:
            inside = prepared.sandbox, self._workspace, self._store, limit, asyncio.Lock(), Quota(), prepared.furniture
            yield Room(self._claim, base, *inside)

    async def _briefing(self, base: str, past: tuple[Step, ...]) -> Briefing:
        """What is known of the repository, read once: whatever a conversation began with, it goes on with."""
        if (before := Briefing.of(past)) is not None:
            return before
        command = await self._test_command(base)
        known = Known()
        if self._parts.briefer is not None:
            known = await self._parts.briefer.known(self._ground(base), self._task.request.paths)
        briefing = Briefing(known=known, test_command=command)
        await self._record(KNOWN, briefing.model_dump(mode="json"))
        return briefing

    async def _test_command(self, base: str) -> str | None:
        """The operator's or the person's command; where that is to be found, one that was seen to run on the base."""
        given = self._parts.test_command(self._task)
        if given is None or given.strip() != DISCOVER or self._parts.briefer is None:
            return given
        fresh = partial(self._base_room, base)
        found, before = await self._parts.briefer.command(self._ground(base), fresh)
        text = f"the tests are run with {found.command}, which {found.why} suggests: {found.told}"
        if not before or text not in self._said:
            self._said.add(text)
            await self._record("note", {"text": text} | ({} if before else {"seconds": found.seconds}))
        return found.command

    def _doubt(self, report: CheckReport) -> None:
        """A command that was found and cannot even be started any more is looked for again next time."""
        if self._parts.briefer is not None and report.base is not None and report.base.exit_code in {126, 127}:
            self._parts.briefer.shelf.drop(self._task.request.repository)

    def _ground(self, base: str) -> Ground:
        return Ground(self._workspace, self._task.request.repository, base)

    def _rules(self) -> Rules:
        if self._parts.briefer is None:
            return Rules(released=self._task.request.changes_tests)
        return self._parts.briefer.rules(self._task.request.repository, released=self._task.request.changes_tests)

    @asynccontextmanager
    async def _base_room(self, base: str) -> AsyncIterator[Sandbox]:
        async with self._opening("check", base, self._tree(base, base)) as prepared:
            yield PulsingSandbox(prepared.sandbox, self.pulse, self._spec("check", base).limits.wall)

    def _bench(self, room: Room, past: tuple[Step, ...], told: Task, briefing: Briefing) -> Work:
        pinned = self._task.request.tier is not None
        return Work(
            task=told,
            attempt=self._claim.attempt.id,
            tier=self._claim.attempt.tier,
            sandbox=PulsingSandbox(room.sandbox, self.pulse, self._spec("work", room.base).limits.wall),
            pool=PulsingChat(self._parts.pool, self.pulse),
            ledger=self.ledger,
            test_command=briefing.test_command,
            record=self._record,
            save=room.save_in_passing,
            past=past,
            note=self._parts.note,
            models=self._parts.models,
            inbox=lambda after: self._store.messages.of(self._task.id, after=after),
            known=briefing.known,
            ladder=() if pinned else self._parts.ladder,
            manners=self._parts.manners,
            outcomes=self._outcomes,
        )

    async def _saved(self) -> str | None:
        """The tree that an earlier life of this attempt kept, else what the one kept that it goes on from.

        Raises TaskError where something was kept and is gone: the agent would remember changes that are not there.
        """
        refs = [salvage_ref(self._claim.attempt.id)]
        recorded = self._claim.attempt.salvage
        if (source := self._claim.source) is not None:
            refs += [fork_ref(self._task.id)] if source.task != self._task.id else []
            refs += [source.salvage] if source.salvage else []
            recorded = recorded or source.salvage
        refs += [self._built_on.salvage] if self._built_on and self._built_on.salvage else []
        for ref in refs:
            if tree := await self._tree_of(ref):
                return tree
        if recorded:
            raise TaskError(f"the work under {recorded} is gone", f"begin afresh: swarm retry {self._task.id}")
        return None

    async def _past(self) -> tuple[Step, ...]:
        """All that this attempt knows from before, as far as its salvage goes; empty when nothing had begun."""
        lines = await self._store.leases.past(self._claim.attempt.id)
        begun = [line for line in lines if line.kind == "phase_started" and line.data["phase"] == Phase.WORK.value]
        if not begun:
            return ()
        own = begun[-1].attempt == self._claim.attempt.id
        why = "the work was stopped in the middle" if own else f"it goes on from attempt {begun[-1].attempt}"
        await self._record("note", {"text": "interrupted", "reason": why})
        return surviving(lines)

    def _fresh(self, sealed: SealedTree) -> Callable[[str], AbstractAsyncContextManager[Sandbox]]:
        @asynccontextmanager
        async def fresh(tree: str) -> AsyncIterator[Sandbox]:
            async with self._opening("check", sealed.base, self._tree(tree, sealed.base)) as prepared:
                yield PulsingSandbox(prepared.sandbox, self.pulse, self._spec("check", sealed.base).limits.wall)

        return fresh

    async def _heard(self, words: str, seconds: float | None) -> None:
        """What a sandbox waits for, said once: each check opens more of them."""
        if words not in self._said:
            self._said.add(words)
            await self._record("note", {"text": words} | ({} if seconds is None else {"seconds": seconds}))

    @asynccontextmanager
    async def _opening(self, kind: str, base: str, tree: Tree, installed: SetUp | None = None) -> AsyncIterator[Opened]:
        """A sandbox; that it is being made ready is a sign of life."""
        async with AsyncExitStack() as stack:
            with self.pulse.under_way("a sandbox being made ready", ROOM):
                room = self._parts.rooms.open(self._spec(kind, base), tree, installed, self._heard)
                prepared = await stack.enter_async_context(room)
            yield prepared

    def _tree(self, tree: str, base: str) -> Tree:
        return Tree(self._workspace, self._task.request.repository, base, tree)

    def _installed(self) -> SetUp | None:
        """What installs an agent that runs inside, before it has a task."""
        setup = self._parts.agent_setup(self._claim.attempt.strategy)
        return SetUp(commands=setup, inputs=()) if setup else None

    def _spec(self, kind: str, base: str) -> SandboxSpec:
        """What is asked for, with whose it is: a later daemon saves the work that it finds in one left behind."""
        labels = {
            "task": self._task.id,
            "attempt": self._claim.attempt.id,
            "repository": self._task.request.repository,
            "base": base,
            "kind": kind,
        }
        inside = self._agent_inside() if kind == "work" else {}
        return self._parts.spec.model_copy(update={"labels": labels} | inside)

    def _agent_inside(self) -> dict[str, Any]:
        """What an agent that runs inside needs: the way to the models, and one command as long as the task may take."""
        if agent_of(self._claim.attempt.strategy) is None:
            return {}
        limits = self._parts.spec.limits
        longest = max(limits.wall, self._task.budget.wall)
        return {"network": "model", "limits": limits.model_copy(update={"wall": longest})}

    async def _sealed(self) -> SealedTree:
        repository = self._task.request.repository
        if self._store.shared and (snapshot := await self._store.snapshots.of(self._ref, repository)) is not None:
            await self._require(snapshot.entry.base)
        sealed = await found(self._workspace, self._store, repository, self._ref)
        if sealed is None:
            failure = f"the sealed tree under {self._ref} is gone from the daemon's git folder"
            raise LookupError(failure)
        return sealed

    @asynccontextmanager
    async def _phase(self, phase: Phase) -> AsyncIterator[None]:
        await self._record("phase_started", {"phase": phase.value})
        started = time.monotonic()
        ok = False
        try:
            yield
            ok = True
        finally:
            seconds = round(time.monotonic() - started, 4)
            await self._record("phase_ended", {"phase": phase.value, "seconds": seconds, "ok": ok})

    async def _journal_broken_off(self) -> None:
        """Where the time went that a limit or a fault took from a call or a command, of which there is no line."""
        broken_off = self.pulse.broken_off
        for what in sorted(_PARTS.keys() & broken_off):
            seconds = broken_off[what]
            data = {"text": f"{what} was broken off", "seconds": round(seconds, 3), "part": _PARTS[what]}
            await self._record("note", data)

    async def _record(self, kind: str, data: dict[str, Any]) -> None:
        self.pulse.wrote()
        if kind == "message":
            await self._store.messages.told(self._claim, int(data["seq"]), data)
        else:
            await self._store.record(self._claim, kind, data)

    async def _record_once(self, kind: str, data: dict[str, Any]) -> None:
        self.pulse.wrote()
        await self._store.record_once(self._claim, kind, data)

    async def _fault(self, error: Exception) -> Fault:
        log.warning("attempt %s: %s", self._claim.attempt.id, error, exc_info=error)
        fault = fault_of(error)
        await self._journal_fault(fault)
        return fault

    async def _journal_fault(self, fault: Fault) -> None:
        failure: Failure = fault.failure
        await self._record("fault", {"kind": fault.kind, **failure.model_dump()})
