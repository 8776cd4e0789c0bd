"""Makes the tries of a run, several at a time, within the run's bounds, and goes on where an earlier life stood."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sandbox.errors import ImageError, SandboxUnavailableError, SetUpError
from sandbox.trees.workspace import Workspace
from swarm.config import RepositoryConfig
from swarm.errors import EvaluationError
from swarm.evaluation.case import Case
from swarm.evaluation.ground import base_of
from swarm.evaluation.keeping import wasted
from swarm.evaluation.plan import Plan, Planned, changes
from swarm.evaluation.reference import REFERENCE
from swarm.evaluation.results import TRIES, Folder, Standing, Try
from swarm.evaluation.trying import Bench, Means, Trial
from swarm.faults import fault_of
from swarm.types import Budget

_SCRATCH = "scratch-"
HOPELESS = 5  # times in a row that the machinery failed, in a try or at proving a case, after which no try is begun


@dataclass(frozen=True)
class Bounds:
    """Of the whole run: tries at a time, and tokens and seconds after which no further try is begun (None: no bound).

    What is under way then goes on to the end of its own budget where tokens are spent, and is broken off where the
    time is over.
    """

    jobs: int = 1
    tokens: int | None = None
    seconds: float | None = None


def _untold(_row: Try | Standing) -> None:
    """For those whom nobody watches."""


@dataclass
class _Ready:
    """A case's bench and standing, made once; ``left`` counts the tries that are still to come."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    bench: Bench | None = None
    standing: Standing | None = None
    left: int = 0


class Runner:
    """One run, in its folder. ``told`` hears of each case that cannot judge and of each try as it ends."""

    def __init__(
        self,
        plan: Plan,
        cases: Mapping[str, Case],
        means: Means,
        folder: Folder,
        bounds: Bounds = Bounds(),
        told: Callable[[Try | Standing], None] = _untold,
    ) -> None:
        self._plan = plan
        self._cases = cases
        self._means = means
        self._folder = folder
        self._bounds = bounds
        self._told = told
        self._standings: dict[str, Standing] = {}
        self._ready: dict[str, _Ready] = {}
        self._tokens = 0
        self._broken: list[str] = []

    async def run(self) -> str:
        """Make every try that is not finished; why it stopped before that, empty where it did not.

        Raises EvaluationError where the folder holds another run, and SandboxUnavailableError. A try that is cancelled
        leaves no result: it is made again when the run is gone on with.
        """
        with self._folder.held():
            begin(self._folder, self._plan)
            finished = {row.key for row in self._folder.tries() if row.outcome != "broken"}
            self._standings = {
                case: standing
                for case, standing in self._folder.standings().items()
                if standing.digest == self._plan.cases.get(case) and not (standing.blocked or standing.fault)
            }
            before = self._folder.tries()
            lost = wasted(self._folder.path / TRIES, {row.folder for row in before})
            self._tokens = sum(row.tokens for row in before) + lost
            waiting = [planned for planned in self._plan.tries() if planned.key not in finished]
            counts = Counter(planned.case for planned in waiting)
            self._ready = {case: _Ready(left=count) for case, count in counts.items()}
            for left in self._folder.path.glob(f"{_SCRATCH}*"):  # by a life that was killed
                shutil.rmtree(left, ignore_errors=True)
            await self._means.insist_unseen()
            with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=self._folder.path) as scratch:
                return await self._all(iter(waiting), Path(scratch))

    async def _all(self, waiting: Iterator[Planned], scratch: Path) -> str:
        stopped: list[str] = []

        async def work() -> None:
            while not stopped:
                if why := self._spent():
                    stopped.append(why)
                elif (planned := next(waiting, None)) is None:
                    return
                else:
                    await self._try(planned, scratch)

        try:
            async with asyncio.timeout(self._bounds.seconds) as limit, asyncio.TaskGroup() as group:
                for _ in range(self._bounds.jobs):
                    group.create_task(work())
        except TimeoutError:
            if not limit.expired():
                raise
            return f"the run's {self._bounds.seconds:g} seconds are over"
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return stopped[0] if stopped else ""

    def _spent(self) -> str:
        """Why no further try is begun; empty while one may be."""
        if len(self._broken) >= HOPELESS:
            return f"the machinery failed {len(self._broken)} times in a row, the last time since {self._broken[-1]}"
        bound = self._bounds.tokens
        return f"{self._tokens} of the run's {bound} tokens are spent" if bound and self._tokens >= bound else ""

    async def _try(self, planned: Planned, scratch: Path) -> None:
        ready = self._ready[planned.case]
        try:
            async with ready.lock:
                standing = await self._made(ready, self._cases[planned.case], scratch)
            unsolvable = planned.way.strategy == REFERENCE and self._cases[planned.case].solution is None
            if ready.bench is not None and not standing.broken and not unsolvable:
                folder = self._folder.path / TRIES / planned.folder
                trial = Trial(ready.bench, planned, budget_of(self._cases[planned.case], self._plan.budget), folder)
                row = await trial.run(standing)
                self._tokens += row.tokens
                self._broken = [*self._broken, row.reason] if row.outcome == "broken" else []
                self._folder.add(row)
                self._told(row)
        finally:
            ready.left -= 1
            if not ready.left and ready.bench is not None:
                await asyncio.to_thread(shutil.rmtree, ready.bench.workspace_folder, ignore_errors=True)
                ready.bench = None

    async def _made(self, ready: _Ready, case: Case, scratch: Path) -> Standing:
        """The case's bench, and its standing: as kept from before, else proved now."""
        if ready.standing is None:
            began = time.monotonic()
            standing = await self._proved(ready, case, scratch)
            if standing is not self._standings.get(case.id):
                standing = standing.model_copy(update={"seconds": round(time.monotonic() - began, 3)})
                self._folder.add(standing)
                self._told(standing)
            self._broken += [standing.broken] if standing.fault else []
            ready.standing = standing
        return ready.standing

    async def _proved(self, ready: _Ready, case: Case, scratch: Path) -> Standing:
        """Raises SandboxUnavailableError where no case can be tried here; all else that fails is this case's alone."""
        before = self._standings.get(case.id)
        unfit = partial(Standing, case=case.id, digest=case.digest)
        if case.blocked:
            return unfit(blocked=True, broken=case.blocked)
        if before is not None and before.broken:
            return before
        try:
            ready.bench = await bench_of(case, self._means, scratch)
            court = ready.bench.court({"task": ready.bench.name, "kind": "check"})
            return before or await court.prove()
        except EvaluationError as error:
            return unfit(broken=str(error))
        except (ImageError, SetUpError, SandboxUnavailableError) as error:
            if isinstance(error, SandboxUnavailableError) and case.image is None:
                raise
            return unfit(blocked=True, broken=str(error))
        except Exception as error:  # noqa: BLE001 - whatever broke the machinery, the other cases go on
            return unfit(fault=True, broken=fault_of(error).text)


def begin(folder: Folder, plan: Plan) -> None:
    """Begin a run in a folder, or go on with it. Raises EvaluationError where another run or anything else is there."""
    before = folder.plan()
    if before is None:
        if others := folder.others():
            raise EvaluationError(
                f"{folder.path} holds no run of an evaluation, but {others[0]}", "name another folder with --out"
            )
        folder.begin(plan)
        return
    if different := changes(before, plan):
        told = "; ".join(different)
        raise EvaluationError(
            f"the run in {folder.path} was begun otherwise: {told}",
            "give it the settings that it was begun with, or begin another one with --out",
        )


async def bench_of(case: Case, means: Means, scratch: Path) -> Bench:
    """A case made ready, in a git directory of its own under ``scratch``. Raises EvaluationError."""
    name = f"case-{hashlib.sha256(case.id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    means.repositories[name] = RepositoryConfig(
        image=case.image, setup=case.setup, setup_network=case.setup_network, test_command=case.test_command or None
    )
    workspace_folder = scratch / f"{name}.git"
    workspace = Workspace(workspace_folder)
    base = await base_of(case, workspace, limit=means.spec.limits.disk)
    return Bench(case, name, workspace, workspace_folder, base, means)


def budget_of(case: Case, run: Budget) -> Budget:
    """What one try at a case may spend: the case's own word where it has one, else the run's. Pure."""
    own = case.allowance.model_dump(exclude_none=True)
    return run.model_copy(update=own | {"attempts": 1})
