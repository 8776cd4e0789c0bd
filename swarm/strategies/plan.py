"""Plan, then act: a large tier reads and writes a plan, a small one edits by it; one that failed is revised, in bounds.

The planner works in a fork that is thrown away, so that whatever it tries out changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandbox.base import Sandbox
from swarm import history
from swarm.strategies import tiers
from swarm.strategies.parts import concluded, instructed, of_whole, shared_out
from swarm.strategies.standing import Standing, standing
from swarm.strategies.trial import beginning, tests_of
from swarm.types import Conclusion, TestRun
from swarm.work import Strategy, Work

_PLANNING = 0.35  # of what is left, for one plan
_PLAN = 8000  # characters of it that are handed on
_ASK = """\
You are the planner. Another engineer, who is quick but sees only what you write, will make the change; you make none.
Read what the task needs, then call finish: its title is the change in one line, its summary is the plan. The plan names
each file and function to change, says exactly what to change there and why, which tests show that it is right, and what
to leave alone. No more than 40 lines. Edits that you make here are thrown away.

The task:

"""
_REVISE = """

An earlier plan did not do. This was it:

{plan}

This is what was changed so far, by that plan:

{diff}

And this is how the tests went then:

{tests}

Say what was wrong with the plan and write a better one, for the repository as it is now."""
_ACT = """{task}

A colleague has read the code and made this plan. Follow it where it is right; where the code says otherwise, the code
counts. Do not read again what the plan tells you.

{plan}"""


@dataclass
class _Course:
    """What planning has to go by."""

    work: Work
    first: Sandbox
    base: TestRun | None
    plan: str = ""
    left: Standing | None = None


class PlanThenAct:
    """``planner`` plans on the strongest tier (or ``planner_tier``), ``actor`` edits on the weakest (``actor_tier``).

    Where tests still fail, the plan is revised at most ``revisions`` times.
    """

    def __init__(
        self,
        planner: Strategy,
        actor: Strategy,
        *,
        revisions: int = 1,
        planner_tier: str | None = None,
        actor_tier: str | None = None,
    ) -> None:
        self._planner = planner
        self._actor = actor
        self._revisions = revisions
        self._planner_tier = planner_tier
        self._actor_tier = actor_tier

    async def work(self, work: Work) -> Conclusion:
        """Plan, act, test, and once more where that did not do. Raises PoolError and SandboxError."""
        await tiers.told(work)
        async with beginning(work) as first:
            course = _Course(work, first, await tests_of(work, first))
            for number in range(1, self._revisions + 2):
                planned = await self._plan(course, number)
                if planned.ending == "asked":
                    return planned
                if not course.plan:
                    return of_whole(_no_plan(planned))
                done, left = await self._act(course, number)
                verdict = left.verdict
                if done.ending in {"asked", "cancelled"} or verdict.passed or not verdict.known or _spent(work):
                    break
            return of_whole(done, proved=verdict.proved, changed=left.changed)

    async def _plan(self, course: _Course, number: int) -> Conclusion:
        """Have a plan made, or revised; an earlier one stays where that came to none."""
        work = course.work
        words = _ASK + work.task.request.instructions
        if (left := course.left) is not None:
            words += _REVISE.format(plan=course.plan, diff=left.diff, tests=left.verdict.told())
        async with work.sandbox.fork() as fork:
            tier = self._planner_tier or tiers.strongest(work)
            part = shared_out(work, f"plan-{number}", _PLANNING, tier=tier, sandbox=fork)
            ended = await concluded(replace(instructed(part, words), ladder=()), self._planner)
        if ended.ending in {"finished", "no_change"} and ended.summary.strip():
            course.plan = history.shorten(f"{ended.title}\n\n{ended.summary}".strip(), _PLAN)
        return ended

    async def _act(self, course: _Course, number: int) -> tuple[Conclusion, Standing]:
        work = course.work
        left = self._revisions + 2 - number
        fraction = 1.0 if left == 1 else 0.6
        part = shared_out(work, f"act-{number}", fraction, tier=self._actor_tier or tiers.weakest(work))
        words = _ACT.format(task=work.task.request.instructions, plan=course.plan)
        ended = await concluded(replace(instructed(part, words), ladder=()), self._actor)
        course.left = await standing(work, part, course.base, course.first)
        return ended, course.left


def _spent(work: Work) -> bool:
    return any(gauge.used >= gauge.limit for gauge in work.ledger.gauges())


def _no_plan(ended: Conclusion) -> Conclusion:
    """No plan, no act."""
    if ended.ending == "limit_hit":
        return ended
    return ended.model_copy(update={"ending": "gave_up", "summary": f"no plan was made: {ended.summary}"})
