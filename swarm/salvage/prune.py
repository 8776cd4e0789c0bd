"""Gathers what is known of each entry, asks the broker what is merged, and lets go of what `pruning` says may go."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from swarm.config import SalvageConfig
from swarm.errors import BrokerError
from swarm.salvage.entries import TRANSCRIPTS, Entry
from swarm.salvage.pruning import Fate, Known, fates, needed
from swarm.salvage.shelf import Shelf
from swarm.store.store import Store
from swarm.types import Step, TaskView

Merged = Callable[[str], Awaitable[str | None]]
"""The broker's own commit that the forge shows merged for a capability; None where there is none, also where somebody
else had pushed to the branch. Raises BrokerError where that cannot be told."""


class Pruner:
    """Over a shelf and its database. ``merged`` asks the broker; what it cannot say counts as not merged.

    ``writer`` is the same database, open for writing, where other hosts' snapshots are to go as well.
    """

    def __init__(self, shelf: Shelf, store: Store, merged: Merged, writer: Store | None = None) -> None:
        self._shelf = shelf
        self._store = store
        self._writer = writer
        self._merged = merged
        self._said: dict[str, str | None] = {}
        self.unasked: str = ""

    async def plan(self, config: SalvageConfig, entries: Sequence[Entry]) -> tuple[Fate, ...]:
        """What would go and what stays, each with its reason. Nothing is changed. Raises StoreError, WorkspaceError."""
        known = {entry.ref: await self._known(entry) for entry in entries}
        return fates(entries, known, config, time.time())

    async def go(self, fate: Fate) -> bool:
        """Let go of one entry and its transcript, unless something has happened to its task since.

        What goes for being merged alone is asked of the broker once more.
        """
        entry = fate.entry
        self._said.pop(entry.task, None)
        again = await self._known(entry)
        if needed(again) or (fate.merged and not again.merged):
            return False
        keeping = self._shelf.keeping(entry.repository)
        wanted = {entry.ref} | ({f"{TRANSCRIPTS}{entry.attempt}"} if entry.kind == "attempt" else set())
        kept = {each.ref: each for each in await keeping.kept(*wanted)}
        if entry.commit and (entry.ref not in kept or kept[entry.ref].commit != entry.commit):
            return False
        for ref in wanted & kept.keys():
            await keeping.drop(kept[ref])
        if self._writer is not None and self._writer.shared:
            held = await self._writer.snapshots.of(entry.ref, entry.repository)
            if held is not None and held.entry.tree == entry.tree:
                await self._writer.snapshots.prune([held.entry])
        return True

    async def _known(self, entry: Entry) -> Known:
        view = await self._shelf.view(entry.task)
        if view is None:
            return Known(None)
        whose = [each for each in view.attempts if entry.kind == "fork" or each.id == entry.attempt]
        keeping = self._shelf.keeping(entry.repository)
        return Known(
            state=view.state,
            open=any(each.ended is None for each in whose),
            merged=await self._is_merged(view, entry),
            ended=view.updated,
            awaited=await self._shelf.awaited(view),
            only=entry.kind == "fork" and not any(each.salvage for each in whose),
            size=await keeping.weight(entry.commit, entry.base) if entry.commit else entry.size,
        )

    async def _is_merged(self, view: TaskView, entry: Entry) -> bool:
        """Whether the forge shows merged what the broker delivered of this very tree, and nothing else in its place.

        gastown PR#1182: a branch was merged, and what it had lost before was cleared away as merged. What a fork began
        with is merged with whatever was delivered of it: its parent's own work has a reference of its own.
        """
        if entry.kind == "left" or not view.commit:
            return False
        if entry.kind == "fork":
            return await self._told(view.task.id) == view.commit
        commits = delivered(await self._shelf.steps(entry, view), entry.tree)
        return bool(commits) and await self._told(view.task.id) in commits

    async def _told(self, task: str) -> str | None:
        """The commit that was merged for a task, asked once."""
        if task not in self._said:
            capability = (await self._store.task(task)).request.capability
            try:
                self._said[task] = await self._merged(capability)
            except BrokerError as error:
                self.unasked = str(error)
                self._said[task] = None
        return self._said[task]


def delivered(steps: Iterable[Step], tree: str) -> frozenset[str]:
    """The commits that the broker made of a tree, by the journal of the attempt that sealed it. Pure.

    A receipt may come late, after another tree was sealed: it is for the one that was there at the broker's first word
    on its proposal.
    """
    found: set[str] = set()
    proposed: dict[object, object] = {}
    sealed: object = None
    for step in steps:
        if step.kind == "sealed":
            sealed = step.data.get("tree")
        elif step.kind in {"waiting", "refusal", "receipt"}:
            about = proposed.setdefault(step.data.get("proposal"), sealed)
            if step.kind == "receipt" and about == tree:
                found.add(str(step.data.get("commit")))
    return frozenset(found)
