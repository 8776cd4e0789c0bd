"""Sampled repair, for models too small to steer themselves: locate, sample, test, keep the smallest change that passes.

Generate and validate (as GenProg and its kin do): the harness does all the judging, so an answer is never trusted, only
tried. Nothing about the fix is known beforehand. Mutation rules, which cost no token, may follow the first samples, or
be all there is. A model that can write a function is asked for the whole suspected one before
(`rewriting`), and what it agrees with itself on goes before what a rule makes: weak tests let many a rule through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pool.errors import PermanentError, PoolError
from sandbox.base import Sandbox
from sandbox.types import Command
from swarm import evidence, history
from swarm.checks import run_tests
from swarm.errors import BudgetExceededError
from swarm.strategies import candidates as drawing
from swarm.strategies import localise, regions
from swarm.strategies.asking import RULES, Ask, Rung, Samples, ask_model, ladder
from swarm.strategies.candidates import Candidate
from swarm.strategies.localise import Diagnosis
from swarm.strategies.mutants import mutants
from swarm.strategies.rewriting import Rewrite, Rewriter, agreed, can_write, patience_for, put, steady
from swarm.strategies.spectrum import Suspect, batches
from swarm.types import Conclusion, Ending, Spent, TestRun
from swarm.work import Work

Locate = Callable[..., Awaitable[Diagnosis]]

_REPAIRED = "repaired"
_FIRST_RUN = 20.0  # seconds that the tests may take in any case
_LATE = 0.5


@dataclass(frozen=True)
class Bounds:
    """How wide to search. ``testers`` runs of the tests go on at a time; ``enough`` candidates that pass end it.

    A candidate's tests may take ``patience`` seconds more than five times as long as the base's took. Rules may make
    ``ruled`` candidates, and take the share ``rule_time`` of the time that was left when they began; the first run of
    the tests the share ``base_time``: what is at fault may never end.
    """

    suspects: int = 40
    lines: int = 6
    tried: int = 32
    testers: int = 2
    enough: int = 2
    patience: float = 4.0
    functions: int = 2
    base_time: float = 0.15
    ruled: int = 400
    rule_time: float = 0.4


class SampledRepair:
    """The strategies `sampled_repair` and `mutation_repair`: one line at a time, many samples, the tests as the judge.

    ``rewrite`` comes first where it is wanted, ``rules`` after the first samples; without ``samples`` nobody is asked.
    """

    def __init__(
        self,
        *,
        ask: Ask = ask_model,
        locate: Locate = localise.by_coverage,
        bounds: Bounds | None = None,
        rules: bool = False,
        samples: bool = True,
        rewrite: bool = False,
    ) -> None:
        self._rewrite = rewrite
        self._ask = ask
        self._rules = rules
        self._samples = samples
        self._locate = locate
        self._bounds = bounds or Bounds()

    async def work(self, work: Work) -> Conclusion:
        """Search until something passes or nothing is left, to try or to spend. Raises PoolError and SandboxError."""
        done = next((step.data for step in reversed(work.past) if step.data.get("about") == _REPAIRED), None)
        if done is not None:
            return Conclusion(ending="finished", title=done["title"], summary=done["summary"], model=done["model"])
        search = _Search(work, self._ask, self._bounds, _past_samples(work), _past_verdicts(work))
        try:
            ways = _Ways(rules=self._rules, samples=self._samples, rewrite=self._rewrite)
            return await search.run(self._locate, ways)
        except BudgetExceededError as error:
            ended = search.ended("limit_hit", f"{error} ({search.told()})")
            return ended.model_copy(update={"limit": error.limit})


@dataclass(frozen=True)
class _Ways:
    """Where candidates come from."""

    rules: bool
    samples: bool
    rewrite: bool


@dataclass
class _Search:
    """One search and what it has seen so far."""

    work: Work
    ask: Ask
    bounds: Bounds
    samples: dict[tuple[Any, ...], tuple[str, ...]]
    verdicts: dict[tuple[str, int, str], bool]
    diagnosis: Diagnosis = field(init=False)
    slots: asyncio.Semaphore = field(init=False)
    over: BudgetExceededError | None = None
    failure: str = ""
    rung: Rung = RULES
    model: str = ""
    drawn: int = 0
    written: int = 0
    ruled: int = 0
    rules_until: float = 0.0  # seconds left of the wall clock at which rules make no more
    tried: int = 0
    good: list[Candidate] = field(default_factory=list)  # what passed, as it was written down: a replay goes by that

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.bounds.testers)

    async def run(self, locate: Locate, ways: _Ways) -> Conclusion:
        """Diagnose, then climb the ladder, a few lines at a time, most suspicious first."""
        command = self.work.test_command
        if not command:
            return self.ended(
                "gave_up", "sampled repair is judged by tests, and no test command is known for this task"
            )
        sandbox, limit = self.work.sandbox, self.bounds.suspects
        patience = min(self.left(), max(_FIRST_RUN, self.bounds.base_time * self.left()))
        self.diagnosis = await locate(sandbox, command, limit=limit, seconds=patience)
        base = self.diagnosis.base
        await self.work.record("command", {"text": command, "exit_code": base.exit_code, "seconds": base.seconds})
        rewrite = ways.rewrite and await can_write(self.work)
        objection = _objection(self.diagnosis)
        if objection and not (rewrite and base.exit_code == 0):
            return self.ended("gave_up", objection)
        native = ways.samples and await self.work.pool.native_tools(self.work.tier)
        await self._tell_suspects(native=native)
        if rewrite and (done := await self._rewritten()) is not None:
            return done
        if objection:
            return self.ended("gave_up", f"{objection}; and no majority of samples agrees on another way to write it")
        self.failure = steady(base.tail)[-1200:] if native else ""
        self.rules_until = self.left() * (1 - self.bounds.rule_time)
        lines = ways.samples and not self.written  # whoever has written functions gets no better at single lines
        rungs = ladder(native_tools=native) if lines else ()
        return await self._climb((*rungs[:1], *((RULES,) if ways.rules else ()), *rungs[1:]))

    async def _rewritten(self) -> Conclusion | None:
        """Have the suspected functions written anew, and keep what most of those that pass agree on, if any do."""
        base, task = self.diagnosis.base, self.work.task.request
        failing = base.exit_code != 0
        if failing:
            found = regions.suspected(self.diagnosis.suspects, self.diagnosis.sources, self.bounds.functions)
        else:
            known = await localise.sources_of(self.work.sandbox, task.paths, base.command)
            self.diagnosis.sources.update(known)
            found = regions.named(task.instructions, known)
        if not found or (not failing and len(found) > 1):
            return None
        rewriter = Rewriter(self.work, base, self.diagnosis.sources, self.slots)
        try:
            best = agreed(await rewriter.run(found))
        except PermanentError as error:  # this server cannot be asked in this way; completions may do
            await self.work.record("note", {"text": f"functions cannot be asked for here: {error}"})
            return None
        finally:
            self.model, self.written = rewriter.model or self.model, rewriter.got
        if best is None or (not failing and 2 * best[1] <= rewriter.got):
            return None
        return await self._keep_rewrite(*best)

    async def _keep_rewrite(self, best: Rewrite, agree: int) -> Conclusion:
        region = best.region
        await put(self.work.sandbox, region, regions.replaced(self.diagnosis.sources[region.file], region, best.code))
        await self.work.record("edit", {"path": region.file, "text": best.code, "changed": True})
        await self.work.save()
        title = f"Correct `{region.name}` in {region.file}" if region.name else f"Correct {region.file}"
        failed = self.diagnosis.base.failed
        judged = (
            f"{evidence.some(failed)} failed before" if failed else "no test had failed, so their agreement decided"
        )
        summary = (
            f"`{region.name or region.file}` was written anew by the model; {agree} of its samples mean the same and "
            f"pass the tests, {best.cost} characters changed ({judged})."
        )
        told = {"title": title, "summary": summary, "model": self.model}
        await self.work.record("note", {"text": title, "about": _REPAIRED, **told})
        return Conclusion(ending="finished", **told)

    async def _climb(self, rungs: Sequence[Rung]) -> Conclusion:
        refused: PermanentError | None = None
        worked = False
        for rung in rungs:
            for suspects in batches(self.diagnosis.suspects, self.bounds.lines):
                try:
                    passing = await self._round(suspects, rung)
                except PermanentError as error:  # this server cannot be asked in this way, another may do
                    refused = error
                    break
                worked = True
                if passing:
                    return await self._repaired(passing)
        if refused is not None and not worked:
            raise refused
        return self.ended("gave_up", f"no replacement of a single line makes the tests pass ({self.told()})")

    async def _round(self, suspects: Sequence[Suspect], rung: Rung) -> list[Candidate]:
        """Sample for these lines in parallel and test what comes in; once something passes no more samples are awaited,
        and once enough passes no more tests. Raises BudgetExceededError where nothing is left for the round, or it went
        past a limit."""
        if rung is not RULES and any(self._key(suspect, rung) not in self.samples for suspect in suspects):
            self.work.ledger.admit()
            self._charge(Spent(steps=1))
        self.rung = rung
        before, passing = len(self.good), list[Candidate]()
        sampling = {asyncio.create_task(self._sample(suspect, rung)): suspect for suspect in suspects}
        testing: dict[asyncio.Task[bool], Candidate] = {}
        try:
            while sampling or testing:
                done, _ = await asyncio.wait([*sampling, *testing], return_when=asyncio.FIRST_COMPLETED)
                for sampled in [task for task in sampling if task in done]:
                    for candidate in self._drawn(sampling.pop(sampled), sampled.result()):
                        testing[asyncio.create_task(self._passes(candidate))] = candidate
                for test in [task for task in testing if task in done]:
                    test.result()
                    del testing[test]
                passing = self.good[before:][: self.bounds.enough]
                if passing:
                    await _cancel(sampling)
                if len(passing) >= self.bounds.enough:
                    break
        finally:
            await _cancel(sampling)
            await _cancel(testing)
        if self.over is not None and not passing:
            raise self.over
        return passing

    def _drawn(self, suspect: Suspect, samples: Samples) -> list[Candidate]:
        """What is worth testing of these samples, the most promising first."""
        self.drawn += len(samples.texts)
        found = drawing.drawn(suspect, self.diagnosis.sources[suspect.file], samples.texts)
        return [candidate for candidate in found if self.verdicts.get(candidate.key, True)][: self.bounds.tried]

    @staticmethod
    def _key(suspect: Suspect, rung: Rung) -> tuple[Any, ...]:
        return (rung.style, rung.temperature, suspect.file, suspect.line)

    async def _sample(self, suspect: Suspect, rung: Rung) -> Samples:
        """Samples for one line; those in the journal are not paid for again, and rules cost nothing."""
        if rung is RULES:
            return Samples(self._by_rule(suspect))
        key = self._key(suspect, rung)
        if key in self.samples:
            return Samples(self.samples[key])
        try:
            samples = await self.ask(self.work, suspect, rung, self.failure, self.left())
        except PoolError:
            self.left(least=_LATE)  # a call that ran into the end of the task's time is no fault of the pool's
            raise
        self.model = samples.model or self.model
        self.samples[key] = samples.texts
        await self.work.record("model_call", {**samples.line(), "ask": list(key)})
        self._charge(samples.cost)
        return samples

    def _by_rule(self, suspect: Suspect) -> tuple[str, ...]:
        """What rules make of a line, until they have had their part of the tests and of the time."""
        most = self.bounds.ruled - self.ruled
        found = mutants(suspect, max(0, most)) if self.left() > self.rules_until else ()
        self.ruled += len(found)
        return found

    async def _passes(self, candidate: Candidate) -> bool:
        """Whether all tests pass with this one line changed, in a fork of the sandbox."""
        async with self.slots:
            if candidate.key not in self.verdicts:
                self.verdicts[candidate.key] = await self._tried(candidate)
            if self.verdicts[candidate.key]:
                self.good.append(candidate)
            return self.verdicts[candidate.key]

    async def _tried(self, candidate: Candidate) -> bool:
        base = self.diagnosis.base
        bound = min(self.left(), patience_for(base, self.bounds.patience))  # a change may well make an endless loop
        async with self.work.sandbox.fork() as fork:
            await self._put(fork, candidate)
            run = await run_tests(fork, base.command, seconds=bound, env={"PYTEST_ADDOPTS": "-x"})
        passed = evidence.compare(base, run, None).verdict == "passed"
        self.tried += 1
        await self.work.record("candidate", {**asdict(candidate), "passed": passed, **_summed(run)})
        return passed

    async def _put(self, sandbox: Sandbox, candidate: Candidate) -> None:
        source = drawing.apply(self.diagnosis.sources[candidate.file], candidate.line, candidate.new)
        executable = (await sandbox.run(Command(argv=("test", "-x", candidate.file)))).exit_code == 0
        await sandbox.write(candidate.file, source.encode("utf-8", "surrogateescape"), executable=executable)

    async def _repaired(self, passing: Sequence[Candidate]) -> Conclusion:
        """Put the smallest change into the workspace and say what it is."""
        best = drawing.smallest(passing)
        await self._put(self.work.sandbox, best)
        await self.work.record("edit", {"path": best.file, "text": f"- {best.old}\n+ {best.new}"})
        await self.work.save()
        place = f"`{best.function}`" if best.function else f"line {best.line}"
        title = f"Correct {place} in {best.file}"
        how = "mutation rules" if self.rung is RULES else "sampled repair"
        summary = (
            f"Line {best.line} of `{best.file}` was `{best.old}` and is now `{best.new}`.\n\n"
            f"Found by {how}: {self.told()}; {len(passing)} passed, the smallest change of them was taken. "
            f"The tests are all that judged it: {evidence.some(self.diagnosis.base.failed)} failed before."
        )
        told = {"title": title, "summary": summary, "model": self.model}
        await self.work.record("note", {"text": title, "about": _REPAIRED, **told})
        return Conclusion(ending="finished", **told)

    async def _tell_suspects(self, *, native: bool) -> None:
        suspects = self.diagnosis.suspects
        how = "by the lines that failing and passing tests executed" if self.diagnosis.traced else "without a trace"
        places = [{"file": s.file, "line": s.line, "score": round(s.score, 3)} for s in suspects]
        text = f"{len(suspects)} lines to suspect, located {how}"
        await self.work.record("note", {"text": text, "about": "suspects", "native": native, "suspects": places})

    def _charge(self, cost: Spent) -> None:
        """Count it. Over the limit it is noted, not raised, because what was paid for is still to be tested."""
        try:
            self.work.ledger.charge(cost)
        except BudgetExceededError as error:
            self.over = error

    def left(self, least: float = 0.0) -> float:
        """Seconds left of the task's wall clock. Raises BudgetExceededError where no more than ``least`` are."""
        left = self.work.ledger.seconds_left()
        if left <= least:
            raise self.work.ledger.late()
        return left

    def told(self) -> str:
        """The search so far in a few words."""
        suspects = len(self.diagnosis.suspects) if hasattr(self, "diagnosis") else 0
        drawn = [f"samples: {self.drawn - self.ruled}"] if self.drawn > self.ruled or not self.ruled else []
        drawn += [f"made by rule: {self.ruled}"] if self.ruled else []
        drawn += [f"functions written anew: {self.written}"] if self.written else []
        return f"suspicious lines: {suspects}, {', '.join(drawn)}, candidates tested: {self.tried}"

    def ended(self, ending: Ending, summary: str) -> Conclusion:
        """A conclusion without a repair."""
        return Conclusion(ending=ending, summary=summary, model=self.model)


def _objection(diagnosis: Diagnosis) -> str:
    """Why there is nothing to search; empty where there is."""
    base = diagnosis.base
    if base.exit_code == 0:
        return "all tests pass already: sampled repair needs a failing test to tell a repair from any other change"
    if base.exit_code in (126, 127):
        return (
            f"the test command cannot be run in the sandbox: {history.shorten(history.clean(base.tail).strip(), 300)}"
        )
    if not diagnosis.suspects:
        return "no line of the sources could be suspected: the failing tests execute none outside the tests themselves"
    return ""


def _summed(run: TestRun) -> dict[str, Any]:
    return {"exit_code": run.exit_code, "seconds": run.seconds, "timed_out": run.timed_out}


def _past_samples(work: Work) -> dict[tuple[Any, ...], tuple[str, ...]]:
    calls = (step.data for step in work.past if step.kind == "model_call" and "ask" in step.data)
    return {tuple(data["ask"]): tuple(data["texts"]) for data in calls}


def _past_verdicts(work: Work) -> dict[tuple[str, int, str], bool]:
    tried = (step.data for step in work.past if step.kind == "candidate")
    return {(data["file"], data["line"], data["new"]): data["passed"] for data in tried}


async def _cancel(tasks: dict[asyncio.Task[Any], Any]) -> None:
    """End tasks and wait until they have cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()
