"""How often the embedded model repairs the sample repository's bug, in real sandboxes, against what does without.

    python -m benchmarks.repair [--quick] [--runs N] [--threads N]

Three ways in one go, each run on a fresh checkout: sampled repair as the product does it; the same without localisation
(every statement of the sources is asked about alike); and the same search with token swaps in place of the model. The
last one is no rival but a measure of how much of the work the localisation and the tests do. Every run may take 120 s.
The last line is one JSON object. Exits with 1 where the product's way falls short of 49 in 50.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import math
import os
import re
import statistics
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pool.config import EmbeddedConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.errors import PoolError
from pool.router import Pool
from sandbox.base import Sandbox, SandboxBackend
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxError
from sandbox.factory import chosen_backend
from sandbox.types import SandboxSpec
from swarm.budgets.ledger import BudgetLedger
from swarm.checks import run_tests
from swarm.strategies import localise
from swarm.strategies.asking import Rung, Samples
from swarm.strategies.repair import Bounds, SampledRepair
from swarm.strategies.spectrum import Suspect
from swarm.types import Budget, Spent, Task, TaskRequest
from swarm.work import Chat, Strategy, Work

SAMPLE = Path(__file__).parent.parent / "examples" / "sample-repository"
TESTS = "python3 -m pytest -q"
WANTED = 49 / 50
WALL = 120.0
FEW = 3
Open = Callable[[], AbstractAsyncContextManager[Sandbox]]


@dataclass(frozen=True)
class Run:
    """One repair: whether the tests pass afterwards, in how many seconds, after how many samples and candidates."""

    solved: bool
    seconds: float
    samples: int
    candidates: int
    summary: str


@dataclass(frozen=True)
class Way:
    """One of the compared ways and how often it is run."""

    name: str
    strategy: Callable[[], Strategy]
    runs: int


async def swap_tokens(work: Work, suspect: Suspect, rung: Rung, failure: str, deadline: float) -> Samples:  # noqa: ARG001
    """Mutation instead of a model: each operator, number and name of the line for another one of its kind."""
    kinds = (["<", "<=", ">", ">=", "==", "!="], ["+", "-", "*", "//", "%"], ["and", "or"], ["True", "False"])
    names = sorted(set(re.findall(r"\b[a-z_]\w*\b", suspect.around)))
    found = []
    for match in re.finditer(r"\w+|[<>=!]=|//|[-+*<>%]", suspect.text):
        token = match.group()
        others = [other for kind in kinds if token in kind for other in kind]
        others += [str(int(token) + step) for step in (-1, 1)] if token.isdigit() else []
        others += names if token in names else []
        found += [suspect.text[: match.start()] + other + suspect.text[match.end() :] for other in others]
    return Samples(tuple(found), model="token swaps")


async def sample_tree() -> AsyncIterator[bytes]:
    """The sample repository as a tar stream."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(SAMPLE, arcname=".", filter=lambda item: None if "__pycache__" in item.name else item)
    yield buffer.getvalue()


def opener(backend: SandboxBackend, spec: SandboxSpec) -> Open:
    """Opens fresh sandboxes that hold the sample."""

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Sandbox]:
        async with backend.open(spec, sample_tree()) as sandbox:
            yield sandbox

    return fresh


async def one(fresh: Open, pool: Chat, strategy: Strategy) -> Run:
    """One repair from a fresh checkout, judged at the end by the tests in a fork of what it left."""
    counts: Counter[str] = Counter()

    async def record(kind: str, data: dict[str, Any]) -> None:
        counts[kind] += 1
        counts["samples"] += len(data.get("texts", ()))

    async def save() -> None:
        """Nothing outlives a benchmark's run."""

    budget = Budget(wall=WALL, tokens=10_000_000, steps=1000)
    task = Task(id="bench", request=TaskRequest(repository="sample", instructions="mend it"), budget=budget, created=0)
    async with fresh() as sandbox:
        started = time.monotonic()
        work = Work(
            task=task,
            attempt=f"bench-{os.urandom(4).hex()}",
            tier="embedded",
            sandbox=sandbox,
            pool=pool,
            ledger=BudgetLedger(budget, Spent(), Spent(), lambda _: None),
            test_command=TESTS,
            record=record,
            save=save,
        )
        done = await strategy.work(work)
        seconds = time.monotonic() - started
        async with sandbox.fork() as fork:
            passes = (await run_tests(fork, TESTS)).exit_code == 0
    solved = passes and done.ending == "finished"
    return Run(solved, seconds, counts["samples"], counts["candidate"], done.summary.split("\n")[0])


def interval(solved: int, runs: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a share, 95 %."""
    share, extra = solved / runs, z * z / runs
    half = z * math.sqrt(share * (1 - share) / runs + extra / (4 * runs))
    return max(0.0, (share + extra / 2 - half) / (1 + extra)), min(1.0, (share + extra / 2 + half) / (1 + extra))


def summed(runs: list[Run]) -> dict[str, Any]:
    """One way's figures."""
    solved = sum(run.solved for run in runs)
    low, high = interval(solved, len(runs))
    return {
        "runs": len(runs),
        "solved": solved,
        "rate": round(solved / len(runs), 3),
        "interval": [round(low, 3), round(high, 3)],
        "median_seconds": round(statistics.median(run.seconds for run in runs), 2),
        "slowest_seconds": round(max(run.seconds for run in runs), 2),
        "median_samples": statistics.median(run.samples for run in runs),
        "median_candidates": statistics.median(run.candidates for run in runs),
    }


async def measure(ways: list[Way], embedded: EmbeddedConfig, state: Path) -> dict[str, Any]:
    """All ways, one after the other, on one server and one kind of sandbox."""
    async with chosen_backend(SandboxConfig(), state=state) as backend:
        return await _measured(ways, embedded, state, backend)


async def _measured(ways: list[Way], embedded: EmbeddedConfig, state: Path, backend: SandboxBackend) -> dict[str, Any]:
    config = SandboxConfig()
    version = (await backend.self_test()).backend
    fresh = opener(backend, SandboxSpec(limits=config.limits, env=config.env, image=config.image))
    results: dict[str, Any] = {
        "sandbox": version,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "threads": embedded.threads,
    }
    serving = serve_embedded(embedded, log=state / "model.log", environ=dict(os.environ))
    async with serving as endpoint, Pool(PoolConfig(endpoints=(endpoint,))) as pool:
        for way in ways:
            print(f"{way.name}:", flush=True)
            runs = []
            for number in range(1, way.runs + 1):
                runs.append(await one(fresh, pool, way.strategy()))
                word = "solved" if runs[-1].solved else "FAILED"
                print(f"  {number:3} {word} {runs[-1].seconds:7.2f} s  {runs[-1].summary}", flush=True)
            results[way.name] = summed(runs)
    return results


def unlocated() -> Strategy:
    """Sampled repair that suspects every statement alike."""
    return SampledRepair(locate=localise.everywhere, bounds=Bounds(suspects=1000))


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="5 runs instead of 50")
    parser.add_argument("--runs", type=int, help="runs of the product's way; each baseline gets 3")
    parser.add_argument("--threads", type=int, help="processor threads of the model server; default: as the product")
    options = parser.parse_args()
    runs = max(1, options.runs or (5 if options.quick else 50))
    embedded = EmbeddedConfig.model_validate(
        {"enabled": True} | ({"threads": options.threads} if options.threads else {})
    )
    ways = [
        Way("sampled repair", SampledRepair, runs),
        Way("without localisation", unlocated, FEW),
        Way("token swaps, no model", lambda: SampledRepair(ask=swap_tokens), FEW),
    ]
    with tempfile.TemporaryDirectory(prefix="repair-") as state:
        try:
            results = asyncio.run(measure(ways, embedded, Path(state)))
        except (PoolError, SandboxError) as error:
            print(f"the benchmark cannot run: {error}", file=sys.stderr)
            return 2
    print(f"\n{'':24}{'solved':>10}{'95 %':>16}{'median s':>10}{'samples':>9}{'tested':>8}")
    for way in ways:
        row = results[way.name]
        low, high = row["interval"]
        print(
            f"{way.name:24}{row['solved']:>6}/{row['runs']:<3}{low:>9.0%} to {high:.0%}{row['median_seconds']:>10.2f}"
            f"{row['median_samples']:>9.0f}{row['median_candidates']:>8.0f}"
        )
    print(json.dumps(results))
    return 0 if results["sampled repair"]["rate"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
