"""Best of n: tries in forks of the sandbox, judged by the tests and by one another; the best one's workspace is kept.

The first try looks around alone. The others go on with its conversation as it was before it changed anything, so what
it had read is neither read nor paid for again, and an endpoint's prefix cache serves them all. What is needless is not
begun: tries end once enough of them agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sandbox.errors import WorkspaceError
from swarm.agent import Agent
from swarm.strategies import ballot, carry, change
from swarm.strategies.ballot import Vote
from swarm.strategies.carry import Change, Entry
from swarm.strategies.parts import Tape, concluded, conclusion_of, latest, of_whole, shared_out, taped
from swarm.strategies.trial import UNKNOWN, tests_of, tried
from swarm.types import Conclusion, TestRun
from swarm.work import Strategy, Work, nothing_said

LEFT = "left"
"""``about`` of the note that holds what a try left: its vote, and its change where that is small."""
_HEAT = (None, 0.7, 0.9, 1.1)  # temperatures; the first try's is the model's own


@dataclass(frozen=True)
class Try:
    """A try that is over: how, what it left, and what it is worth."""

    conclusion: Conclusion
    vote: Vote
    left: Change


@dataclass
class _Course:
    """The tries so far, and what they are measured against."""

    work: Work
    before: Mapping[str, Entry]
    base: TestRun | None
    running: int = 0
    begun: int = 0
    tries: list[Try] = field(default_factory=list)
    first: Tape = field(default_factory=Tape)


class BestOf:
    """``n`` tries of an inner strategy, ``at_once`` beside one another; ``agree`` that agree are enough."""

    def __init__(self, inner: Strategy, *, n: int = 3, agree: int = 2, at_once: int = 1) -> None:
        self._inner = inner
        self._n = n
        self._agree = agree
        self._at_once = at_once

    async def work(self, work: Work) -> Conclusion:
        """Try, choose, and bring the chosen one's work over. Raises PoolError and SandboxError."""
        work = await _told(work)
        course = _Course(work, await carry.index(work.sandbox), await tests_of(work, work.sandbox))
        running: set[asyncio.Task[Try]] = set()
        try:
            while not self._enough(course) and (running or self._more(course)):
                while self._more(course) and len(running) < self._at_once:
                    course.begun += 1
                    running.add(asyncio.create_task(self._try(course, course.begun)))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                course.tries += [task.result() for task in done]
        finally:
            await _cancelled(running)
        return await self._kept(course)

    def _more(self, course: _Course) -> bool:
        """Whether another try may begin: there are some left, and something to spend on it."""
        left = all(gauge.used < gauge.limit for gauge in course.work.ledger.gauges())
        return course.begun < self._n and (left or not course.begun)

    def _enough(self, course: _Course) -> bool:
        return ballot.decided([one.vote for one in course.tries], self._n, min(self._agree, self._n))

    async def _try(self, course: _Course, number: int) -> Try:
        """One try in a fork. One that ended in an earlier life is taken from the journal, if its change was kept there;
        else it begins anew, since its fork is gone."""
        work, name = course.work, f"try-{number}"
        known = work.part(name, sandbox=work.sandbox)
        if (kept := _kept_try(known)) is not None:
            if number == 1:
                taped(replace(known, past=latest(known)), course.first)
            return kept
        if number > 1:
            await course.first.parted.wait()
        outstanding = self._n - number + 1 + course.running
        course.running += 1
        try:
            async with work.sandbox.fork() as fork:
                fair = 1 / outstanding
                part = shared_out(work, name, fair, sandbox=fork, wall=min(1.0, fair * self._at_once))
                part = self._part(course, number, replace(part, past=(), inbox=nothing_said))
                after = ("try-1", len(part.past)) if part.past else None
                conclusion = await concluded(part, self._inner, after=after)
                return await self._judged(course, part, conclusion)
        finally:
            course.running -= 1
            if number == 1:
                course.first.parted.set()

    def _part(self, course: _Course, number: int, part: Work) -> Work:
        """A try's work: the first is listened to, the others go on with what it had seen, at another temperature."""
        if number == 1:
            return taped(part, course.first)
        shared = course.first.shared() if isinstance(self._inner, Agent) else ()
        return replace(part, past=shared, temperature=_HEAT[(number - 1) % len(_HEAT)])

    async def _judged(self, course: _Course, part: Work, conclusion: Conclusion) -> Try:
        work, fork = course.work, part.sandbox
        try:
            left = await carry.change(fork, course.before)
        except WorkspaceError as error:
            conclusion = conclusion.model_copy(update={"ending": "gave_up", "summary": str(error)})
            left = Change()
        told = await change.told(work.sandbox, fork, paths=left.work)
        verdict = UNKNOWN
        if left.work:
            verdict = await tried(part, course.base, fork, work.sandbox, told.paths)
        finished = conclusion.ending == "finished"
        vote = Vote(
            name=part.name,
            changed=bool(left.work),
            finished=finished,
            verdict=verdict,
            patch=ballot.named(told.files),
            size=told.size,
        )
        dumped = left.dump()
        kept = {"change": dumped} if len(dumped["packed"]) <= carry.JOURNALED else {}
        words = "passes the tests" if verdict.passed else verdict.reason or "nothing vouches for it"
        await part.record(
            "note", {"text": f"{part.name}: {words}", "about": LEFT, "vote": vote.model_dump(mode="json"), **kept}
        )
        return Try(conclusion, vote, left)

    async def _kept(self, course: _Course) -> Conclusion:
        """The chosen try's conclusion, its work in the workspace; where no try left any, how the last one ended."""
        work = course.work
        choice = ballot.choose([one.vote for one in course.tries])
        if choice is None:
            return _without(course.tries)
        best = next(one for one in course.tries if one.vote is choice.vote)
        saved = max(0, self._n - course.begun)
        why = choice.why + (f"; {saved} more tries were not needed" if saved else "")
        await work.record("note", {"text": why, "about": "best", "part_of": best.vote.name})
        await carry.apply(work.sandbox, best.left)
        paths = best.left.work
        await work.record("edit", {"path": paths[0], "text": ", ".join(paths[:20]), "changed": True})
        await work.save()
        summary = f"{best.conclusion.summary}\n\n[best of {len(course.tries)} tries: {choice.why}]".strip()
        proved = best.vote.verdict.proved
        return of_whole(best.conclusion.model_copy(update={"summary": summary}), proved=proved)


async def _told(work: Work) -> Work:
    """The work with what people have said so far in its words: tries in forks hear nothing while they run."""
    said = await work.inbox(0)
    known = {line.data.get("seq") for line in work.past if line.kind == "message" and "part" not in line.data}
    for one in said:
        if one.seq in known:
            continue
        await work.record("message", {"author": one.author, "text": one.text, "seq": one.seq, "of": one.task})
    if not said:
        return work
    heard = "\n\n".join(f"{one.author} said: {one.text}" for one in said)
    request = work.task.request
    words = f"{request.instructions}\n\n{heard}"[:100_000]
    task = work.task.model_copy(update={"request": request.model_copy(update={"instructions": words})})
    return replace(work, task=task)


def _kept_try(part: Work) -> Try | None:
    """A try of an earlier life, where the journal holds all of it."""
    ended = conclusion_of(part)
    data = next((line.data for line in reversed(part.past) if line.data.get("about") == LEFT), None)
    if ended is None or data is None or "change" not in data:
        return None
    return Try(ended, Vote.model_validate(data["vote"]), Change.load(data["change"]))


def _without(tries: list[Try]) -> Conclusion:
    """The ending where no try changed anything: a question to a person before all, then what most say."""
    endings = [one.conclusion for one in tries]
    asked = next((one for one in endings if one.ending == "asked"), None)
    if asked is not None:
        return asked
    if endings and all(one.ending == "no_change" for one in endings):
        return endings[0]
    last = endings[-1]
    told = f"none of {len(endings)} tries changed anything; the last one: {last.summary}"
    ending = last.ending if last.ending == "limit_hit" else "gave_up"
    return of_whole(last.model_copy(update={"ending": ending, "summary": told}))


async def _cancelled(tasks: set[asyncio.Task[Try]]) -> None:
    """End what is not needed, and wait until its sandboxes are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
