"""Review and fix: an actor works, a reviewer with fresh eyes finds faults, the actor mends them; a few rounds at most.

The reviewer sees the task, the diff and the test result and nothing of the conversation, so that it judges what was
done and not what was meant. What it calls a nit costs no round. Fixes are made in forks, so that one which makes the
tests worse leaves nothing, whenever the daemon dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pool.types import Message
from sandbox.base import Sandbox
from sandbox.errors import WorkspaceError
from swarm import history
from swarm.agent import Agent
from swarm.errors import BudgetExceededError
from swarm.strategies import carry, change, findings, tiers
from swarm.strategies.carry import Change, Entry
from swarm.strategies.change import Told
from swarm.strategies.findings import Finding
from swarm.strategies.parts import (
    Tape,
    begun,
    concluded,
    conclusion_of,
    instructed,
    latest,
    of_whole,
    shared_out,
    taped,
)
from swarm.strategies.question import ask
from swarm.strategies.trial import Verdict, beginning, tests_of, tried
from swarm.types import Conclusion, Step, TestRun
from swarm.work import Strategy, Work

FIX = "fix"
"""``about`` of the line that tells the actor what the reviewer found."""
FIXED, TAKEN = "fixed", "taken"
"""``about`` of the note that tells whether a fix is kept, with its change where that is small, and of the edit that
brings it into the workspace."""
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
            verdict, told = await self._look(course, work.sandbox)
            for number in range(1, self._rounds + 1):
                if done.ending not in {"finished", "limit_hit"}:
                    break
                faults = await self._review(course, number, told, verdict)
                if not faults:
                    break
                fixed, taken = await self._fix(course, number, faults, verdict)
                if taken:
                    verdict, told = await self._look(course, work.sandbox)
                if not taken or fixed.ending != "finished":
                    break
                done = fixed
            return of_whole(done, proved=verdict.proved)

    async def _look(self, course: _Course, sandbox: Sandbox) -> tuple[Verdict, Told]:
        told = await change.told(course.first, sandbox)
        return await tried(course.work, course.base, sandbox, course.first, told.paths), told

    async def _review(self, course: _Course, number: int, told: Told, verdict: Verdict) -> tuple[Finding, ...]:
        """The faults that are worth a round; none where nothing was changed, or the reviewer's share, or the budget,
        is spent. What was found in an earlier life is not asked again, nor judged by what the workspace is now."""
        work = course.work
        part = shared_out(work, f"review-{number}", _REVIEWING, tier=self._tier or tiers.strongest(work))
        if (faults := _found_before(part)) is not None:
            course.told_before += faults
            return faults
        if not told.paths:
            return ()
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
        kept, mend = ([one.model_dump() for one in some] for some in (found or (), faults))
        note = {"text": f"{part.name}: {words}", "about": "findings", "findings": kept, "faults": mend}
        await part.record("note", note)
        return faults

    async def _fix(
        self, course: _Course, number: int, faults: Sequence[Finding], before: Verdict
    ) -> tuple[Conclusion, bool]:
        """Have the faults mended in a fork; how that ended, and whether it was taken over: what makes the tests worse
        is not. A fix of an earlier life that was not taken, nor is in the journal, begins anew: its fork is gone."""
        work, name = course.work, f"fix-{number}"
        known = work.part(name)
        if (settled := _settled(work, known)) is not None:
            await self._spoken(course, replace(known, past=latest(known)), faults)
            ended, left = settled
        else:
            base = await carry.index(work.sandbox)
            async with work.sandbox.fork() as fork:
                part = replace(shared_out(work, name, _FIXING, sandbox=fork), past=())
                ended = await concluded(await self._spoken(course, part, faults), self._actor)
                left = await self._judged(course, part, base, before)
        if left is not None and left.work:
            await carry.apply(work.sandbox, left)
            told = {"path": left.work[0], "text": ", ".join(left.work[:20]), "about": TAKEN, "of": known.name}
            await work.record("edit", {**told, "changed": True})
            await work.save()
        return ended, left is not None

    async def _judged(self, course: _Course, part: Work, base: Mapping[str, Entry], before: Verdict) -> Change | None:
        """A fix's change; None where it is not worth taking."""
        try:
            left = await carry.change(part.sandbox, base)
        except WorkspaceError as error:
            await part.record("note", {"text": f"{part.name}: left out: {error}", "about": FIXED, "kept": False})
            return None
        verdict = (await self._look(course, part.sandbox))[0] if left.work else before
        if before.passed and not verdict.passed:
            text = f"{part.name}: left out, since the tests passed before: {verdict.reason}"
            await part.record("note", {"text": text, "about": FIXED, "kept": False})
            return None
        dumped = left.dump()
        kept = {"change": dumped} if len(dumped["packed"]) <= carry.JOURNALED else {}
        await part.record("note", {"text": f"{part.name}: kept", "about": FIXED, "kept": True, **kept})
        return left

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


def _found_before(part: Work) -> tuple[Finding, ...] | None:
    """The faults that an earlier life found worth a round; None where it was not reviewed then."""
    told = next((line.data for line in part.past if "faults" in line.data), None)
    return None if told is None else tuple(Finding.model_validate(one) for one in told["faults"])


def _settled(work: Work, part: Work) -> tuple[Conclusion, Change | None] | None:
    """How a fix of an earlier life ended, with its change unless it was left out; None where it has to be made anew."""
    lines = latest(part)
    own = (line.data for line in lines if line.data.get("part") == part.name)
    told = next((data for data in own if data.get("about") == FIXED), None)
    ended = conclusion_of(replace(part, past=lines))
    if told is None or ended is None:
        return None
    if not told["kept"]:
        return ended, None
    if _taken(work, part.name):
        return ended, Change()
    return (ended, Change.load(told["change"])) if "change" in told else None


def _taken(work: Work, name: str) -> bool:
    """Whether the workspace holds a fix's change already."""
    return any(line.data.get("about") == TAKEN and line.data.get("of") == name for line in work.past)
