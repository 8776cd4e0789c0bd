"""Coding agents in a closed loop over pretend engines: our pool against plain ways and against routers of others.

    python -m benchmarks.pool_agents [--quick] [--engines 4 16] [--seeds 5] [--only NAME ...] [--lanes N]
    python -m benchmarks.pool_agents --servers URL URL [--shrink 8] [--regimes scarce]

Each agent sends a turn, reads the answer, runs its tool and sends the next turn, with all that was said before; when a
session is over, the next one takes its place, so that every contender carries the same number of agents. The engines
(`pool.pretend`) run in processes of their own with the defaults of `EngineSettings`, untouched by who asks them:
KV-rich with 524,288 tokens of KV each, KV-scarce with 98,304, which is less than half of what the live sessions fill.
Their caches are emptied before each run. Contenders take turns within each seed, so that a busy neighbour hits all
alike; with --lanes so many runs go side by side, each with engines and processors of its own. With --servers they are
real ones that stand already (vLLM with VLLM_SERVER_DEV_MODE=1, so that caches can be emptied), and --regimes tells
which kind they are. Tokens are counted of answers that ended within the window; TTFT percentiles are over all calls
sent in it, with failed ones at infinity and those without a first token at what they had waited. The last line is one
JSON object: tokens per second of ours over the best of the others, the worst of the fleets, and p99 TTFT of ours over
that same best one. Runs in which processors were missing are marked as disturbed: then take a quieter machine or a
larger --pace. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
from typing import IO, Any

from benchmarks.agent_fleet import BLOCKS, Plan, fleet
from benchmarks.agent_lanes import Cell, abreast
from benchmarks.agent_run import Run, measure
from benchmarks.agent_ways import OURS, WAYS

GOALS = {"rich": 1.25, "scarce": 1.5}
AGENTS = 16  # of each engine
PACE = {4: 0.5, 16: 1.0}  # times the defaults' durations: a larger fleet runs slower, so that processors keep up
QUICK = ("ours", "round-robin", "sticky", "vllm-router/cache_aware", "sglang-router/cache_aware")


Runs = dict[str, list[Run]]  # by contender, a run for each seed


async def contest(plan: Plan, names: list[str], seeds: list[int], log: IO[bytes]) -> Runs:
    """Everybody with every seed over one fleet."""
    runs: Runs = {name: [] for name in names}
    with fleet(plan, log) as engines:
        for seed in seeds:
            order = names[seed % len(names) :] + names[: seed % len(names)]
            for name in order:
                engines.forget()
                try:
                    async with WAYS[name](engines.engines, log) as way:
                        runs[name].append(await measure(plan, way, engines, seed))
                except (FileNotFoundError, TimeoutError) as error:
                    print(f"blocked: {name}: {type(error).__name__} {error}", flush=True)
                    continue
                print(f"  {plan.engines} engines {plan.regime} seed {seed} {line(name, runs[name][-1:])}", flush=True)
    return {name: found for name, found in runs.items() if found}


def side_by_side(plans: list[Plan], names: list[str], seeds: list[int], lanes: int, log: IO[bytes]) -> list[Runs]:
    """The same with several runs at once: those with one seed start together."""
    cells = [Cell(plan, name, seed) for plan in plans for seed in seeds for name in names]
    seen = asyncio.run(abreast(cells, lanes, log))
    found = [
        {name: [run for cell, run in seen if (cell.plan, cell.name) == (plan, name)] for name in names}
        for plan in plans
    ]
    return [{name: runs for name, runs in of_plan.items() if runs} for of_plan in found]


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


def ratio(runs: Runs, mine: str = "ours") -> tuple[float | None, float | None]:
    """Ours over the best of the others: tokens per second, and the p99 TTFT of that same one."""
    others = {name: statistics.median(run.tokens for run in found) for name, found in runs.items() if name not in OURS}
    if mine not in runs or not others:
        return None, None
    best = max(others, key=others.__getitem__)
    ttft = [statistics.median(run.p99 for run in runs[name]) for name in (mine, best)]
    tokens = statistics.median(run.tokens for run in runs[mine]) / others[best]
    return round(tokens, 3), round(ttft[0] / ttft[1], 3) if math.isfinite(ttft[1]) and ttft[1] else None


def compare(plans: list[Plan], runs: list[Runs]) -> dict[str, Any]:
    """What people see of all plans, and the last line."""
    told: dict[str, Any] = {"disturbed": 0, "runs": 0}
    ratios: dict[str, list[float]] = {"rich": [], "scarce": [], "ttft": []}
    for plan, seen in zip(plans, runs, strict=True):
        print(f"{plan.engines} engines, KV-{plan.regime}, {plan.agents} agents, {plan.window:g} s:")
        for name, found in sorted(seen.items(), key=lambda pair: -statistics.median(run.tokens for run in pair[1])):
            print(f"  {line(name, found)}")
        told["runs"] += sum(len(found) for found in seen.values())
        told["disturbed"] += sum(run.disturbed for found in seen.values() for run in found)
        for mine in OURS:
            tokens, ttft = ratio(seen, mine)
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
    parser.add_argument("--lanes", type=int, default=1, help="runs at once, each with its share of the processors")
    parser.add_argument(
        "--servers", nargs="+", metavar="URL", help="real servers that stand already; --regimes says how"
    )
    parser.add_argument("--shrink", type=float, default=1.0, help="divides the sessions' lengths, for small servers")
    told = parser.parse_args()
    if told.servers:
        told.engines, told.regimes = [len(told.servers)], told.regimes[:1]
        if told.lanes > 1:
            parser.error("--servers stand once: take --lanes 1")
    return told


def plan(told: argparse.Namespace, engines: int, regime: str) -> Plan:
    """One fleet's plan."""
    pace = told.pace or (1.0 if told.servers else PACE.get(engines, engines / 16))
    return Plan(
        engines,
        regime,
        told.agents * engines,
        pace,
        told.warmup * pace,
        told.window * pace,
        told.shrink,
        tuple(told.servers or ()),
    )


def main() -> int:
    """Run it."""
    told = arguments()
    if told.quick:
        told.engines, told.seeds, told.agents, told.pace, told.warmup, told.window = [4], 1, 8, 0.2, 9.0, 9.0
        told.only = [name for name in told.only if name in QUICK]
    plans = [plan(told, engines, regime) for engines in told.engines for regime in told.regimes]
    with tempfile.TemporaryFile(prefix="agents-log-") as log:
        seeds = list(range(1, told.seeds + 1))
        if told.lanes > 1:
            runs = side_by_side(plans, told.only, seeds, told.lanes, log)
        else:
            runs = [asyncio.run(contest(plan, told.only, seeds, log)) for plan in plans]
        result = compare(plans, runs)
    print(json.dumps(result))
    missed = any((result[f"ratio_best_peer_{regime}"] or math.inf) < goal for regime, goal in GOALS.items())
    return int(missed or (result["p99_ttft_ratio"] or 0.0) > 1.0)


if __name__ == "__main__":
    sys.exit(main())
