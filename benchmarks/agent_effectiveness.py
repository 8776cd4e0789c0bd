"""How many bugs our ways repair, and mini-swe-agent: same model, tasks, token budget, sandboxes, gateway and judge.

    python -m benchmarks.agent_effectiveness [--quick] [--endpoint URL --model NAME [--tools native|text]]
        [--weights FILE] [--cases humanevalfix:N,mutants:N] [--ways auto,agent,...,mini-text] [--tokens N] [--seconds N]
        [--jobs N] [--limit SECONDS] [--mini FOLDER] [--temperature T] [--out DIR]

Without --endpoint a model is served here by llama.cpp: --weights, else the first of CODERS in the project's cache, else
the embedded default. What each try may spend is counted by the servers' own counts of tokens, cached ones as well, for
both sides alike; a try is solved where hidden tests pass on the tree that it left, however it ended. Cases are drawn
with a fixed seed. Of our ways `mutation_repair` asks no model at all: it shows how much of another way's result is the
search's and not the model's, and on the set `mutants`, whose bugs are made by rules like its own, it says nothing else.
The baseline is whichever of mini-swe-agent's own ways solves more here (native tool calls alone where the server has
them). An --out that is there is gone on with. Needs the extra [eval]. The last line is one JSON object. Exits with 1
where the first of our ways solves fewer than the baseline, with 2 where not every try could be made.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import effectiveness_mini as mini
from pool.config import EmbeddedConfig, EndpointConfig, PoolConfig
from pool.errors import PoolError
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxError
from swarm.config import Settings
from swarm.errors import SwarmError
from swarm.evaluation.case import Case
from swarm.evaluation.making import make
from swarm.evaluation.plan import Plan, Way
from swarm.evaluation.report import Report
from swarm.evaluation.results import Folder, Standing, Try
from swarm.evaluation.runner import Bounds, Runner
from swarm.evaluation.scores import Score
from swarm.evaluation.sets.catalogue import set_named
from swarm.types import Budget
from swarm.wiring import evaluating

TIER = "bench"
SEED = 0
GOAL = 1.5  # of the baseline's solved
CODERS = ("Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf")
WINDOW = 8192
_TOLD = {
    *("solved", "delivered", "tries", "broken", "share", "interval", "tokens", "cached", "completion", "steps"),
    *("tokens_per_solved", "tokens_interval", "wall", "endings"),
}
_WAYS = ("auto", "agent", "sampled_repair", "mutation_repair", *mini.NAMES)
_STEPS = 1000  # turns are no bound here: tokens are


def drawn(wanted: str) -> dict[str, Case]:
    """The cases of "NAME:N,NAME:N", by id. Of a set that is made on the fly the first N, else N drawn from all."""
    found: dict[str, Case] = {}
    for part in wanted.split(","):
        name, _, count = part.partition(":")
        cases, number = set_named(name).cases(), int(count)
        if name == "mutants":
            chosen = [case for case, _ in zip(cases, range(number), strict=False)]
        else:
            every = list(cases)
            chosen = random.Random(SEED).sample(every, min(number, len(every)))  # noqa: S311  anyone may repeat it
        found |= {case.id: case for case in chosen}
    return found


def weights(told: str | None) -> str | None:
    """The file to serve; None for the embedded default."""
    cache = Path(os.environ.get("AGENT_SWARM_CACHE", "/var/cache/agent-swarm")) / "weights"
    there = [str(cache / name) for name in CODERS if (cache / name).is_file()]
    return told or next(iter(there), None)


def settings(options: argparse.Namespace, scratch: Path) -> Settings:
    """What both sides run on."""
    shown: dict[str, str] = {}
    if any(way in mini.NAMES for way in options.ways):
        shown[mini.INSIDE] = str(mini.packages(options.mini, scratch))
    if options.endpoint:
        endpoint = EndpointConfig(
            name="bench", url=options.endpoint, tier=TIER, model=options.model, tools=options.tools or "auto"
        )
        pool = PoolConfig(endpoints=(endpoint,))
    else:
        parallel, threads = max(1, options.jobs), max(1, (os.cpu_count() or 2) - 1)
        file = weights(options.weights)
        embedded = EmbeddedConfig(
            enabled=True, tier=TIER, weights=file, window=WINDOW, parallel=parallel, threads=threads
        )
        pool = PoolConfig(embedded=embedded)
    return Settings(pool=pool, sandbox=SandboxConfig(mounts=shown), agents=dict(mini.agents(options.temperature)))


async def measure(options: argparse.Namespace, folder: Path, state: Path) -> tuple[Report, str]:
    """Make all tries that are not made yet; why it stopped before the last, empty where it did not."""
    cases = await asyncio.to_thread(drawn, options.cases)
    ways = tuple(Way(strategy=f"cli:{way}" if way in mini.NAMES else way, tier=TIER) for way in options.ways)
    plan = Plan(
        program="benchmarks.agent_effectiveness",
        set=options.cases,
        origin=options.cases,
        licence="MIT",
        cases={name: case.digest for name, case in cases.items()},
        ways=ways,
        budget=Budget(tokens=options.tokens, wall=options.seconds, steps=_STEPS, attempts=1),
        seed=SEED,
    )

    def told(row: Try | Standing) -> None:
        if isinstance(row, Try):
            spent = f"{row.tokens:7} tokens {row.steps:3} turns {row.split.total:6.0f} s"
            print(
                f"{row.outcome:9} {row.strategy:20} {row.case:18} {spent}  {row.ending}  {row.reason[:60]}", flush=True
            )
        elif row.broken:
            print(f"no case: {row.case}: {row.broken}", flush=True)

    bounds = Bounds(jobs=options.jobs, seconds=options.limit)
    async with evaluating(settings(options, state.parent), state, models=True, climb=False) as means:
        why = await Runner(plan, cases, means, Folder(folder), bounds, told).run()
    return make(Folder(folder)), why


def summed(report: Report, stopped: str) -> dict[str, Any]:
    """The benchmark's figures: the first of our ways against the better of the baseline's."""
    theirs = [score for score in report.scores if score.strategy.startswith("cli:mini-")]
    ours = [score for score in report.scores if score not in theirs]
    found: dict[str, Any] = {
        "model": sorted({model for score in report.scores for model in score.models}),
        "cores": os.cpu_count(),
        "cases": len(report.run.cases),
        "tokens_each": report.run.budget.tokens,
        "ways": {score.strategy: _figures(score) for score in report.scores},
        "stopped": stopped,
    }
    if not ours or not theirs:
        return found
    base = max(theirs, key=lambda score: (score.solved, -score.tokens))
    own = ours[0]
    found |= {
        "way": own.strategy,
        "baseline": base.strategy,
        "solved": own.solved,
        "solved_interval": own.interval,
        "solved_baseline": base.solved,
        "solved_baseline_interval": base.interval,
        "tokens_per_solved": own.tokens_per_solved,
        "tokens_per_solved_interval": own.tokens_interval,
        "tokens_per_solved_baseline": base.tokens_per_solved,
        "tokens_per_solved_baseline_interval": base.tokens_interval,
    }
    for one in report.comparisons:
        if {own.name, base.name} == {one.ours, one.theirs}:
            turned = one.ours == base.name
            found |= {"compared": one.words, "ratio": _inverse(one.ratio) if turned else one.ratio}
            low, high = one.ratio_interval
            found["ratio_interval"] = [_inverse(high), _inverse(low)] if turned else [low, high]
            found["p"] = one.p
    found["goal"] = own.solved >= GOAL * base.solved and own.solved > 0
    return found


def _figures(score: Score) -> dict[str, Any]:
    return {key: value for key, value in score.model_dump(mode="json").items() if key in _TOLD}


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None


def show(report: Report) -> None:
    """A table for people."""
    print(f"\n{'':22}{'solved':>10}{'95 %':>15}{'tokens':>10}{'a solved one':>14}{'turns':>8}  how it ended")
    for score in report.scores:
        low, high = (f"{end:.0%}" if end is not None else "-" for end in score.interval)
        each = f"{score.tokens_per_solved:.0f}" if score.tokens_per_solved else "-"
        ends = ", ".join(f"{name} {count}" for name, count in score.endings.items())
        print(
            f"{score.strategy:22}{score.solved:>6}/{score.tries:<4}{low:>8} to {high:<5}{score.tokens:>9}{each:>14}"
            f"{score.steps:>8}  {ends}"
        )
    for one in report.comparisons:
        print(one.words)


def arguments() -> argparse.Namespace:
    """What was asked for, with what is usual put in."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two cases and a small budget")
    parser.add_argument("--endpoint", help="an OpenAI-compatible server; default: llama.cpp, here")
    parser.add_argument("--model", help="the model to ask it for")
    parser.add_argument("--tools", choices=["native", "text"], help="how it speaks tool calls; default: probed")
    parser.add_argument("--weights", help="a GGUF file to serve here")
    parser.add_argument("--cases", help="NAME:N,NAME:N of the sets that need no folder")
    parser.add_argument("--ways", help="our strategies, the first one first, and mini-text, mini-tools")
    parser.add_argument("--tokens", type=int, help="tokens that one try may take")
    parser.add_argument("--seconds", type=float, default=600.0, help="seconds that one try may take")
    parser.add_argument("--jobs", type=int, default=1, help="tries at a time")
    parser.add_argument("--limit", type=float, help="seconds for all; a later run goes on")
    parser.add_argument("--mini", type=Path, help="folder with mini-swe-agent's packages; default: pip fills the cache")
    parser.add_argument("--temperature", type=float, help="of mini-swe-agent; default: the server's")
    parser.add_argument("--out", type=Path, help="the run's folder, kept; one that is there is gone on with")
    options = parser.parse_args()
    options.cases = options.cases or ("humanevalfix:2" if options.quick else "humanevalfix:40")
    options.tokens = options.tokens or (8_000 if options.quick else 30_000)
    options.ways = options.ways.split(",") if options.ways else list(_WAYS)
    if not options.endpoint or options.tools == "text":  # without native calls it ends at once
        options.ways = [way for way in options.ways if way != "mini-tools"]
    return options


def main() -> int:
    """Measure, print."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="effectiveness-") as scratch:
        folder = (options.out or Path(scratch) / "run").absolute()
        state = Path(scratch) / "state"
        state.mkdir()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            report, stopped = asyncio.run(measure(options, folder, state))
        except (SwarmError, PoolError, SandboxError) as error:
            print(f"the benchmark cannot run: {error} {getattr(error, 'mend', '')}", file=sys.stderr)
            return 2
        show(report)
        figures = summed(report, stopped)
        print(json.dumps(figures))
    if stopped or report.made < report.planned or any(score.broken for score in report.scores):
        return 2
    return 0 if figures.get("solved", 0) >= figures.get("solved_baseline", 0) else 1


if __name__ == "__main__":
    sys.exit(main())
