"""Coding agents in a closed loop over pretend engines: our pool against plain ways and against routers of others.

    python -m benchmarks.pool_agents [--quick] [--engines 4 16] [--seeds 5] [--only NAME ...]

Each agent sends a turn, reads the answer, runs its tool and sends the next turn, with all that was said before; when a
session is over, the next one takes its place, so that every contender carries the same number of agents. The engines
(`pool.pretend`) run in processes of their own with the defaults of `EngineSettings`, untouched by who asks them:
KV-rich with 524,288 tokens of KV each, KV-scarce with 98,304, which is less than half of what the live sessions fill.
Their caches are emptied before each run. Contenders take turns within each seed, so that a busy neighbour hits all
alike. Tokens are counted of answers that ended within the window; TTFT percentiles are over all calls sent in it, with
failed ones at infinity and those without a first token at what they had waited. The last line is one JSON object:
tokens per second of ours over the best of the others, the worst of the fleets, and p99 TTFT of ours over that same
best one. Runs in which processors were missing are marked as disturbed: then take a quieter machine or a larger
--pace. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.agent_sessions import Session, Sessions, usual
from benchmarks.agent_ways import MODEL, OURS, WAYS, Outcome, Way
from benchmarks.pool_overhead import running
from pool.pretend.minds import FILLER

BLOCKS = {"rich": 32_768, "scarce": 6_144}
GOALS = {"rich": 1.25, "scarce": 1.5}
AGENTS = 16  # of each engine
PROCESSES = 2  # that share the engines
PACE = {4: 0.5, 16: 1.0}  # times the defaults' durations: a larger fleet runs slower, so that processors keep up
QUICK = ("ours", "round-robin", "sticky", "vllm-router/cache_aware", "sglang-router/cache_aware")
TICK = 0.02
LOST, LATE = 0.02, 0.1  # share of the window, and seconds at pace 1, from which a run counts as disturbed
PATIENCE = 1.0  # seconds before a failed call is sent again
TRIES = 3


@dataclass(frozen=True)
class Plan:
    """How one run is measured: seconds before the window and of it; ``pace`` is how many times as long as by default
    everything takes, engines and tools alike."""

    engines: int
    regime: str
    agents: int
    pace: float
    warmup: float
    window: float


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
            "model": MODEL,
            "messages": said,
            "max_tokens": output,
            "stream": True,
            "stream_options": {"include_usage": True},
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


class Fleet:
    """The engines of one run, as started: their addresses and their processes."""

    def __init__(self, urls: list[str], pids: list[int]) -> None:
        self.urls = urls
        self._pids = pids

    def forget(self) -> None:
        """Empty every cache, once nothing runs any more."""
        for url in self.urls:
            while self._metric(url, "vllm:num_requests_running") + self._metric(url, "vllm:num_requests_waiting"):
                time.sleep(0.05)
            request = urllib.request.Request(f"{url}/reset_prefix_cache", b"", method="POST")  # noqa: S310  loopback
            with urllib.request.urlopen(request, timeout=10):  # noqa: S310
                pass

    def total(self, name: str) -> float:
        """A metric, summed over the engines."""
        return sum(self._metric(url, name) for url in self.urls)

    def seconds(self) -> float:
        """Processor time that they used."""
        ticks = os.sysconf("SC_CLK_TCK")
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in self._pids]
        return sum(int(row[11]) + int(row[12]) for row in fields) / ticks

    @staticmethod
    def _metric(url: str, name: str) -> float:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:  # noqa: S310  loopback
            lines = page.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


@contextmanager
def fleet(plan: Plan, log: IO[bytes]) -> Iterator[Fleet]:
    """Start the engines in a few processes."""
    base = {"step-base": 0.006, "step-per-sequence": 0.00035, "prefill-per-token": 1 / 8000}
    told = [part for name, value in base.items() for part in (f"--{name}", repr(value * plan.pace))]
    told += ["--num-gpu-blocks", str(BLOCKS[plan.regime]), "--stream-interval", "32", "--window", "65536"]
    with ExitStack() as stack:
        urls: list[str] = []
        pids = []
        for share in range(PROCESSES):
            engines = len(range(share, plan.engines, PROCESSES))
            command = [sys.executable, "-m", "pool.pretend.serve", "--engines", str(engines), *told]
            child = stack.enter_context(running(command, log, stdout=subprocess.PIPE))
            pids.append(child.pid)
            assert child.stdout is not None  # noqa: S101  asked for above
            urls += child.stdout.readline().decode().split()[1:]
        yield Fleet(urls, pids)


async def lateness(into: list[float]) -> None:
    """Notes by how much each short sleep of this program was too long."""
    while True:
        asked = time.monotonic()
        await asyncio.sleep(TICK)
        into.append(time.monotonic() - asked - TICK)


async def measure(plan: Plan, way: Way, engines: Fleet, seed: int) -> Run:
    """One run of one contender."""
    loop = Loop(way, Sessions(seed), plan.pace)
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


async def contest(plan: Plan, names: list[str], seeds: list[int], log: IO[bytes]) -> dict[str, list[Run]]:
    """Everybody with every seed over one fleet."""
    runs: dict[str, list[Run]] = {name: [] for name in names}
    with fleet(plan, log) as engines:
        for seed in seeds:
            order = names[seed % len(names) :] + names[: seed % len(names)]
            for name in order:
                engines.forget()
                try:
                    async with WAYS[name](engines.urls, log) as way:
                        runs[name].append(await measure(plan, way, engines, seed))
                except (FileNotFoundError, TimeoutError) as error:
                    print(f"blocked: {name}: {type(error).__name__} {error}", flush=True)
                    continue
                print(f"  {plan.engines} engines {plan.regime} seed {seed} {line(name, runs[name][-1:])}", flush=True)
    return {name: found for name, found in runs.items() if found}


def line(name: str, runs: list[Run]) -> str:
    """A contender's figures for people."""
    tokens = [run.tokens for run in runs]
    spread = f" ({min(tokens):.0f} to {max(tokens):.0f})" if len(runs) > 1 else ""
    middle = {what: statistics.median(getattr(run, what) for run in runs) for what in ("p50", "p99", "hit")}
    lost, late = (max(getattr(run, what) for run in runs) for what in ("lost", "late"))
    disturbed = sum(run.disturbed for run in runs)
    busy = [max(run.busy[who] for run in runs) for who in (0, 1)]
    counts = {what: sum(getattr(run, what) for run in runs) for what in ("calls", "failed", "preempted")}
    return (
        f"{name:28} {statistics.median(tokens):6.0f} tok/s{spread}"
        f"  TTFT p50 {middle['p50']:.2f} p99 {middle['p99']:.2f} s  hit {middle['hit']:.0%}"
        f"  calls {counts['calls']} failed {counts['failed']} preempted {counts['preempted']}"
        f"  processors: this {busy[0]:.0%}, engines {busy[1]:.0%}, lost {lost:.2f} s, late {late:.2f} s"
        + (f"  DISTURBED: {disturbed} of {len(runs)}" if disturbed else "")
    )


def ratio(runs: dict[str, list[Run]], mine: str = "ours") -> tuple[float | None, float | None]:
    """Ours over the best of the others: tokens per second, and the p99 TTFT of that same one."""
    others = {name: statistics.median(run.tokens for run in found) for name, found in runs.items() if name not in OURS}
    if mine not in runs or not others:
        return None, None
    best = max(others, key=others.__getitem__)
    ttft = [statistics.median(run.p99 for run in runs[name]) for name in (mine, best)]
    tokens = statistics.median(run.tokens for run in runs[mine]) / others[best]
    return round(tokens, 3), round(ttft[0] / ttft[1], 3) if math.isfinite(ttft[1]) and ttft[1] else None


def compare(plans: list[Plan], names: list[str], seeds: list[int], log: IO[bytes]) -> dict[str, Any]:
    """All plans, and the last line."""
    told: dict[str, Any] = {"disturbed": 0, "runs": 0}
    ratios: dict[str, list[float]] = {"rich": [], "scarce": [], "ttft": []}
    for plan in plans:
        runs = asyncio.run(contest(plan, names, seeds, log))
        print(f"{plan.engines} engines, KV-{plan.regime}, {plan.agents} agents, {plan.window:g} s:")
        for name, found in sorted(runs.items(), key=lambda pair: -statistics.median(run.tokens for run in pair[1])):
            print(f"  {line(name, found)}")
        told["runs"] += sum(len(found) for found in runs.values())
        told["disturbed"] += sum(run.disturbed for found in runs.values() for run in found)
        for mine in OURS:
            tokens, ttft = ratio(runs, mine)
            told[f"{mine}_{plan.engines}_{plan.regime}"] = tokens
            if mine == "ours" and tokens is not None:
                ratios[plan.regime].append(tokens)
                ratios["ttft"] += [ttft] if ttft is not None else []
    return {
        "ratio_best_peer_rich": min(ratios["rich"], default=None),
        "ratio_best_peer_scarce": min(ratios["scarce"], default=None),
        "p99_ttft_ratio": max(ratios["ttft"], default=None),
        **told,
    }


def arguments() -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round over 4 engines, under a minute")
    parser.add_argument("--engines", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--agents", type=int, default=AGENTS, help="of each engine")
    parser.add_argument("--pace", type=float, help="times the default durations; default: by the fleet's size")
    parser.add_argument("--warmup", type=float, default=36.0, help="seconds, times the pace")
    parser.add_argument("--window", type=float, default=30.0, help="seconds, times the pace")
    parser.add_argument("--regimes", nargs="+", choices=sorted(BLOCKS), default=["rich", "scarce"])
    parser.add_argument("--only", nargs="+", choices=sorted(WAYS), default=list(WAYS))
    return parser.parse_args()


def plan(told: argparse.Namespace, engines: int, regime: str) -> Plan:
    """One fleet's plan."""
    pace = told.pace or PACE.get(engines, engines / 16)
    return Plan(engines, regime, told.agents * engines, pace, told.warmup * pace, told.window * pace)


def main() -> int:
    """Run it."""
    told = arguments()
    if told.quick:
        told.engines, told.seeds, told.agents, told.pace, told.warmup, told.window = [4], 1, 8, 0.2, 9.0, 9.0
        told.only = [name for name in told.only if name in QUICK]
    plans = [plan(told, engines, regime) for engines in told.engines for regime in told.regimes]
    with tempfile.TemporaryFile(prefix="agents-log-") as log:
        result = compare(plans, told.only, list(range(1, told.seeds + 1)), log)
    print(json.dumps(result))
    missed = any((result[f"ratio_best_peer_{regime}"] or math.inf) < goal for regime, goal in GOALS.items())
    return int(missed or (result["p99_ttft_ratio"] or 0.0) > 1.0)


if __name__ == "__main__":
    sys.exit(main())
