"""One run of `pool_agents`: the agents of one contender in their closed loop, and what was seen of them."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field

from benchmarks.agent_fleet import Fleet, Plan
from benchmarks.agent_sessions import Session, Sessions, usual
from benchmarks.agent_ways import Outcome, Way
from pool.pretend.minds import FILLER

TICK = 0.02
LOST, LATE = 0.02, 0.1  # share of the window, and seconds at pace 1, from which a run counts as disturbed
PATIENCE = 1.0  # seconds before a failed call is sent again
TRIES = 3


@dataclass
class Run:
    """What one contender did with one seed. ``busy`` are shares of a processor: of this program, and of the engines;
    ``lost`` are seconds of each engine's time for which no processor was there, ``late`` is by how much this program
    woke too late (p99, seconds). A ``disturbed`` run tells more of the machine than of its contender."""

    tokens: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    hit: float = 0.0
    calls: int = 0
    failed: int = 0
    preempted: int = 0
    lost: float = 0.0
    late: float = 0.0
    busy: tuple[float, float] = (0.0, 0.0)
    disturbed: bool = False


@dataclass
class Loop:
    """The agents of one run."""

    way: Way
    model: str
    sessions: Sessions
    pace: float
    outcomes: list[Outcome] = field(default_factory=list)
    started: int = 0

    async def agent(self, number: int) -> None:
        """One place in the fleet: session after session until the end."""
        session = self.sessions.session(number, under_way=True)
        await asyncio.sleep(0.002 * number)
        while True:
            await self.work(session)
            self.started += 1
            session = self.sessions.session(10_000 + self.started)

    async def work(self, session: Session) -> None:
        """One session, turn by turn."""
        said: list[dict[str, str]] = [{"role": "system", "content": session.system}]
        for index, turn in enumerate(session.turns):
            said.append({"role": "user", "content": turn.text})
            if index >= session.begin:
                if not await self.turn(session.name, said, turn.output):
                    break
                self.way.acting(session.name, turn.tool, usual(turn.tool) * self.pace)
                await asyncio.sleep(turn.gap * self.pace)
            said.append({"role": "assistant", "content": FILLER * turn.output})
        self.way.ended(session.name)

    async def turn(self, session: str, said: list[dict[str, str]], output: int) -> bool:
        """One turn, sent again when it fails."""
        body = {
            "model": self.model,
            "messages": said,
            "max_tokens": output,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,  # each answer is as long as the session says, whatever the model
        }
        for _ in range(TRIES):
            outcome = Outcome(time.monotonic())
            self.outcomes.append(outcome)
            await self.way.call(session, body, outcome)
            outcome.end(time.monotonic())
            if not outcome.error:
                return True
            await asyncio.sleep(PATIENCE * self.pace)
        return False


async def lateness(into: list[float]) -> None:
    """Notes by how much each short sleep of this program was too long."""
    while True:
        asked = time.monotonic()
        await asyncio.sleep(TICK)
        into.append(time.monotonic() - asked - TICK)


async def measure(plan: Plan, way: Way, engines: Fleet, seed: int) -> Run:
    """One run of one contender."""
    loop = Loop(way, engines.engines.model, Sessions(seed, plan.shrink), plan.pace)
    agents = [asyncio.create_task(loop.agent(number)) for number in range(plan.agents)]
    await asyncio.sleep(plan.warmup)
    lost = await asyncio.to_thread(engines.total, "vllm:num_preemptions_total")
    late = await asyncio.to_thread(engines.total, "pretend:lost_seconds_total")
    start, mine, theirs = time.monotonic(), time.process_time(), engines.seconds()
    late_by: list[float] = []
    watch = asyncio.create_task(lateness(late_by))
    await asyncio.sleep(plan.window)
    watch.cancel()
    end, busy = time.monotonic(), time.process_time() - mine
    for agent in agents:
        agent.cancel()
    over = await asyncio.gather(*agents, return_exceptions=True)
    if broken := [one for one in over if isinstance(one, Exception)]:
        raise broken[0]
    run = summary(loop.outcomes, start, end)
    run.preempted = int(await asyncio.to_thread(engines.total, "vllm:num_preemptions_total") - lost)
    run.lost = (await asyncio.to_thread(engines.total, "pretend:lost_seconds_total") - late) / plan.engines
    run.late = _rank(sorted(late_by), 0.99) if late_by else math.inf
    run.disturbed = run.lost > LOST * (end - start) or run.late > LATE * plan.pace
    run.busy = busy / (end - start), (engines.seconds() - theirs) / (end - start)
    return run


def summary(outcomes: list[Outcome], start: float, end: float) -> Run:
    """The figures of a window."""
    ended = [one for one in outcomes if one.ended is not None and start <= one.ended <= end and not one.error]
    sent = [one for one in outcomes if start <= one.sent < end]
    failed = [one for one in sent if one.error and one.ended is not None and one.ended <= end]
    waits = sorted(math.inf if one in failed else one.ttft if one.ttft is not None else end - one.sent for one in sent)
    return Run(
        tokens=sum(one.output for one in ended) / (end - start),
        p50=_rank(waits, 0.5),
        p99=_rank(waits, 0.99),
        hit=sum(one.cached for one in ended) / max(1, sum(one.prompt for one in ended)),
        calls=len(sent),
        failed=len(failed),
    )


def _rank(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan
