"""Everything that is salvaged, found anew each time: from the git folders on disk, and from the database where it is.

Nothing is remembered in between and no daemon is asked, so that it works just when it is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.trees.keeping import Change, Keeping
from sandbox.trees.workspace import Workspace
from sandbox.types import SealedTree
from swarm.errors import TaskNotFoundError
from swarm.salvage import entries
from swarm.salvage.entries import ABOUT, FORKS, LEFT, SALVAGE, TRANSCRIPTS, About, Entry
from swarm.store.snapshots import Entry as Snapshot
from swarm.store.store import Store
from swarm.types import Step, TaskView
from swarm.workroom import found

MOST = 50_000  # snapshots of other hosts that are listed
RECENT = 1_000  # of the newest tasks whose work on other hosts is listed


@dataclass(frozen=True)
class Found:
    """An entry with everything that is known of it. ``sealed`` is None where only a transcript was left."""

    entry: Entry
    sealed: SealedTree | None
    about: About | None
    steps: tuple[Step, ...]
    view: TaskView | None


class Shelf:
    """Over the folder of git directories and, where it can be opened, the database."""

    def __init__(self, folder: Path, store: Store | None) -> None:
        self._folder = folder
        self._store = store

    @property
    def knows(self) -> bool:
        """Whether the database is there."""
        return self._store is not None

    def keeping(self, repository: str) -> Keeping:
        """The references of a repository."""
        return Keeping(self._folder / f"{repository}.git")

    def workspace(self, repository: str) -> Workspace:
        """The trusted git directory of a repository."""
        return Workspace(self._folder / f"{repository}.git")

    async def entries(self) -> tuple[Entry, ...]:
        """All entries, the newest first, with what the database says of their tasks. Raises WorkspaceError."""
        listed: list[Entry] = []
        for folder in sorted(self._folder.glob("*.git")):
            kept = await Keeping(folder).kept(SALVAGE, LEFT, TRANSCRIPTS)
            listed += entries.entries_of(folder.name.removesuffix(".git"), kept)
        if self._store is not None:
            held = await self._snapshots() if self._store.shared else []
            newer = {each.ref: each for each in held}
            listed = [entries.newest(entry, newer.get(entry.ref)) for entry in listed]
            here = {entry.ref for entry in listed}
            listed += [entry for entry in _elsewhere(held, here) if entry.kind != "fork"]
            known = await self._store.views(None, RECENT)
            listed += entries.known_only(known, {entry.ref for entry in listed})
        return tuple(sorted(listed, key=lambda entry: entry.at, reverse=True))

    async def beginnings(self) -> tuple[Entry, ...]:
        """What forked tasks begin with: no work of theirs, so it is not among `entries`. Raises WorkspaceError."""
        listed: list[Entry] = []
        for folder in sorted(self._folder.glob("*.git")):
            listed += entries.forks_of(folder.name.removesuffix(".git"), await Keeping(folder).kept(FORKS))
        if self._store is not None and self._store.shared:
            here = {entry.ref for entry in listed}
            listed += [entry for entry in _elsewhere(await self._snapshots(), here) if entry.kind == "fork"]
        return tuple(listed)

    async def told(self, listed: Iterable[Entry]) -> tuple[Entry, ...]:
        """The entries with their task's state and title: from the database, else from their transcripts."""
        views: dict[str, TaskView | None] = {}
        told = []
        for entry in listed:
            if entry.task not in views:
                views[entry.task] = await self.view(entry.task)
            if view := views[entry.task]:
                told.append(entries.with_view(entry, view))
            else:
                told.append(entries.with_about(entry, await self._about(entry)))
        return tuple(told)

    async def one(self, wanted: str) -> Entry:
        """The one entry that a person means; of a task's several the newest. Raises TaskNotFoundError."""
        fits = entries.matching(await self.entries(), wanted)
        if not fits:
            raise TaskNotFoundError(f"nothing is salvaged under {wanted}", "see what is: swarm salvage list")
        if len({entry.task for entry in fits}) > 1:
            names = ", ".join(entry.id for entry in fits[:4])
            raise TaskNotFoundError(f"{wanted} may mean several: {names}", "give more of the id")
        return next((entry for entry in fits if entry.tree), fits[0])

    async def found(self, wanted: str) -> Found:
        """Everything about one entry. Raises TaskNotFoundError and WorkspaceError."""
        entry = await self.one(wanted)
        view = await self.view(entry.task)
        sealed = await self.sealed(entry)
        steps = await self.steps(entry, view)
        told = entries.with_view(entry, view) if view else entries.with_about(entry, await self._about(entry))
        return Found(told, sealed, await self._about(entry), steps, view)

    async def sealed(self, entry: Entry) -> SealedTree | None:
        """The tree that was left; None where there is none. Raises WorkspaceError."""
        if not entry.tree:
            return None
        if entry.place == "database" and self._store is not None:
            return await found(self.workspace(entry.repository), self._store, entry.repository, entry.ref)
        return await self.workspace(entry.repository).sealed_at(entry.ref)

    async def changes(self, sealed: SealedTree, repository: str) -> tuple[Change, ...]:
        """What differs from its base, both sides whole. Raises WorkspaceError."""
        return await self.keeping(repository).changes(sealed.base, sealed.tree)

    async def steps(self, entry: Entry, view: TaskView | None) -> tuple[Step, ...]:
        """The attempt's journal: from the database, else from its transcript."""
        if self._store is not None and view is not None:
            found: list[Step] = []
            while page := await self._store.steps(
                view.task.id, after=found[-1].seq if found else 0, attempt=entry.attempt
            ):
                found += page
            return tuple(found)
        if not entry.transcript:
            return ()
        return entries.lines_of(await self.keeping(entry.repository).files(entry.transcript))

    async def view(self, task: str) -> TaskView | None:
        """What the database knows of a task; None without it."""
        if self._store is None:
            return None
        try:
            view = await self._store.view(task)
        except TaskNotFoundError:
            return None
        return view if view.task.id == task else None

    async def awaited(self, view: TaskView) -> tuple[str, ...]:
        """Unfinished tasks of the same lineage, which may go on from the entry's work."""
        if self._store is None:
            return ()
        lineage = await self._store.lineage(view.task.id)
        return tuple(each.task.id for each in lineage if each.task.id != view.task.id and not each.state.final)

    async def _about(self, entry: Entry) -> About | None:
        if not entry.transcript:
            return None
        tree = f"{entry.transcript}^{{tree}}"
        raw = await self.workspace(entry.repository).file(tree, ABOUT.encode(), limit=1_000_000)
        return entries.about_of(raw)

    async def _snapshots(self) -> list[Snapshot]:
        """All snapshots of all hosts, without their content."""
        found: list[Snapshot] = []
        while self._store is not None and len(found) < MOST:
            after = (found[-1].repository, found[-1].ref) if found else ("", "")
            page = await self._store.snapshots.entries(after=after)
            if not page:
                break
            found += page
        return found


def _elsewhere(held: Iterable[Snapshot], here: Collection[str]) -> Iterator[Entry]:
    """What the database alone has."""
    for each in held:
        if each.ref not in here and (entry := entries.of_snapshot(each)) is not None:
            yield entry
