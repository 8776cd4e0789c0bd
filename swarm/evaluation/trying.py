"""One try at one case: a sandbox with the base, a strategy at work in it, its tree sealed, then judged elsewhere."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.base import Sandbox
from sandbox.errors import WorkspaceError
from sandbox.images.prepare import Prepared
from sandbox.images.setup import SetUp
from sandbox.trees.workspace import Workspace
from sandbox.types import Command, SandboxSpec, SealedTree
from swarm.agents import agent_of
from swarm.budgets.ledger import BudgetLedger
from swarm.budgets.prices import Prices
from swarm.config import RepositoryConfig
from swarm.errors import EvaluationError
from swarm.evaluation.case import Case
from swarm.evaluation.judge import Court, Kind
from swarm.evaluation.keeping import CHANGE, JUDGE, Journal, cached_of, kept, split_of
from swarm.evaluation.plan import Planned
from swarm.evaluation.reference import SCRIPTED, ScriptedModel, replaced, scripted
from swarm.evaluation.results import NAMES, Judged, Standing, Try
from swarm.faults import fault_of
from swarm.knowledge.briefing import Ground, known_of
from swarm.known import KNOWN, Briefing, Known
from swarm.manners import Manners
from swarm.rooms import Rooms, Tree
from swarm.types import Budget, Conclusion, Phase, Spent, Task, TaskRequest
from swarm.work import Chat, Models, Strategy, Work, unnoted
from swarm.workroom import SAVE_LIMIT, conclude, sealed_facts

_FILE = 32_000_000  # bytes of one file of a base that a reference solution edits
_DIFF = 2_000_000  # characters of a change that are kept for people
_WORDS = 1000  # characters of a reason or a summary


@dataclass(frozen=True)
class Means:
    """What tries are made with. ``repositories`` is filled by cases: how the sandboxes of each are made.

    ``pool`` is None where no way asks a model. ``ladder`` are tiers that a strategy may ask beside its own. ``unseen``
    are places of this machine with hidden tests in them, which no sandbox may see.
    """

    rooms: Rooms
    repositories: dict[str, RepositoryConfig]
    spec: SandboxSpec
    strategy: Callable[[str], Strategy]
    pool: Chat | None = None
    models: Models | None = None
    agent_setup: Callable[[str], tuple[str, ...]] = lambda _: ()
    prices: Prices = field(default_factory=Prices)
    ladder: tuple[str, ...] = ()
    manners: Mapping[str, Manners] = field(default_factory=dict)
    note: Callable[[str, bool], None] = unnoted
    unseen: tuple[Path, ...] = ()
    clock: Callable[[], float] = time.time

    @property
    def limit(self) -> int:
        """Bytes of new content that a sealed tree may hold."""
        return min(self.spec.limits.disk, SAVE_LIMIT)

    async def insist_unseen(self) -> None:
        """Raises EvaluationError where a sandbox sees what only the judge may know: a system's folder is in it."""
        if not self.unseen:
            return
        async with self.rooms.backend.open(self.spec.model_copy(update={"labels": {"kind": "check"}})) as sandbox:
            for path in self.unseen:
                if (await sandbox.run(Command(argv=("test", "-e", str(path))))).exit_code == 0:
                    raise EvaluationError(
                        f"agents would see the hidden tests: {path} is part of the sandboxes' system",
                        "install agent-swarm into a virtual environment outside of it, or give sandbox.image",
                    )


@dataclass(frozen=True)
class Bench:
    """A case made ready: its base in a git directory of its own. ``name`` is what the rooms know it by."""

    case: Case
    name: str
    workspace: Workspace
    workspace_folder: Path
    base: str
    means: Means

    def court(self, labels: dict[str, str]) -> Court:
        """Where it is judged."""

        @asynccontextmanager
        async def fresh(tree: str, kind: Kind) -> AsyncIterator[Sandbox]:
            limits = self.means.spec.limits  # the hidden tests may take longer than a command of an agent's
            limits = limits.model_copy(update={"wall": max(limits.wall, self.case.hidden.seconds)})
            async with self.open(tree, labels | {"kind": kind}, limits=limits) as prepared:
                yield prepared.sandbox

        return Court(self.case, self.workspace, self.base, fresh, self.means.limit)

    @asynccontextmanager
    async def open(
        self, tree: str, labels: dict[str, str], more: SetUp | None = None, **changes: Any
    ) -> AsyncIterator[Prepared]:
        """A sandbox with a tree of the case in it."""
        spec = self.means.spec.model_copy(update={"labels": labels, **changes})
        async with self.means.rooms.open(spec, Tree(self.workspace, self.name, self.base, tree), more) as prepared:
            yield prepared


class Trial:
    """One try under way. Its sandboxes carry its labels, so that an agent inside asks models at its cost alone."""

    def __init__(self, bench: Bench, planned: Planned, budget: Budget, folder: Path) -> None:
        self._bench = bench
        self._means = bench.means
        self._planned = planned
        self._budget = budget
        self._folder = folder
        self._journal = Journal(folder, planned.task, planned.attempt, self._means.clock)
        self._spent = Spent()
        self._conclusion: Conclusion | None = None
        self._sealed: SealedTree | None = None
        self._judged: Judged | None = None

    async def run(self, standing: Standing) -> Try:
        """Make the try and judge it; broken machinery is a value, of the outcome "broken". Raises EvaluationError.

        The tree that it leaves is judged however it ended: what counts is the work, and ``ending`` tells of the rest.
        """
        began, broken = self._means.clock(), ""
        try:
            self._sealed = await self._work()
            self._judged = await self._judge(self._sealed, standing)
            await self._keep(self._sealed, self._judged)
        except EvaluationError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever broke the machinery, the other tries go on
            fault = fault_of(error)
            broken = fault.text
            await self._journal.record("fault", fault.model_dump(mode="json"))
        return self._told(began, broken)

    async def _work(self) -> SealedTree:
        """The work phase in a sandbox of its own, and the tree that it left."""
        bench, means = self._bench, self._means
        strategy = await self._strategy()
        await self._journal.record("attempt", self._facts())
        await self._begin(Phase.PREPARE)
        known = await self._known()
        async with bench.open(bench.base, self._labels("work"), self._installed(), **self._inside()) as room:
            await self._end(Phase.PREPARE)
            ledger = BudgetLedger(self._budget, Spent(), Spent(), self._count, prices=means.prices)
            await self._begin(Phase.WORK)
            try:
                self._conclusion = await conclude(strategy, self._bench_work(room.sandbox, ledger, known), ledger)
            finally:
                ledger.flush()
                if means.pool is not None:
                    means.pool.end_session(self._planned.attempt)
            await self._end(Phase.WORK)
            await self._begin(Phase.SEAL)
            export, furniture = room.sandbox.export(), room.furniture
            sealed = await bench.workspace.seal(bench.base, export, limit=means.limit, furniture=furniture)
        await self._end(Phase.SEAL)
        await self._journal.record("sealed", sealed_facts(sealed).model_dump(mode="json"))
        return sealed

    async def _judge(self, sealed: SealedTree, standing: Standing) -> Judged:
        await self._begin(Phase.CHECK)
        judged = await self._bench.court(self._labels("check")).judge(sealed, standing)
        ending = self._conclusion.ending if self._conclusion else ""
        word = {"verdict": "passed" if judged.solved else "failed", "reason": judged.reason, "ending": ending}
        await self._end(Phase.CHECK)
        await self._journal.record("report", word)
        return judged

    async def _keep(self, sealed: SealedTree, judged: Judged) -> None:
        """Leave for people what was changed, and what the hidden tests printed."""
        try:
            diff = await self._bench.workspace.diff(sealed.base, sealed.tree) if sealed.changed else ""
        except WorkspaceError as error:
            diff = f"(the change cannot be shown: {error})"
        kept(self._folder / CHANGE, diff[:_DIFF])
        kept(self._folder / JUDGE, f"{judged.reason or 'solved'}\n\n{judged.tail}")

    async def _strategy(self) -> Strategy:
        name, bench = self._planned.way.strategy, self._bench
        if name not in SCRIPTED:
            return self._means.strategy(name)
        paths = [path.encode("utf-8", "surrogateescape") for path in replaced(bench.case)]
        found = {path: await bench.workspace.file(bench.base, path, limit=_FILE) for path in paths}
        base = {path.decode("utf-8", "surrogateescape"): data for path, data in found.items() if data is not None}
        return scripted(name, bench.case, base)

    async def _known(self) -> Known:
        """What the base says of itself, as an attempt of the daemon is told of it."""
        bench, case = self._bench, self._bench.case
        ground = Ground(bench.workspace, bench.name, bench.base)
        known = await known_of(ground, case.look_first, self._means.repositories[bench.name])
        briefing = Briefing(known=known, test_command=case.test_command)
        await self._journal.record(KNOWN, briefing.model_dump(mode="json"))
        return known

    def _bench_work(self, sandbox: Sandbox, ledger: BudgetLedger, known: Known) -> Work:
        means, planned, case = self._means, self._planned, self._bench.case
        request = TaskRequest(
            repository=self._bench.name,
            instructions=case.statement,
            title=case.title or None,
            test_command=case.test_command,
            strategy=planned.way.strategy if planned.way.strategy not in SCRIPTED else "agent",
            tier=planned.way.tier,
            paths=case.look_first,
        )
        return Work(
            task=Task(id=planned.task, request=request, budget=self._budget, created=0.0),
            attempt=planned.attempt,
            tier=planned.way.tier,
            sandbox=sandbox,
            pool=means.pool or ScriptedModel(iter(())),
            ledger=ledger,
            test_command=case.test_command,
            record=self._journal.record,
            save=_unsaved,
            note=means.note,
            models=means.models,
            known=known,
            ladder=means.ladder,
            manners=means.manners,
        )

    def _facts(self) -> dict[str, Any]:
        """What a reader of the journal alone has to know of the try."""
        planned, case = self._planned, self._bench.case
        way = {"strategy": planned.way.strategy, "tier": planned.way.tier}
        return {"number": planned.number, **way, "title": case.heading, "case": planned.case}

    def _labels(self, kind: str) -> dict[str, str]:
        planned = self._planned
        return {"task": planned.task, "attempt": planned.attempt, "repository": self._bench.name, "kind": kind}

    def _installed(self) -> SetUp | None:
        """What installs an agent that runs inside, before it has a task."""
        setup = self._means.agent_setup(self._planned.way.strategy)
        return SetUp(commands=setup, inputs=()) if setup else None

    def _inside(self) -> dict[str, Any]:
        """What an agent that runs inside needs: the way to the models, and one command as long as the try may take."""
        if agent_of(self._planned.way.strategy) is None:
            return {}
        limits = self._means.spec.limits
        return {"network": "model", "limits": limits.model_copy(update={"wall": max(limits.wall, self._budget.wall)})}

    def _count(self, spent: Spent) -> None:
        self._spent = spent

    async def _begin(self, phase: Phase) -> None:
        await self._journal.record("phase_started", {"phase": phase.value})

    async def _end(self, phase: Phase) -> None:
        await self._journal.record("phase_ended", {"phase": phase.value, "ok": True})

    def _told(self, began: float, broken: str) -> Try:
        conclusion, judged, spent = self._conclusion, self._judged, self._spent
        solved = judged is not None and judged.solved
        words = broken or (judged.reason if judged else "") or (conclusion.summary if conclusion else "")
        return Try(
            case=self._planned.case,
            strategy=self._planned.way.strategy,
            tier=self._planned.way.tier,
            number=self._planned.number,
            key=self._planned.key,
            outcome="broken" if broken else "solved" if solved else "unsolved",
            ending="infra_failed" if broken or conclusion is None else conclusion.ending,
            reason="" if solved else words[:_WORDS],
            said=conclusion.summary[:_WORDS] if conclusion else "",
            limit=conclusion.limit if conclusion else "",
            used=conclusion.strategy if conclusion else "",
            model=conclusion.model if conclusion else "",
            steps=spent.steps,
            tokens=spent.tokens,
            prompt=spent.prompt_tokens,
            cached=cached_of(self._journal.steps),
            completion=spent.tokens - spent.prompt_tokens,
            gpu_seconds=round(spent.gpu_seconds, 4),
            money=spent.money,
            split=split_of(self._journal.steps),
            began=began,
            files=self._sealed.files[:NAMES] if self._sealed else (),
            judged=judged,
            folder=self._folder.name,
        )


async def _unsaved() -> None:
    """A try that is broken off is begun anew, so nothing is saved in passing."""
