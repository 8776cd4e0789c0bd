"""How many idle sandboxes fit a gigabyte, and how fairly running ones share the processors.

    python -m benchmarks.sandbox_density [--quick]

Idle: so many sandboxes are opened, each with one command run; their memory is the proportional set size of everything
inside (and of the engine's shim), plus what the kernel holds for them, from the machine's own slab counter. Fair: 20
sandboxes run the same test suite at once, each allowed one processor; `spread` is the longest over the shortest time.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.sandbox_stage import SPEC, TRUE, backends, p50, spent
from sandbox.base import Sandbox, SandboxBackend
from sandbox.types import Command

GIB_IN_KIB = 1024 * 1024
TESTS = "".join(
    f"def test_{n}():\n    assert sum(i * i for i in range(20_000)) == 2666466670000\n\n" for n in range(200)
)
SUITE = Command(argv=("/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_all.py"), timeout=300)


def pss(pids: set[int]) -> int:
    """Proportional set size of these processes, in KiB."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def processes() -> set[int]:
    """Everything that runs on the machine."""
    return {int(path.name) for path in Path("/proc").glob("[0-9]*")}


def slab() -> int:
    """What the kernel holds for its own structures, in KiB."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Slab:"))


async def idle(backend: SandboxBackend, count: int) -> dict[str, float]:
    """KiB of one idle sandbox: of its processes, of the kernel, and how many fit a GiB."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(backend.open(SPEC))
        await first.run(TRUE)
        before, held = processes(), slab()
        for _ in range(count):
            box = await stack.enter_async_context(backend.open(SPEC))
            await box.run(TRUE)
        own, kernel = pss(processes() - before) / count, max(0.0, (slab() - held) / count)
        return {"process_kib": round(own), "kernel_kib": round(kernel), "per_gib": round(GIB_IN_KIB / (own + kernel))}


async def fair(backend: SandboxBackend, count: int) -> dict[str, float]:
    """Seconds of the same test suite in so many sandboxes at once."""
    async with AsyncExitStack() as stack:
        boxes = [await stack.enter_async_context(backend.open(SPEC)) for _ in range(count)]
        await asyncio.gather(*(box.write("test_all.py", TESTS.encode()) for box in boxes))

        async def suite(box: Sandbox) -> None:
            outcome = await box.run(SUITE)
            if outcome.exit_code:
                raise RuntimeError(outcome.text)

        times = await asyncio.gather(*(spent(lambda box=box: suite(box)) for box in boxes))
    return {"seconds_p50": round(p50(times) / 1000, 2), "spread": round(max(times) / min(times), 2)}


async def main() -> int:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute")
    quick = parser.parse_args().quick
    figures: dict[str, dict[str, float]] = {}
    async with backends() as found:
        for kind, backend in found.items():
            count = {"bwrap": 30, "docker": 8}[kind] if quick else {"bwrap": 200, "docker": 40}[kind]
            figures[kind] = await idle(backend, count) | await fair(backend, 6 if quick else 20)
            print(kind, ", ".join(f"{name} {value:g}" for name, value in figures[kind].items()))
    print(json.dumps(figures))
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
