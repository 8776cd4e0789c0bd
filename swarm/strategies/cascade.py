"""Cascade: the smallest tier first, a larger one on evidence, and down again once the hard part is done.

Each stage goes on with the workspace of the last and is told, in a few lines, what was tried and how the tests stand.
`climbing` decides; every climb is in the journal with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sandbox.base import Sandbox
from swarm.strategies import tiers
from swarm.strategies.climbing import Move, Stage, done, first_move, next_move
from swarm.strategies.parts import concluded, instructed, of_whole, shared_out
from swarm.strategies.standing import standing
from swarm.strategies.trial import beginning, tests_of
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
    failing: int = 0
    stages: list[Stage] = field(default_factory=list)
    last: Stage | None = None
    diff: str = ""
    changed: bool = False


class Cascade:
    """``worker`` on the tiers of the attempt's ladder, or on ``tiers``, weakest first; at most ``stages`` of them.

    ``opener``, a way that costs little, has the first try: the climb begins where the tests say that it did not do.
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
        async with beginning(work) as first:
            base = await tests_of(work, first)
            course = _Course(work, first, base, len(base.failed) if base else 0)
            opened = await self._opened(course)
            if opened is not None and done(opened):
                return _whole(course, opened)
            move: Move | None = first_move(opened, ladder)
            while move is not None:
                await _noted(course, move)
                await self._stage(course, move, ladder)
                move = next_move(course.stages, ladder, course.failing, self._stages)
            return _whole(course, course.stages[-1])

    async def _opened(self, course: _Course) -> Stage | None:
        """What the opener came to; None where there is none, or no test to judge it by."""
        if self._opener is None or not course.work.test_command:
            return None
        opened = await _made(course, shared_out(course.work, "opener", _STAGE), self._opener, "the opener")
        course.failing = opened.failing
        return opened

    async def _stage(self, course: _Course, move: Move, ladder: tuple[str, ...]) -> None:
        work, number = course.work, len(course.stages) + 1
        last = number == self._stages or (len(ladder) == 1)
        part = shared_out(work, f"stage-{number}", 1.0 if last else _STAGE, tier=move.tier)
        part = replace(part, ladder=())
        before = course.last
        if before is not None and (course.stages or course.diff):
            lessons = f"What they found out: {before.ended.lessons}\n\n" if before.ended.lessons else ""
            told = {"why": move.why, "lessons": lessons, "diff": course.diff, "tests": before.verdict.told()}
            part = instructed(part, _AGAIN.format(task=work.task.request.instructions, **told))
        course.stages.append(await _made(course, part, self._worker, move.tier))


def _whole(course: _Course, last: Stage) -> Conclusion:
    return of_whole(last.ended, proved=last.verdict.proved, changed=course.changed)


async def _noted(course: _Course, move: Move) -> None:
    """Note a move, unless an earlier life did."""
    work = course.work
    notes = (line for line in work.past if line.data.get("about") == CLIMB)
    if sum(line.data.get("part", "") == work.name for line in notes) <= len(course.stages):
        await work.record("note", {"text": f"on tier {move.tier}: {move.why}", "about": CLIMB, "tier": move.tier})


async def _made(course: _Course, part: Work, worker: Strategy, tier: str) -> Stage:
    """A part, made and judged."""
    ended = await concluded(part, worker)
    left = await standing(course.work, part, course.base, course.first)
    course.diff, course.changed = left.diff, left.changed
    course.last = Stage(tier, ended, left.verdict)
    return course.last
