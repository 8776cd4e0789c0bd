"""The work phase inside its sandbox: let the strategy work within the budget, and never let go of what it made."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from pool.errors import ContextOverflowError
from sandbox.base import Sandbox
from sandbox.trees.sealing import Furniture
from sandbox.trees.workspace import Workspace
from sandbox.types import MIB, SealedTree
from swarm.budgets.ledger import BudgetLedger
from swarm.errors import BudgetExceededError, StaleClaimError, StoreError
from swarm.faults import broken, fault_of
from swarm.store.rows import Claim, Kept
from swarm.store.store import Store
from swarm.types import AttemptResult, Conclusion, Ending, Sealed
from swarm.work import Strategy, Work

LAST_SAVE = 30.0  # seconds that a cancelled attempt may take to save what it has
SAVE_LIMIT = 64 * MIB  # new content of one save; more than that no broker takes
SAVES_LIMIT = 512 * MIB  # of all saves of one attempt in this process, so that an agent cannot fill the daemon's disk

log = logging.getLogger(__name__)


def salvage_ref(attempt: str) -> str:
    """Where an attempt's work is kept, in the trusted git directory of its repository."""
    return f"refs/salvage/{attempt}"


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
            sealed = await self.workspace.seal(
                self.base, self.sandbox.export(), limit=self.limit, furniture=self.furniture
            )
            # A worker that was replaced must not put its tree over its successor's.
            await self.store.check(self.claim)
            ref = salvage_ref(self.claim.attempt.id)
            if not self.quota.knows(sealed):
                await self.workspace.keep(ref, sealed, salvage_words(self.claim.attempt.id))
                self.quota.count(sealed)
            # The journal's line is written either way: what changed before it, and changed back, is saved as well.
            await self.store.salvaged(self.claim, Kept(ref, sealed.tree, self.sandbox.name))
            return sealed


async def work_in(room: Room, strategy: Strategy, work: Work, ledger: BudgetLedger) -> AttemptResult:
    """Run the strategy to its end, whatever end that is, leaving the sealing of a good one to the caller.

    A fault is a value here, with a last save behind it. Raises CancelledError after a last save, and StoreError and
    StaleClaimError, after which nothing of this attempt counts.
    """
    try:
        return AttemptResult(conclusion=await _conclude(strategy, work, ledger))
    except asyncio.CancelledError:
        await save_quietly(room)
        raise
    except (StoreError, StaleClaimError):
        raise
    except Exception as error:  # whatever breaks a strategy, the task must end in a state
        log.warning("attempt %s: %s", work.attempt, error, exc_info=error)
        return broken(fault_of(error))


async def save_quietly(room: Room) -> None:
    """Save what can be saved, in bounded time and without a word: the attempt is ending for another reason."""
    try:
        async with asyncio.timeout(LAST_SAVE):
            await room.save()
    except Exception as error:  # noqa: BLE001 - the reason why the attempt ends matters more than this
        log.warning("attempt %s: the last save failed: %s", room.claim.attempt.id, error)


async def _conclude(strategy: Strategy, work: Work, ledger: BudgetLedger) -> Conclusion:
    """The strategy's conclusion, or the limit that it ran into."""
    try:
        async with asyncio.timeout(ledger.seconds_left()) as limit:
            return await strategy.work(work)
    except BudgetExceededError as error:
        return _ended("limit_hit", str(error))
    except ContextOverflowError as error:
        return _ended("gave_up", f"the task does not fit the model's window: {error}")
    except TimeoutError:
        if not limit.expired():
            raise
        return _ended("limit_hit", f"the {ledger.budget.wall:.0f} seconds of wall clock are spent")


def _ended(ending: Ending, summary: str) -> Conclusion:
    return Conclusion(ending=ending, summary=summary)
