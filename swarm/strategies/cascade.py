"""Cascade: the smallest tier first, a larger one on evidence, and down again once the hard part is done.

Each stage goes on with the workspace of the last and is told, in a few lines, what was tried and how the tests stand.
`climbing` decides; every climb is in the journal with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sandbox.base import Sandbox
from swarm import history
from swarm.strategies import change, tiers
from swarm.strategies.climbing import Move, Stage, next_move
from swarm.strategies.parts import concluded, instructed, of_whole, shared_out
from swarm.strategies.trial import beginning, tests_of, tried
from swarm.types import Conclusion, TestRun
from swarm.work import Strategy, Work

CLIMB = "climb"
"""``about`` of the note that says on which tier a cascade goes on, and why."""
_STAGE = 0.4  # of what is left, while another stage may follow
_AGAIN = """{task}

Work on this has begun already, by somebody who did not get it done ({why}). What they changed is in the repository; it
may be wrong, so judge it yourself.

{lessons}Their change so far:

{diff}

The tests as they stand: {tests}"""


@dataclass
class _Course:
    """The stages so far."""

    work: Work
    first: Sandbox
    base: TestRun | None
    stages: list[Stage] = field(default_factory=list)
    diff: str = ""


class Cascade:
    """``worker`` on the tiers of the attempt's ladder, or on ``tiers``, weakest first; at most ``stages`` of them.

    ``opener``, a way that costs little, has the first try: the climb begins where it gave up.
    """

    def __init__(
        self, worker: Strategy, *, opener: Strategy | None = None, stages: int = 4, tiers: tuple[str, ...] = ()
    ) -> None:
        self._worker = worker
        self._opener = opener
        self._stages = stages
        self._tiers = tiers

    async def work(self, work: Work) -> Conclusion:
        """Work up and down the ladder until it is done or nothing follows. Raises PoolError and SandboxError."""
        await tiers.told(work)
        ladder = self._tiers or tiers.rungs(work)
        if self._opener is not None and work.test_command:
            opened = await concluded(shared_out(work, "opener", _STAGE), self._opener)
            if opened.ending != "gave_up":
                return of_whole(opened)
        async with beginning(work) as first:
            course = _Course(work, first, await tests_of(work, first))
            move: Move | None = Move(ladder[0], "the weakest tier first")
            while move is not None:
                await work.record(
                    "note", {"text": f"on tier {move.tier}: {move.why}", "about": CLIMB, "tier": move.tier}
                )
                await self._stage(course, move, ladder)
                failing = len(course.base.failed) if course.base else 0
                move = next_move(course.stages, ladder, failing, self._stages)
            last = course.stages[-1]
            return of_whole(last.ended, proved=last.verdict.proved)

    async def _stage(self, course: _Course, move: Move, ladder: tuple[str, ...]) -> None:
        work, number = course.work, len(course.stages) + 1
        last = number == self._stages or (len(ladder) == 1)
        part = shared_out(work, f"stage-{number}", 1.0 if last else _STAGE, tier=move.tier)
        part = replace(part, ladder=())
        if course.stages:
            before = course.stages[-1]
            lessons = f"What they found out: {before.ended.lessons}\n\n" if before.ended.lessons else ""
            told = {"why": move.why, "lessons": lessons, "diff": course.diff, "tests": before.verdict.told()}
            part = instructed(part, _AGAIN.format(task=work.task.request.instructions, **told))
        ended = await concluded(part, self._worker)
        told_change = await change.told(course.first, work.sandbox, limit=12_000)
        verdict = await tried(work, course.base, work.sandbox, course.first, told_change.paths)
        course.diff = history.shorten(told_change.diff, 12_000)
        course.stages.append(Stage(move.tier, ended, verdict))
