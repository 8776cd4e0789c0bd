"""Saves the work in sandboxes that outlived their daemon, before anything else touches the attempts it belongs to."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sandbox.errors import SandboxError
from sandbox.reaping import unsaved
from sandbox.register import UNSURE
from sandbox.trees.sealing import Furniture
from sandbox.trees.workspace import Workspace
from sandbox.types import LeftBehind
from swarm.store.rows import Kept
from swarm.store.store import Store
from swarm.types import Attempt, Step
from swarm.workroom import SAVE_LIMIT, left_ref, salvage_ref, salvage_words

ONE, ALL = 60.0, 300.0  # seconds that saving one workspace, and all of them at one start, may take
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owed:
    """Whose work lies in a sandbox, as its labels say."""

    task: str
    attempt: str
    repository: str
    base: str


class Rescuer:
    """Keeps the `Rescue` protocol: returning lets the sandbox go, raising keeps it for the next start.

    A workspace that the attempt's last save came from, or that was opened after it, is newer than that save and takes
    its place. Any other is kept beside it, under refs/left/. Work of an attempt that has ended was saved by its end.
    """

    def __init__(
        self,
        store: Store,
        workspace: Callable[[str], Workspace],
        *,
        furniture: Callable[[Mapping[str, str]], Furniture | None] = lambda _: None,
        limit: int = SAVE_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._workspace = workspace
        self._furniture = furniture
        self._limit = limit
        self._clock = clock
        self._until = clock() + ALL

    async def __call__(self, left: LeftBehind, export: AsyncIterator[bytes]) -> None:
        """Save one. Raises what stood in the way, after telling the log."""
        if not unsaved(left):
            return
        try:
            async with asyncio.timeout(max(0.0, min(ONE, self._until - self._clock()))):
                await self._save(left, owed(left), export)
        except Exception as error:
            why = str(error) or type(error).__name__
            log.warning("%s stays, with work of attempt %s: %s", left.name, left.labels.get("attempt", "?"), why)
            raise

    async def _save(self, left: LeftBehind, whose: Owed, export: AsyncIterator[bytes]) -> None:
        view = await self._store.view(whose.task)
        attempt = _attempt(view.attempts, whose.attempt)
        place = place_of(left, await self._lines(whose))
        if attempt.ended is not None or place == "sealed":
            return
        if view.task.request.repository != whose.repository:
            raise SandboxError(f"task {whose.task} is about {view.task.request.repository}, not {whose.repository}")
        workspace = self._workspace(whose.repository)
        furniture = self._furniture(left.labels)
        sealed = await workspace.seal(whose.base, export, limit=self._limit, furniture=furniture)
        ref = salvage_ref(attempt.id)
        before = await workspace.sealed_at(ref)
        if sealed.tree == (before.tree if before else sealed.base_tree):
            return
        if place == "beside":
            ref = left_ref(left.name)
        await workspace.keep(ref, sealed, salvage_words(attempt.id))
        kept = Kept(ref, sealed.tree, left.name)
        await self._store.rescued(whose.task, attempt.id, kept, newest=place == "newest")
        log.warning("work of attempt %s was saved from %s under %s", attempt.id, left.name, ref)

    async def _lines(self, whose: Owed) -> list[Step]:
        """The attempt's whole journal, page by page."""
        lines: list[Step] = []
        while page := await self._store.steps(whose.task, after=lines[-1].seq if lines else 0, attempt=whose.attempt):
            lines += page
        return lines


def owed(left: LeftBehind) -> Owed:
    """The labels read; a reference and a folder are named after them. Raises SandboxError for any that cannot be."""
    labels = left.labels
    found = Owed(*(labels.get(key, "") for key in ("task", "attempt", "repository", "base")))
    names = (found.task, found.attempt, found.repository)
    if not all(_NAME.match(name) for name in names) or not _COMMIT.match(found.base):
        raise SandboxError(f"its labels do not say whose work it holds: {sorted(labels)}")
    return found


def place_of(left: LeftBehind, lines: Sequence[Step]) -> Literal["newest", "beside", "sealed"]:
    """Where a workspace stands among the attempt's saves, by its journal.

    ``newest`` goes beyond the last save: that came from it, or was made before it began. ``sealed`` tells that the work
    was done and is kept whole, which nothing may replace. What nothing is known of may be half a checkout.
    """
    last = next((line for line in reversed(lines) if line.kind in {"salvage", "sealed"}), None)
    if last is not None and last.kind == "sealed":
        return "sealed"
    if UNSURE in left.labels:
        return "beside"
    return "newest" if last is None or last.data.get("sandbox") == left.name or last.at < left.created else "beside"


def _attempt(attempts: Sequence[Attempt], name: str) -> Attempt:
    for attempt in attempts:
        if attempt.id == name:
            return attempt
    raise SandboxError(f"no attempt {name} is known")
