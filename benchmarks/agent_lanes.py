"""Runs of `pool_agents` side by side, each with engines, agents and processors of its own.

`python -m benchmarks.agent_lanes CELL` is one such run; CELL is its JSON, and so is the last line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import IO, Any

from benchmarks.agent_fleet import Plan, fleet
from benchmarks.agent_run import Run, measure
from benchmarks.agent_ways import WAYS

READY = 240.0  # seconds that a cell may take beyond its own warm-up and window


@dataclass(frozen=True)
class Cell:
    """One run: a contender with a seed under a plan."""

    plan: Plan
    name: str
    seed: int


def shares(lanes: int) -> list[list[int]]:
    """The processors that this program may use, in equal shares; those left over stay free. Raises SystemExit when
    there are fewer than two for each lane."""
    processors = sorted(os.sched_getaffinity(0))
    size = len(processors) // lanes
    if size < 2:
        raise SystemExit(f"--lanes {lanes} needs at least {2 * lanes} processors, here are {len(processors)}")
    return [processors[start : start + size] for start in range(0, lanes * size, size)]


async def abreast(cells: list[Cell], lanes: int, log: IO[bytes]) -> list[tuple[Cell, Run]]:
    """All cells, in their order as lanes become free; one that fails is told and left out."""
    waiting, done = iter(cells), list[tuple[Cell, Run]]()
    async with asyncio.TaskGroup() as group:
        for share in shares(lanes):
            group.create_task(_lane(waiting, share, done, log))
    return done


async def _lane(waiting: Iterator[Cell], share: list[int], done: list[tuple[Cell, Run]], log: IO[bytes]) -> None:
    for cell in waiting:
        run = await _child(cell, share, log)
        if run is not None:
            done.append((cell, run))
            told = f"{cell.plan.engines} engines {cell.plan.regime} seed {cell.seed}"
            print(f"  {told} {cell.name}: {run.tokens:.0f} tok/s, p99 TTFT {run.p99:.2f} s", flush=True)


async def _child(cell: Cell, share: list[int], log: IO[bytes]) -> Run | None:
    told = json.dumps({**asdict(cell), "processors": share})
    command = [sys.executable, "-m", "benchmarks.agent_lanes", told]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log)
    try:
        async with asyncio.timeout(cell.plan.warmup + cell.plan.window + READY):
            out, _ = await child.communicate()
    except TimeoutError:
        child.terminate()
        out, _ = await child.communicate()
    lines = out.decode().splitlines()
    if child.returncode:
        print(f"blocked: {cell.name}: {lines[-1] if lines else f'ended with {child.returncode}'}", flush=True)
        return None
    return Run(**json.loads(lines[-1]))


async def run(cell: Cell, log: IO[bytes]) -> Run:
    """One cell over a fleet of its own."""
    with fleet(cell.plan, log) as engines:
        engines.forget()
        async with WAYS[cell.name](engines.engines, log) as way:
            return await measure(cell.plan, way, engines, cell.seed)


def _cell(told: dict[str, Any]) -> Cell:
    plan = {**told["plan"], "servers": tuple(told["plan"]["servers"])}
    return Cell(Plan(**plan), told["name"], told["seed"])


def main() -> int:
    """Run the cell that is told."""
    told = json.loads(sys.argv[1])
    os.sched_setaffinity(0, told["processors"])
    with tempfile.TemporaryFile(prefix="agents-log-") as log:
        try:
            seen = asyncio.run(run(_cell(told), log))
        except (FileNotFoundError, TimeoutError) as error:
            print(f"{type(error).__name__} {error}")
            return 1
    print(json.dumps(asdict(seen)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
