"""How soon a sandbox is ready: from asking for one to the end of its first command, cold, warm and forked.

    python -m benchmarks.sandbox_ready [--quick]

Each round starts every contender once, in turn: raw `bwrap ... true`, raw `bwrap ... python3`, our bubblewrap backend;
raw `docker run ... true`, our Docker backend. All are closed between rounds, outside of the time taken, and each begins
when the one before has been over for a tenth of a second. Warm ones are taken from a stock that is full. Forks are of a
sandbox with 5,000 files of 10 kB. The last line is one JSON object; ratio_X is the cold median over the raw one. Exits
with 1 where a ratio is over 1.5, warm over 30 ms or a fork over 50.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.sandbox_stage import (
    SPEC,
    TRUE,
    backends,
    p50,
    p95,
    ran,
    raw_bwrap,
    raw_docker,
    scratch,
    spent,
    workspace,
)
from sandbox.base import SandboxBackend
from sandbox.warm.backend import WarmBackend

FILES = 5_000
APART = 0.1  # seconds between two starts, so that what is tidied up after one weighs on no other
PATIENCE = 30.0  # seconds that a stock may take to fill
WANTED_RATIO, WANTED_WARM, WANTED_FORK = 1.5, 30.0, 50.0


async def opened(backend: SandboxBackend) -> float:
    """Milliseconds until the first command of a new sandbox has ended."""
    async with AsyncExitStack() as stack:

        async def act() -> None:
            box = await stack.enter_async_context(backend.open(SPEC))
            outcome = await box.run(TRUE)
            if outcome.exit_code:
                raise RuntimeError(outcome.text)

        return await spent(act)


async def cold(rounds: int) -> dict[str, list[float]]:
    """Raw and cold starts, in turn."""
    times: dict[str, list[float]] = {}
    async with scratch() as folder, backends() as found:
        raw = {
            "bwrap": {"raw bwrap": raw_bwrap(folder, "true"), "raw bwrap, python3": _python(folder)},
            "docker": {"raw docker run": raw_docker("true")},
        }
        for number in range(rounds):
            for kind, backend in found.items():
                if kind == "docker" and number % 3:  # an engine is slow, and raw bwrap needs many rounds
                    continue
                for name, argv in raw[kind].items():
                    await asyncio.sleep(APART)
                    times.setdefault(name, []).append(await ran(argv))
                await asyncio.sleep(APART)
                times.setdefault(f"{kind} cold", []).append(await opened(backend))
    return times


def _python(folder: Path) -> list[str]:
    return raw_bwrap(folder, "python3", "-I", "-S", "-c", "pass")


async def warm(rounds: int) -> dict[str, list[float]]:
    """Sandboxes out of a full stock; it is refilled between."""
    times: dict[str, list[float]] = {}
    async with backends(warm=4) as found:
        for kind, backend in found.items():
            await opened(backend)  # the first demand is what fills the stock
            for _ in range(rounds):
                await _full(backend)
                times.setdefault(f"{kind} warm", []).append(await opened(backend))
    return times


async def _full(backend: SandboxBackend) -> None:
    waited = 0.0
    while isinstance(backend, WarmBackend) and not backend.ready:
        if waited > PATIENCE:
            raise RuntimeError("the stock of warm sandboxes does not fill")
        await asyncio.sleep(0.05)
        waited += 0.05


async def forked(rounds: int) -> dict[str, list[float]]:
    """Forks of one sandbox with many files, each closed before the next, with a stock as the daemon has it."""
    times: dict[str, list[float]] = {}
    async with backends(warm=4) as found:
        for kind, backend in found.items():
            async with backend.open(SPEC, workspace(FILES)) as source:
                await source.run(TRUE)
                for _ in range(rounds):
                    await _full(backend)
                    async with AsyncExitStack() as stack:

                        async def act(stack: AsyncExitStack = stack) -> None:
                            fork = await stack.enter_async_context(source.fork())
                            await fork.run(TRUE)

                        times.setdefault(f"{kind} fork", []).append(await spent(act))
    return times


def summary(times: dict[str, list[float]]) -> dict[str, float | bool]:
    """The figures by their names."""
    figures: dict[str, float | bool] = {}
    for kind, raw in (("bwrap", "raw bwrap"), ("docker", "raw docker run")):
        if f"{kind} cold" not in times:
            continue
        figures[f"ratio_{kind}"] = round(p50(times[f"{kind} cold"]) / p50(times[raw]), 2)
        for way in ("cold", "warm", "fork"):
            figures[f"{way}_ms_{kind}"] = p50(times[f"{kind} {way}"])
    if "raw bwrap, python3" in times:
        figures["ratio_bwrap_python"] = round(p50(times["bwrap cold"]) / p50(times["raw bwrap, python3"]), 2)
    for way in ("warm", "fork"):
        figures[f"{way}_ms"] = max(p50(values) for name, values in times.items() if name.endswith(way))
    figures["met"] = (
        all(value <= WANTED_RATIO for name, value in figures.items() if name in {"ratio_bwrap", "ratio_docker"})
        and figures["warm_ms"] <= WANTED_WARM
        and figures["fork_ms"] <= WANTED_FORK
    )
    return figures


async def main() -> int:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute")
    quick = parser.parse_args().quick
    times = await cold(12 if quick else 60)
    times |= await warm(5 if quick else 20)
    times |= await forked(3 if quick else 15)
    if not any(name.endswith("cold") for name in times):
        print("no sandbox backend is here: swarm sandbox doctor")
        return 1
    for name, values in times.items():
        print(f"{name:20} p50 {p50(values):8.1f} ms   p95 {p95(values):8.1f} ms   n {len(values)}")
    figures = summary(times)
    print(json.dumps(figures))
    return 0 if figures["met"] else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
