"""Keeps a transcript of every attempt beside its work, in git, and tidies the git folders while nothing runs.

A transcript is the attempt's journal under refs/transcripts/: the tree under refs/salvage/ stays what was sealed. It is
written at the attempt's end and now and then before, so that what a dead machine's disk holds tells its own story.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.trees.keeping import Keeping
from sandbox.trees.workspace import Workspace
from swarm.apart import apart
from swarm.errors import StoreAwayError
from swarm.salvage import entries, telling
from swarm.salvage.entries import ABOUT, LINES, TRANSCRIPTS
from swarm.store.store import Store
from swarm.types import Step, TaskView
from swarm.workroom import salvage_ref, salvage_words

PAUSE = 2.0  # seconds between two looks at what is to be written
BUSY = 30.0  # seconds of a start that belong to the attempts that go on
OFTEN = 600.0  # seconds between two parts of a transcript whose attempt still runs: each is some calls of git
OWED = 20_000  # attempts that are remembered as owed a part; what is forgotten is found again at the next start
CAUGHT = 1_000  # of the newest tasks that a start looks through
LAST = 10.0  # seconds that writing what is owed may take at the end
TIDY = 86400.0  # seconds between two tidyings of a git folder
QUIET = 60.0  # seconds without any work before one begins

log = logging.getLogger(__name__)


@dataclass
class _Owed:
    task: str
    due: float


class Upkeep:
    """Over the store and the folder of git directories. `heard` is told of each line of the journal.

    ``busy`` tells whether any attempt runs here.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        busy: Callable[[], bool] = lambda: True,
        often: float = OFTEN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._folder = folder
        self._busy = busy
        self._often = often
        self._clock = clock
        self._owed: dict[str, _Owed] = {}
        self._reached: dict[str, int] = {}
        self._quiet_since: float | None = None

    def heard(self, step: Step) -> None:
        """A line was written. Returns at once."""
        if step.attempt is None or (step.attempt not in self._owed and len(self._owed) >= OWED):
            return
        owed = self._owed.setdefault(step.attempt, _Owed(step.task, self._clock() + self._often))
        if step.kind == "state":  # it may have ended
            owed.due = 0.0

    async def run(self) -> None:
        """Write what is due until cancelled. Nothing that goes wrong here ends anything else."""
        until = self._clock() + BUSY
        await asyncio.sleep(PAUSE)
        while self._busy() and self._clock() < until:  # noqa: ASYNC110 - whatever runs here is another's
            await asyncio.sleep(PAUSE)
        await self._guarded(self.catch_up)
        while True:
            await asyncio.sleep(PAUSE)
            await self._guarded(self.write_due)
            await self._guarded(self.tidy_in_quiet)

    async def close(self) -> None:
        """Write what is owed still, in bounded time; a later start writes the rest."""
        try:
            async with asyncio.timeout(LAST):
                await self._guarded(lambda: self.write_due(all_of_it=True))
        except TimeoutError:
            log.info("the transcripts of %d attempts are left to the next start", len(self._owed))

    async def catch_up(self) -> None:
        """Look for attempts whose transcript does not reach their end, as after a crash."""
        for view in await self._store.views(None, CAUGHT):
            with apart(f"the transcripts of task {view.task.id}"):
                known = await self._whole(view.task.request.repository)
                for attempt in view.attempts:
                    if attempt.id not in known and len(self._owed) < OWED:
                        self._owed.setdefault(attempt.id, _Owed(view.task.id, 0.0))
        await self.write_due()

    async def write_due(self, *, all_of_it: bool = False) -> None:
        """Write the parts whose time has come; ``all_of_it`` at the end of the daemon's life."""
        now = self._clock()
        for name, owed in list(self._owed.items()):
            if owed.due <= now or all_of_it:
                del self._owed[name]
                try:
                    with apart(f"the transcript of attempt {name}"):
                        await self._write(owed.task, name)
                except StoreAwayError:
                    self._owed.setdefault(name, owed)
                    raise

    async def tidy_in_quiet(self) -> None:
        """Tidy one git folder whose time has come, once nothing has run for a while."""
        now = self._clock()
        if self._busy():
            self._quiet_since = None
            return
        self._quiet_since = self._quiet_since if self._quiet_since is not None else now
        if now - self._quiet_since < QUIET:
            return
        for folder in sorted(self._folder.glob("*.git")):
            stamp = folder / "agent-swarm-tidied"
            if not stamp.exists() or time.time() - stamp.stat().st_mtime > TIDY:
                with apart(f"the tidying of {folder.name}"):
                    stamp.touch()
                    await Keeping(folder).tidy()
                    return

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> None:
        try:
            with apart("the upkeep of what attempts left"):
                await act()
        except StoreAwayError as error:
            log.warning("the upkeep of what attempts left waits: %s", error)

    async def _write(self, task: str, name: str) -> None:
        view = await self._store.view(task)
        attempt = next((each for each in view.attempts if each.id == name), None)
        if attempt is None:
            return
        keeping = Keeping(self._folder / f"{view.task.request.repository}.git")
        base = view.task.request.base_commit
        if not keeping.there:
            if not base:
                return  # nothing is known of the repository, not even how it names objects; the database has the lines
            await keeping.create(sha256=len(base) == 64)
        last = await self._last(keeping, name)
        steps = await self._steps(task, name, last)
        about = telling.about(view, attempt, steps[-1].seq if steps else last)
        files = {ABOUT: about.model_dump_json(indent=1).encode()}
        if steps:
            files[f"{LINES}{steps[0].seq:012d}.jsonl"] = await asyncio.to_thread(entries.part, steps)
        await keeping.append(f"{TRANSCRIPTS}{name}", files, entries.words(about), anew=last == 0)
        self._reached[name] = about.last
        if attempt.ended is not None:
            self._reached.pop(name, None)
            if attempt.salvage is None:
                await self._keep_base(view, name)

    async def _last(self, keeping: Keeping, name: str) -> int:
        """The last line that the transcript has."""
        if name not in self._reached:
            while len(self._reached) >= OWED:
                del self._reached[next(iter(self._reached))]
            kept = await keeping.kept(f"{TRANSCRIPTS}{name}")
            self._reached[name] = max(1, entries.reach(kept[0].subject)[0]) if kept else 0
        return self._reached[name]

    async def _steps(self, task: str, name: str, after: int) -> list[Step]:
        found: list[Step] = []
        while page := await self._store.steps(task, after=found[-1].seq if found else after, attempt=name):
            found += page
        return found

    async def _keep_base(self, view: TaskView, name: str) -> None:
        """An attempt that ended before it changed anything leaves the tree that it began with."""
        workspace = Workspace(self._folder / f"{view.task.request.repository}.git")
        ref, base = salvage_ref(name), view.task.request.base_commit
        if not base or await workspace.refs(ref) or not await workspace.has(base):
            return
        source = entries.source(view, await self._store.steps(view.task.id, attempt=name, limit=10))
        sealed = await workspace.sealed_at(source) if source else await workspace.unchanged(base)
        if sealed is not None:
            await workspace.keep(ref, sealed, salvage_words(name))

    async def _whole(self, repository: str) -> frozenset[str]:
        kept = await Keeping(self._folder / f"{repository}.git").kept(TRANSCRIPTS)
        return frozenset(each.ref.removeprefix(TRANSCRIPTS) for each in kept if entries.reach(each.subject)[1])
