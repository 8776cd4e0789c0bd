"""Gathers what is known of each entry, asks the broker what is merged, and lets go of what `pruning` says may go."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from swarm.config import SalvageConfig
from swarm.errors import BrokerError
from swarm.salvage.entries import TRANSCRIPTS, Entry
from swarm.salvage.pruning import Fate, Known, fates
from swarm.salvage.shelf import Shelf
from swarm.store.store import Store
from swarm.types import TaskView

Merged = Callable[[str], Awaitable[bool]]
"""Whether the forge shows the pull request of a capability merged. Raises BrokerError where that cannot be told."""


class Pruner:
    """Over a shelf and its database. ``merged`` asks the broker; what it cannot say counts as not merged.

    ``writer`` is the same database, open for writing, where other hosts' snapshots are to go as well.
    """

    def __init__(self, shelf: Shelf, store: Store, merged: Merged, writer: Store | None = None) -> None:
        self._shelf = shelf
        self._store = store
        self._writer = writer
        self._merged = merged
        self._said: dict[str, bool] = {}
        self.unasked: str = ""

    async def plan(self, config: SalvageConfig, entries: Sequence[Entry]) -> tuple[Fate, ...]:
        """What would go and what stays, each with its reason. Nothing is changed. Raises StoreError, WorkspaceError."""
        known = {entry.ref: await self._known(entry) for entry in entries}
        return fates(entries, known, config, time.time())

    async def go(self, fate: Fate) -> bool:
        """Let go of one entry and its transcript, unless something has happened to its task since."""
        entry = fate.entry
        again = await self._known(entry)
        if again.state is None or not again.state.final or again.open or again.awaited:
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
        attempt = next((each for each in view.attempts if each.id == entry.attempt), None)
        keeping = self._shelf.keeping(entry.repository)
        return Known(
            state=view.state,
            open=attempt is not None and attempt.ended is None,
            merged=await self._is_merged(view, entry),
            ended=view.updated,
            awaited=await self._shelf.awaited(view),
            size=await keeping.weight(entry.commit, entry.base) if entry.commit else entry.size,
        )

    async def _is_merged(self, view: TaskView, entry: Entry) -> bool:
        """Whether this tree is what the broker delivered, and the forge shows it merged."""
        if entry.kind != "attempt" or not view.commit or not await self._delivered(view, entry):
            return False
        if view.task.id not in self._said:
            task = await self._store.task(view.task.id)
            try:
                self._said[view.task.id] = await self._merged(task.request.capability)
            except BrokerError as error:
                self.unasked = str(error)
                self._said[view.task.id] = False
        return self._said[view.task.id]

    async def _delivered(self, view: TaskView, entry: Entry) -> bool:
        """Whether the entry's tree is what its attempt had sealed, and that the broker gave a receipt for it."""
        trees = set()
        receipt = False
        for step in await self._shelf.steps(entry, view):
            if step.kind == "sealed":
                trees.add(step.data.get("tree"))
            receipt = receipt or step.kind == "receipt"
        return receipt and entry.tree in trees
