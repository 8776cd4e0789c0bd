"""Asks a model for a suspected function as a whole, several times in one request, and lets tests and agreement choose.

Localise, sample whole repairs, filter by the tests, take the one that most samples agree on: the pipeline of Agentless
(Xia et al., 2024), on one function. It costs a fraction of a conversation, and asks of a small model only what it can
do: to write a function. Where no test fails, agreement alone has to decide, and more of it is asked for.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pool.errors import PoolError
from pool.types import ChatRequest, Message
from sandbox.base import Sandbox
from sandbox.types import Command
from swarm import evidence, history, recording
from swarm.budgets.prices import facts
from swarm.checks import run_tests
from swarm.errors import BudgetExceededError
from swarm.strategies.candidates import changed
from swarm.strategies.regions import Region, meaning, replaced, written
from swarm.strategies.sizes import parameters
from swarm.types import TestRun
from swarm.work import Work

ROUNDS = 4
SAMPLES, MORE = 6, 8  # of a request; where agreement alone decides
_HEAT = (0.5, 0.8, 1.0)  # temperatures, by round
_LATE = 0.5
_WRITES = 4e8  # parameters from which a model is asked for whole functions
_FAILURE, _TASK = 1800, 1200  # characters that are told
_PATIENCE = 4.0  # seconds that tests may take beside five times as long as the base's
_TIMES = re.compile(r"(?<=in )\d+(?:\.\d+)?s\b|0x[0-9a-f]{6,}|(?<=/tmp/)[\w.-]+|={3,}|-{5,}")
_SYSTEM = (
    "You repair functions. Answer with the whole corrected function in one fence and nothing else. Keep its name, its "
    "arguments and its docstring; change as little as will do."
)


@dataclass(frozen=True)
class Rewrite:
    """A region written anew, and how it did. ``meant`` names what the file says with it; ``tail`` is of its tests."""

    region: Region
    code: str
    meant: str
    passed: bool
    failing: int
    tail: str = ""

    @property
    def cost(self) -> int:
        """Characters changed."""
        return changed(self.region.text, self.code)


@dataclass
class Rewriter:
    """One search over a few regions. ``base`` are the tests on the workspace as it is.

    ``got`` counts the samples, those of earlier lives as well.
    """

    work: Work
    base: TestRun
    sources: Mapping[str, str]
    slots: asyncio.Semaphore
    model: str = ""
    got: int = 0
    tried: list[Rewrite] = field(default_factory=list)

    async def run(self, regions: Sequence[Region], *, rounds: int = ROUNDS) -> tuple[Rewrite, ...]:
        """What passes, of the first round in which anything does.

        Raises BudgetExceededError, PoolError and SandboxError.
        """
        failing = self.base.exit_code != 0
        for number in range(rounds if failing else 1):
            for region in regions:
                made = await self._round(region, number, samples=SAMPLES if failing else MORE)
                self.tried += made
                good = tuple(one for one in made if one.passed)
                if good:
                    return good
        return ()

    async def _round(self, region: Region, number: int, *, samples: int) -> list[Rewrite]:
        """Samples of one region, each distinct one tried; how often each came is told by how often it is returned."""
        answers = await self._answers(region, number, samples)
        self.got += len(answers)
        source = self.sources[region.file]
        codes = [code for answer in answers if (code := written(answer, region, source))]
        before = meaning(region.file, source)
        meant = {code: meaning(region.file, replaced(source, region, code)) for code in dict.fromkeys(codes)}
        firsts: dict[str, str] = {}
        for code, what in meant.items():
            if what and what != before:
                firsts.setdefault(what, code)
        done = await asyncio.gather(*(self._tried(region, code, what) for what, code in firsts.items()))
        by_meaning = {one.meant: one for one in done}
        return [by_meaning[meant[code]] for code in codes if meant[code] in by_meaning]

    async def _answers(self, region: Region, number: int, samples: int) -> tuple[str, ...]:
        key = ("function", region.file, region.first, number)
        past = (line.data for line in self.work.past if line.kind == "model_call" and "ask" in line.data)
        known = next((data for data in past if tuple(data["ask"]) == key), None)
        if known is not None:
            return tuple(str(text) for text in known["said"])
        self.work.ledger.admit()
        request = self._request(region, number, samples)
        try:
            reply = await self.work.pool.chat(request)
        except PoolError:
            self._left(least=_LATE)  # a call that ran into the end of the task's time is no fault of the pool's
            raise
        self.model = reply.model
        said = tuple(choice.content for choice in reply.choices)
        cost = self.work.ledger.bill(reply)
        data: dict[str, Any] = {"ask": list(key), "said": said, "texts": (), "request": recording.digest(request)}
        data |= {"model": reply.model, "endpoint": reply.endpoint, **reply.usage.model_dump(), "seconds": reply.seconds}
        await self.work.record("model_call", data | facts(reply, cost))
        try:
            self.work.ledger.charge(cost.model_copy(update={"steps": 1}))
        except BudgetExceededError:
            if not said:
                raise  # what was paid for is still to be tested
        return said

    def _request(self, region: Region, number: int, samples: int) -> ChatRequest:
        worst = [one for one in self.tried if one.region == region]
        best = min(worst, key=lambda one: (one.failing, one.cost), default=None)
        failure = steady(self.base.tail) if self.base.exit_code else ""
        user = told(region, self.work.task.request.instructions, failure, best)
        return ChatRequest(
            tier=self.work.tier,
            messages=(Message(role="system", content=_SYSTEM), Message(role="user", content=user)),
            session=self.work.attempt,
            program=self.work.task.id,
            max_tokens=min(2400, 200 + len(region.text) * 2 // 3),
            temperature=_HEAT[min(number, len(_HEAT) - 1)],
            n=samples,
            deadline=self._left(),
        )

    async def _tried(self, region: Region, code: str, meant: str) -> Rewrite:
        """A region's new text under the tests, in a fork; what the journal knows is not tried again."""
        past = (line.data for line in self.work.past if line.kind == "candidate")
        for data in past:
            if (data["file"], data["line"], data["new"]) == (region.file, region.first, code):
                return Rewrite(region, code, meant, bool(data["passed"]), int(data.get("failing", 0)), "")
        async with self.slots, self.work.sandbox.fork() as fork:
            await put(fork, region, replaced(self.sources[region.file], region, code))
            bound = min(self._left(), patience_for(self.base, _PATIENCE))
            run = await run_tests(fork, self.base.command, seconds=bound)
        passed = evidence.compare(self.base, run, None).verdict == "passed"
        failing = len(run.failed)
        told_of = {"file": region.file, "line": region.first, "new": code, "old": region.text, "function": region.name}
        ended = {"exit_code": run.exit_code, "seconds": run.seconds, "timed_out": run.timed_out, "failing": failing}
        await self.work.record("candidate", {**told_of, "passed": passed, **ended})
        return Rewrite(region, code, meant, passed, failing, steady(run.tail))

    def _left(self, least: float = 0.0) -> float:
        left = self.work.ledger.seconds_left()
        if left <= least:
            raise self.work.ledger.late()
        return left


async def can_write(work: Work) -> bool:
    """Whether the tier's model can be expected to write a function; a later life goes by what was told then.

    Raises PoolError.
    """
    told_of = (line.data["writes"] for line in work.past if "writes" in line.data)
    if (known := next(told_of, None)) is not None:
        return bool(known)
    traits = await work.pool.traits(work.tier)
    size = parameters(traits.model)
    writes = size is None or size >= _WRITES
    words = "functions are asked for as a whole" if writes else "the model is too small to write a function"
    about = {"tier": work.tier, "traits": traits.model_dump(mode="json")}
    await work.record("note", {"text": words, "writes": writes, **about})
    return writes


def told(region: Region, task: str, failure: str, before: Rewrite | None) -> str:
    """What is asked: the function, why it is thought wrong, and what was tried of it. Pure."""
    language = "python" if region.file.endswith(".py") else ""
    parts = [history.shorten(task.strip(), _TASK)]
    imports = f"{region.imports}\n\n" if region.imports else ""
    parts.append(f"{region.file}:\n```{language}\n{imports}{region.text}\n```")
    if failure:
        parts.append(f"Its tests say:\n```\n{failure}\n```")
    if before is not None:
        tail = f"\nThen its tests say:\n```\n{before.tail}\n```" if before.tail else ""
        parts.append(f"This was tried and is still wrong:\n```{language}\n{before.code}\n```{tail}")
    parts.append(f"Write {f'`{region.name}`' if region.name else 'the file'} anew, without its bug.")
    return "\n\n".join(parts)


def steady(text: str) -> str:
    """The end of what tests printed, without what differs from run to run, so that a replay asks the same."""
    return history.shorten(_TIMES.sub("", history.clean(text)).strip(), _FAILURE)


def patience_for(base: TestRun, more: float) -> float:
    """Seconds that a candidate's tests may take; where the base's never ended nobody knows how long is long."""
    return 2 * more if base.timed_out else more + 5 * base.seconds


def agreed(rewrites: Sequence[Rewrite]) -> tuple[Rewrite, int] | None:
    """The one that most of these mean, the smallest change among equals, and how many do; None of nothing. Pure."""
    counts = Counter(one.meant for one in rewrites)
    best = max(rewrites, key=lambda one: (counts[one.meant], -one.cost), default=None)
    return None if best is None else (best, counts[best.meant])


async def put(sandbox: Sandbox, region: Region, source: str) -> None:
    """Write a file with a region anew, its mode as it is."""
    executable = (await sandbox.run(Command(argv=("test", "-x", region.file)))).exit_code == 0
    await sandbox.write(region.file, source.encode("utf-8", "surrogateescape"), executable=executable)
