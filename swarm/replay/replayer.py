"""Replays a recorded attempt: fresh sandboxes, its own tools run for real, the answers of models as they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.images.prepare import Prepared
from sandbox.trees.keeping import Keeping
from sandbox.trees.workspace import Workspace
from sandbox.types import SandboxSpec
from swarm.budgets.sums import total
from swarm.errors import BudgetExceededError, ReplayError
from swarm.known import Briefing
from swarm.replay.compare import Difference
from swarm.replay.player import PATIENCE, Player, ReplayStopped
from swarm.replay.record import Life, Recording, chosen, hindrance, in_order, ladder, last_tree, lives, manners
from swarm.replay.verdict import Verdict
from swarm.rooms import Rooms, Tree
from swarm.strategies.turns import in_turn
from swarm.types import Spent
from swarm.work import Strategy, Work
from swarm.workroom import SAVE_LIMIT

REPLAYED = "replayed"  # what the rooms know its repository by: never a name out of the recording
LONGEST = 4 * 3600.0  # seconds that one life may take, whatever its budget was


@dataclass(frozen=True)
class Means:
    """What a replay is made with. ``folder`` is an empty one of its own, ``strategy`` gives a way to work by name."""

    rooms: Rooms
    spec: SandboxSpec
    strategy: Callable[[str], Strategy]
    folder: Path
    patience: float = PATIENCE


@dataclass
class _Course:
    """What has come of it so far."""

    tree: str | None = None
    played: int = 0
    because: str = ""
    given: int = 0
    missing: int = 0
    astray: bool = False
    differences: list[Difference] = field(default_factory=list)


class Replayer:
    """One replay of one recording."""

    def __init__(self, recorded: Recording, means: Means) -> None:
        self._recorded = recorded
        self._means = means
        git = means.folder / "recorded.git"  # never a name out of the recording
        self._keeping = Keeping(git)
        self._workspace = Workspace(git)
        self._limit = min(means.spec.limits.disk, SAVE_LIMIT)

    async def run(self, objects: bytes) -> Verdict:
        """Replay it from its first life to its last. Raises ReplayError where that cannot be, and SandboxError."""
        if why := hindrance(self._recorded):
            raise ReplayError(f"attempt {self._recorded.attempt.id} cannot be replayed: {why}")
        await self._keeping.unpack(objects, self._recorded.base, shallow=self._recorded.shallow)
        course = _Course()
        passed = Spent()
        try:
            for life in lives(self._recorded):
                await self._begin(life, course)
                await self._live(life, course, passed)
                passed = total((passed, _spent(life)))
        except (KeyError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise ReplayError(f"the journal of attempt {self._recorded.attempt.id} cannot be played: {why}") from error
        return await self._judged(course)

    async def _begin(self, life: Life, course: _Course) -> None:
        """The tree that a life begins with: as recorded, else what the replay itself came to."""
        if life.start is not None and await self._keeping.has(life.start):
            course.tree = life.start
            course.given += 1
        elif life.start is None:
            course.tree = None

    async def _live(self, life: Life, course: _Course, passed: Spent) -> None:
        recorded = self._recorded
        async with self._room(course.tree or recorded.base) as room:

            async def sealed() -> str:
                export = room.sandbox.export()
                made = await self._workspace.seal(recorded.base, export, limit=self._limit, furniture=room.furniture)
                return made.tree

            player = Player(life, sealed, patience=self._means.patience)
            work = self._work(life, player, room, passed)
            course.because = await self._worked(work, life) or course.because
            course.tree = await self._ended(life, player, sealed)
        course.astray = course.astray or _astray(life, player, course.tree)
        course.played += player.played
        course.missing += player.missing
        course.differences += player.differences
        course.differences += [
            Difference(step=seq, what="tree", recorded=before, replayed=after)
            for seq, before, after in player.trees
            if before != after
        ]

    async def _worked(self, work: Work, life: Life) -> str:
        """Let the strategy work; why it stopped before its end, empty where it did not or the record ends there."""
        names = chosen(life.lines) or chosen(life.past)
        try:
            async with asyncio.timeout(LONGEST):
                if names:
                    await in_turn(work, names, self._means.strategy)
                else:
                    await self._means.strategy(self._recorded.attempt.strategy).work(work)
        except ReplayStopped as stopped:
            return stopped.because
        except BudgetExceededError:
            return ""
        except TimeoutError:
            return f"it took more than {LONGEST:.0f} s"
        return ""

    async def _ended(self, life: Life, player: Player, sealed: Callable[[], Awaitable[str]]) -> str:
        """The tree at the end of a life. Broken off before its end, it left what was saved last."""
        tree = await sealed()
        if life.sealed or tree == life.end or not player.trees:
            return tree
        return player.trees[-1][2]

    def _work(self, life: Life, player: Player, room: Prepared, passed: Spent) -> Work:
        recorded = self._recorded
        return Work(
            task=recorded.task,
            attempt=recorded.attempt.id,
            tier=recorded.attempt.tier,
            sandbox=room.sandbox,
            pool=player,
            ledger=player.ledger(recorded.task.budget, recorded.before, passed),
            test_command=recorded.test_command,
            record=player.record,
            save=player.save,
            past=life.past,
            inbox=player.inbox,
            known=(Briefing.of((*life.past, *life.lines)) or Briefing()).known,
            ladder=ladder((*life.past, *life.lines)),
            manners=manners((*life.past, *life.lines)),
        )

    @asynccontextmanager
    async def _room(self, tree: str) -> AsyncIterator[Prepared]:
        spec = self._means.spec.model_copy(update={"labels": {"kind": "replay"}})
        async with self._means.rooms.open(spec, Tree(self._workspace, REPLAYED, self._recorded.base, tree)) as room:
            yield room

    async def _judged(self, course: _Course) -> Verdict:
        recorded = self._recorded
        found = lives(recorded)
        wanted = recorded.sealed or found[-1].end or (await self._workspace.unchanged(recorded.base)).tree
        alike = course.tree == wanted
        of = sum(in_order(step) for life in found for step in life.lines)
        diff = ""
        if not alike and course.tree and await self._keeping.has(wanted):
            diff = await self._workspace.diff(wanted, course.tree)
        return Verdict(
            task=recorded.task.id,
            attempt=recorded.attempt.id,
            same=alike and not course.astray and not course.because and not course.missing,
            alike=alike,
            recorded=wanted,
            replayed=course.tree or "",
            lives=len(found),
            lines=course.played,
            of=of,
            given=course.given,
            stopped=course.because,
            broken_off=not found[-1].sealed,
            differences=tuple(course.differences),
            diff=diff,
        )


def _astray(life: Life, player: Player, tree: str) -> bool:
    """Whether a life came to another tree than its record. What a command that was cut off had done is not asked."""
    if life.sealed:
        return tree != last_tree(life.lines)
    return bool(player.trees) and player.trees[-1][1] != player.trees[-1][2]


def _spent(life: Life) -> Spent:
    """What a life had spent, by its own lines."""
    calls = [step.data for step in life.lines if step.kind == "model_call"]
    wall = life.lines[-1].at - life.lines[0].at
    return Spent(
        steps=len(calls),
        tokens=sum(int(data.get("prompt_tokens") or 0) + int(data.get("completion_tokens") or 0) for data in calls),
        wall=max(0.0, wall),
        money=sum(float(data.get("money") or 0.0) for data in calls),
        gpu_seconds=sum(float(data.get("gpu_seconds") or 0.0) for data in calls),
    )
