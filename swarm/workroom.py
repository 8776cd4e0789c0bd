"""The work phase inside its sandbox: let the strategy work within the budget, and never let go of what it made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pool.errors import ContextOverflowError
from sandbox.base import Sandbox
from sandbox.errors import WorkspaceError
from sandbox.trees.sealing import Furniture
from sandbox.trees.workspace import Workspace
from sandbox.types import MIB, SealedTree
from swarm.budgets.ledger import BudgetLedger
from swarm.errors import BudgetExceededError, StaleClaimError, StoreError, TaskError
from swarm.faults import broken, fault_of
from swarm.store.rows import Claim, Kept
from swarm.store.snapshots import Beginning
from swarm.store.store import Store
from swarm.store.verbs import Stand
from swarm.types import AttemptResult, Conclusion, Ending, Sealed
from swarm.work import Strategy, Work

LAST_SAVE = 30.0  # seconds that a cancelled attempt may take to save what it has
LAST_WORD = 10.0  # seconds of them that the database may take
SAVE_LIMIT = 64 * MIB  # new content of one save; more than that no broker takes
SAVES_LIMIT = 512 * MIB  # of all saves of one attempt in this process, so that an agent cannot fill the daemon's disk

log = logging.getLogger(__name__)


def salvage_ref(attempt: str) -> str:
    """Where an attempt's work is kept, in the trusted git directory of its repository."""
    return f"refs/salvage/{attempt}"


def fork_ref(task: str) -> str:
    """Where the work is kept that a forked task begins with."""
    return f"refs/forks/{task}"


def left_ref(sandbox: str) -> str:
    """Where work is kept that came too late to be its attempt's own."""
    return f"refs/left/{sandbox}"


def salvage_words(attempt: str) -> str:
    """What the commit says that keeps an attempt's work."""
    return f"Salvage of attempt {attempt}"


def sealed_facts(tree: SealedTree) -> Sealed:
    """What is remembered of a sealed tree; its objects are in git."""
    return Sealed(base=tree.base, tree=tree.tree, files=tree.files, left_out=tree.left_out, changed=tree.changed)


class Quota:
    """What an attempt's saves may still put on the daemon's disk, in bytes."""

    def __init__(self, left: int = SAVES_LIMIT) -> None:
        self._left = left
        self._last = ""

    @property
    def spent(self) -> bool:
        """Whether no further save in passing is due."""
        return self._left <= 0

    def knows(self, sealed: SealedTree) -> bool:
        """Whether this is what was kept last."""
        return sealed.tree == self._last

    def count(self, sealed: SealedTree) -> None:
        """Count what is kept now; what was kept already costs nothing."""
        if not self.knows(sealed):
            self._last = sealed.tree
            self._left -= len(sealed.pack)


@dataclass(frozen=True)
class Room:
    """An open sandbox with everything that saving its workspace takes. ``limit`` is in bytes.

    ``furniture`` was put there by the repository's set-up and is no part of the work.
    """

    claim: Claim
    base: str
    sandbox: Sandbox
    workspace: Workspace
    store: Store
    limit: int
    lock: asyncio.Lock
    quota: Quota
    furniture: Furniture | None = None

    async def save_in_passing(self) -> None:
        """Save unless the saves of this attempt have used up their room; the last save is always made."""
        if not self.quota.spent:
            await self.save()

    async def save(self) -> SealedTree:
        """Seal the workspace as it is now into the attempt's salvage ref."""
        async with self.lock:
            sealed = await self.seal()
            await self.commit(sealed)
            return sealed

    async def save_anyhow(self) -> None:
        """The same where it may be too late: then the work is kept beside the attempt's, in nobody's way."""
        async with self.lock:
            sealed = await self.seal()
            try:
                async with asyncio.timeout(LAST_WORD):
                    await self.commit(sealed)
            except (StaleClaimError, StoreError, TimeoutError):
                ref = left_ref(self.sandbox.name)
                await self.workspace.keep(ref, sealed, salvage_words(self.claim.attempt.id))
                log.warning("work of attempt %s is kept under %s", self.claim.attempt.id, ref)

    async def seal(self) -> SealedTree:
        """The workspace as it is now."""
        return await self.workspace.seal(self.base, self.sandbox.export(), limit=self.limit, furniture=self.furniture)

    async def commit(self, sealed: SealedTree) -> None:
        """Make it what the attempt goes on from. Raises StaleClaimError and StoreError."""
        # A worker that was replaced must not put its tree over its successor's.
        await self.store.leases.check(self.claim)
        ref = salvage_ref(self.claim.attempt.id)
        kept = Kept(ref, sealed.tree, self.sandbox.name)
        if not self.quota.knows(sealed):
            await self.workspace.keep(ref, sealed, salvage_words(self.claim.attempt.id))
            await self.store.snapshots.keep(self.claim, kept, sealed.pack, sealed.base)
            self.quota.count(sealed)
        # The journal's line is written either way: what changed before it, and changed back, is saved as well.
        await self.store.salvaged(self.claim, kept)


async def found(workspace: Workspace, store: Store, repository: str, ref: str) -> SealedTree | None:
    """What is kept under a reference: as this host's git folder has it or, newer, a database that hosts share.

    Raises WorkspaceError where the commit that it was made on is not here.
    """
    here = await workspace.sealed_at(ref)
    there = await store.snapshots.of(ref, repository) if store.shared else None
    if there is None or (here is not None and here.tree == there.entry.tree):
        return here
    sealed = await workspace.take_tree(there.pack, there.entry.base, there.entry.tree)
    await workspace.keep(ref, sealed, salvage_words(there.entry.attempt))
    return sealed


async def found_tree(workspace: Workspace, store: Store, repository: str, ref: str) -> str | None:
    """The tree alone of what `found` finds, for whoever needs no pack of it. Raises WorkspaceError as that does."""
    if not store.shared:
        return await workspace.tree_at(ref)
    sealed = await found(workspace, store, repository, ref)
    return sealed.tree if sealed else None


async def keep_for_fork(workspace: Workspace, store: Store, stand: Stand, task: str) -> Beginning:
    """Keep an attempt's work, as it stood, for a task that is forked from it. Raises TaskError where it is gone."""
    sealed = await found(workspace, store, stand.request.repository, stand.salvage)
    if sealed is None:
        raise TaskError(f"the work under {stand.salvage} is gone", f"fork another attempt: swarm show {stand.task}")
    sealed = await _as_it_stood(workspace, stand, sealed)
    await workspace.keep(fork_ref(task), sealed, f"Work that task {task} begins with")
    return Beginning(fork_ref(task), sealed.base, sealed.tree, sealed.pack)


async def _as_it_stood(workspace: Workspace, stand: Stand, last: SealedTree) -> SealedTree:
    if stand.tree == last.tree:
        return last
    if stand.tree is None:
        return await workspace.unchanged(last.base) if stand.named else last
    try:
        return await workspace.sealed(last.base, stand.tree)
    except WorkspaceError as error:
        if stand.named:
            raise TaskError("the work as it was at that step is gone", "fork without a step") from error
        # Saved once more meanwhile, on another host. As after a crash between a save and its line: it edits again.
        return last


async def work_in(
    room: Room, strategy: Strategy, work: Work, ledger: BudgetLedger, silent: Callable[[], float] = lambda: 0.0
) -> AttemptResult:
    """Run the strategy to its end, whatever end that is, leaving the sealing of a good one to the caller.

    ``silent`` tells for how many seconds neither a model nor a tool has said anything.

    A fault is a value here, with a last save behind it. Raises CancelledError after a last save, and StoreError and
    StaleClaimError, after which nothing of this attempt counts.
    """
    try:
        return AttemptResult(conclusion=await conclude(strategy, work, ledger, silent))
    except asyncio.CancelledError:
        await save_quietly(room)
        raise
    except (StoreError, StaleClaimError):
        raise
    except Exception as error:  # whatever breaks a strategy, the task must end in a state
        log.warning("attempt %s: %s", work.attempt, error, exc_info=error)
        return broken(fault_of(error))


async def save_quietly(room: Room) -> None:
    """Save what can be saved, in bounded time and without a word: the attempt is ending for another reason.

    Where the attempt is not ours any more, or nobody can tell, the work is kept beside it.
    """
    try:
        async with asyncio.timeout(LAST_SAVE):
            await room.save_anyhow()
    except Exception as error:  # noqa: BLE001 - the reason why the attempt ends matters more than this
        log.warning("attempt %s: the last save failed: %s", room.claim.attempt.id, error)


async def conclude(
    strategy: Strategy, work: Work, ledger: BudgetLedger, silent: Callable[[], float] = lambda: 0.0
) -> Conclusion:
    """The strategy's conclusion, or the limit that it ran into. Raises whatever breaks a strategy."""
    idle = ledger.budget.idle
    try:
        ledger.insist()
        async with asyncio.timeout(ledger.seconds_left()) as limit, _listening(silent, idle) as quiet:
            return await strategy.work(work)
    except BudgetExceededError as error:
        return _ended("limit_hit", str(error), error.limit)
    except ContextOverflowError as error:
        return _ended("gave_up", f"the task does not fit the model's window: {error}")
    except TimeoutError:
        if quiet.expired():
            return _ended("limit_hit", f"for {idle:g} s no model answered and no tool said anything", "task.idle")
        if not limit.expired():
            raise
        late = ledger.late()
        return _ended("limit_hit", str(late), late.limit)


@asynccontextmanager
async def _listening(silent: Callable[[], float], idle: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Breaks the block off with a TimeoutError once ``idle`` seconds have gone by in silence; never for None."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None
    async with asyncio.timeout(None) as quiet:

        def look() -> None:
            nonlocal timer
            left = (idle or 0.0) - silent()
            if left <= 0:
                quiet.reschedule(loop.time())
            else:
                timer = loop.call_later(left, look)

        if idle is not None:
            timer = loop.call_later(idle, look)
        try:
            yield quiet
        finally:
            if timer is not None:
                timer.cancel()


def _ended(ending: Ending, summary: str, limit: str = "") -> Conclusion:
    return Conclusion(ending=ending, summary=summary, limit=limit)
