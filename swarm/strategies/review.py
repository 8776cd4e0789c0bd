"""Review and fix: an actor works, a reviewer with fresh eyes finds faults, the actor mends them; a few rounds at most.

The reviewer sees the task, the diff and the test result and nothing of the conversation, so that it judges what was
done and not what was meant. What it calls a nit costs no round. A round that makes the tests worse is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pool.types import Message
from sandbox.base import Sandbox
from swarm import history
from swarm.agent import Agent
from swarm.errors import BudgetExceededError
from swarm.strategies import carry, change, findings, tiers
from swarm.strategies.change import Told
from swarm.strategies.findings import Finding
from swarm.strategies.parts import Tape, begun, concluded, instructed, of_whole, shared_out, taped
from swarm.strategies.question import ask
from swarm.strategies.trial import Verdict, beginning, tests_of, tried
from swarm.types import Conclusion, Step, TestRun
from swarm.work import Strategy, Work

FIX = "fix"
"""``about`` of the line that tells the actor what the reviewer found."""
_WORKING, _REVIEWING, _FIXING = 0.6, 0.25, 0.7  # of what is left
_SYSTEM = """\
You review a change to a repository that somebody else made. You see the task, the diff and the test result. Look for
faults: what the task asks for and the change does not do, wrong results, cases that it breaks, weakened tests.
A fault is something that you can show to be wrong, with the input or the line that shows it. Style, naming, missing
comments and what you would have done otherwise are nits. Most changes have no fault: then the list is empty.

Answer with one JSON object and nothing else:
{"findings": [{"kind": "fault" or "nit", "file": "path", "line": 1, "what": "what is wrong", "mend": "what to do"}]}"""
_VIEW = """\
The task:

{task}

The change:

{diff}

The tests: {tests}"""
_FIX = """\
A reviewer looked at the change and found:

{findings}

Check each against the code. Mend what is right; where the reviewer is mistaken, leave the code as it is. Then call
finish again, with the summary of the whole change."""
_ANEW = """{task}

The work has been done already, and the repository holds it. {fix}"""


@dataclass
class _Course:
    """The change under review."""

    work: Work
    first: Sandbox
    base: TestRun | None
    tape: Tape = field(default_factory=Tape)
    talking: str = "work"
    told_before: list[Finding] = field(default_factory=list)


class ReviewAndFix:
    """``actor`` works; a reviewer on the strongest tier (or ``tier``) has at most ``rounds`` looks at it."""

    def __init__(self, actor: Strategy, *, rounds: int = 2, tier: str | None = None) -> None:
        self._actor = actor
        self._rounds = rounds
        self._tier = tier

    async def work(self, work: Work) -> Conclusion:
        """Work, then review and fix until nothing is at fault. Raises PoolError and SandboxError."""
        await tiers.told(work)
        async with beginning(work) as first:
            course = _Course(work, first, await tests_of(work, first))
            done = await concluded(taped(shared_out(work, "work", _WORKING), course.tape), self._actor)
            verdict, told = await self._look(course)
            for number in range(1, self._rounds + 1):
                if done.ending not in {"finished", "limit_hit"} or not told.paths:
                    break
                faults = await self._review(course, number, told, verdict)
                if not faults:
                    break
                fixed, better = await self._fix(course, number, faults, verdict)
                done = fixed if better else done
                verdict, told = await self._look(course)
                if not better:
                    break
            return of_whole(done, proved=verdict.proved)

    async def _look(self, course: _Course) -> tuple[Verdict, Told]:
        told = await change.told(course.first, course.work.sandbox)
        return await tried(course.work, course.base, course.work.sandbox, course.first, told.paths), told

    async def _review(self, course: _Course, number: int, told: Told, verdict: Verdict) -> tuple[Finding, ...]:
        """The faults that are worth a round; none where the reviewer's share, or the budget, is spent."""
        work = course.work
        part = shared_out(work, f"review-{number}", _REVIEWING, tier=self._tier or tiers.strongest(work))
        view = _VIEW.format(task=work.task.request.instructions, diff=told.diff, tests=verdict.told())
        try:
            answer = await ask(part, _SYSTEM, view, findings.SCHEMA)
        except BudgetExceededError as error:
            await work.record("note", {"text": f"no review any more: {error}"})
            return ()
        found = findings.read(answer)
        faults = findings.worth_a_round(found or (), course.told_before, told.paths)
        course.told_before += faults
        words = f"{len(found)} findings, {len(faults)} to mend" if found is not None else "an answer that says nothing"
        kept = [one.model_dump() for one in found or ()]
        await part.record("note", {"text": f"{part.name}: {words}", "about": "findings", "findings": kept})
        return faults

    async def _fix(
        self, course: _Course, number: int, faults: Sequence[Finding], before: Verdict
    ) -> tuple[Conclusion, bool]:
        """Have the faults mended; how that ended, and whether it is kept: what makes the tests worse is not."""
        work = course.work
        async with work.sandbox.fork() as good:
            part = shared_out(work, f"fix-{number}", _FIXING)
            done = await concluded(await self._spoken(course, part, faults), self._actor)
            verdict, _ = await self._look(course)
            if not (before.passed and not verdict.passed):
                return done, done.ending == "finished"
            back = await carry.change(good, await carry.index(work.sandbox))
            await carry.apply(work.sandbox, back)
            text = f"{part.name}: taken back, since the tests passed before: {verdict.reason}"
            await work.record("edit", {"path": next(iter(back.paths), ""), "text": text, "changed": True})
            await work.save()
        return done, False

    async def _spoken(self, course: _Course, part: Work, faults: Sequence[Finding]) -> Work:
        """The part that mends: the actor's own conversation goes on; a strategy without one is told the task anew."""
        fix = _FIX.format(findings=history.shorten("\n".join(one.told() for one in faults), 8000))
        if not isinstance(self._actor, Agent):
            return instructed(part, _ANEW.format(task=course.work.task.request.instructions, fix=fix))
        before = tuple(course.tape.lines)
        notes = [await begun(part, (course.talking, len(before)))]
        if not any(line.data.get("about") == FIX for line in part.past):
            message = Message(role="user", content=fix)
            notes.append({"text": "the reviewer's findings", "about": FIX, "message": message.model_dump(mode="json")})
            await part.record("note", notes[-1] or {})
        new = (
            Step(task=part.task.id, attempt=part.attempt, seq=0, at=0.0, kind="note", data={**data, "part": part.name})
            for data in notes
            if data is not None
        )
        course.talking = part.name
        return taped(replace(part, past=(*before, *part.past, *new)), course.tape)
