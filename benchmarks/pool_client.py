"""A thousand streams at once through one Pool process: where throughput is flat, is it the client or the server?

    python -m benchmarks.pool_client [--quick]

Pretend engines in a process of their own model continuous batching with room for 512 running streams; more of them wait
in the engines. The pool keeps 125, 250, 500 and 1,000 agents busy on them. A level that brings hardly more than the one
before is flat: because of the server when its engines run full and requests wait inside them, because of the client
when this process used up its processor. Five runs, medians; the last line is one JSON object with ``streams``, the most
that were open at once, and ``flat_because``. Exits with 1 where the client was the reason, or a stream failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.pool_overhead import running
from pool.config import EndpointConfig, PoolConfig
from pool.errors import PoolError
from pool.router import Pool
from pool.trip import Need

LEVELS = (125, 250, 500, 1000)
ENGINES, SEATS = 4, 128
STEP, STEP_MORE = 0.2, 0.00035  # seconds of an engine's step, and what each running stream adds
TOKENS = 48  # of one answer
CEILING = ENGINES * SEATS / (STEP + STEP_MORE * SEATS)  # tokens a second that the engines can make
BUSY = 0.85  # share of a processor from which on the client may be what limits
FLAT = 1.10  # a level that brings less than this over the one before is flat
FULL = 0.9  # share of the ceiling, or of the seats, from which on a server is full


@dataclass(frozen=True)
class Level:
    """What one number of streams brought: tokens a second, share of a processor, and requests as the engines tell."""

    streams: int
    open: int
    rate: float
    processor: float
    running: int
    waiting: int


class Agents:
    """Streams through a pool, each begun again when it ends."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._tasks: list[asyncio.Task[None]] = []
        self.events = 0
        self.open = 0
        self.failed = 0

    def grow(self, streams: int) -> None:
        """Have so many."""
        while len(self._tasks) < streams:
            self._tasks.append(asyncio.create_task(self._stream(len(self._tasks))))

    async def stop(self) -> None:
        """End them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stream(self, number: int) -> None:
        turn = 0
        while True:
            turn += 1
            text = f"Agent {number}, turn {turn}: the test of the parser fails on the last line. " * 4
            messages = [{"role": "user", "content": text}]
            body = {"model": "any", "messages": messages, "stream": True, "max_tokens": TOKENS}
            body |= {"vllm_xargs": {"output_tokens": TOKENS}}
            prompt = self._pool.keys.body("default", f"s{number}", body)
            need = Need(tier="default", session=f"s{number}", prompt=prompt, output_tokens=TOKENS, ceiling=TOKENS)
            try:
                async with self._pool.relay(need, "/v1/chat/completions", body, {}) as answer:
                    self.open += 1
                    try:
                        async for _ in answer:
                            self.events += 1
                    finally:
                        self.open -= 1
            except PoolError:
                self.failed += 1
                await asyncio.sleep(0.1)


async def levels(urls: list[str], warm: float, window: float) -> tuple[list[Level], int]:
    """Go through the levels once; also how many streams failed."""
    endpoints = tuple(
        EndpointConfig(name=f"e{n}", url=url, tools="text", max_in_flight=2 * LEVELS[-1]) for n, url in enumerate(urls)
    )
    found = []
    async with Pool(PoolConfig(endpoints=endpoints, probe_interval=0.5)) as pool:
        await pool.ready("default")
        agents = Agents(pool)
        for streams in LEVELS:
            agents.grow(streams)
            await asyncio.sleep(warm)
            found.append(await level(pool, agents, streams, window))
        await agents.stop()
        return found, agents.failed


async def level(pool: Pool, agents: Agents, streams: int, window: float) -> Level:
    """Measure for a while; the engines are asked in the middle."""
    began, used, events = time.perf_counter(), processor(), agents.events
    await asyncio.sleep(window / 2)
    status = pool.status()
    inside = sum(one.in_flight for one in status)
    await asyncio.sleep(window / 2)
    seconds = time.perf_counter() - began
    return Level(
        streams=streams,
        open=inside,
        rate=(agents.events - events) / seconds,
        processor=(processor() - used) / seconds,
        running=sum(one.running or 0 for one in status),
        waiting=sum(one.waiting or 0 for one in status),
    )


def processor() -> float:
    """Seconds of processor that this process used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def why_flat(found: list[Level]) -> str:
    """What made the levels flat that are: server, client, unknown; nothing where each brought more."""
    reasons = Counter(reason(level) for before, level in pairwise(found) if level.rate < FLAT * before.rate)
    for name in ("client", "unknown", "server"):
        if reasons[name]:
            return name
    return "nothing"


def reason(level: Level) -> str:
    """Who limits a level."""
    if level.rate >= FULL * CEILING or (level.running >= FULL * ENGINES * SEATS and level.waiting):
        return "server"
    return "client" if level.processor >= BUSY else "unknown"


def one_run(warm: float, window: float, log: Any) -> tuple[list[Level], int]:
    """Fresh engines, all levels."""
    command = [sys.executable, "-m", "pool.pretend.serve", "--engines", str(ENGINES), "--max-num-seqs", str(SEATS)]
    command += ["--step-base", str(STEP), "--step-per-sequence", str(STEP_MORE)]
    with running(command, log, stdout=subprocess.PIPE) as child:
        if child.stdout is None:
            raise RuntimeError("the engines have no output")
        urls = [word for word in child.stdout.readline().decode().split() if word.startswith("http")]
        return uvloop.run(levels(urls, warm, window))


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short run, under a minute")
    quick = parser.parse_args().quick
    runs: list[list[Level]] = []
    failed = 0
    with tempfile.TemporaryDirectory(prefix="client-") as folder, (Path(folder) / "log").open("wb") as log:
        for _ in range(1 if quick else 5):
            found, lost = one_run(*(5.0, 5.0) if quick else (12.0, 12.0), log)
            runs.append(found)
            failed += lost
    for place, streams in enumerate(LEVELS):
        told = [run[place] for run in runs]
        rates = sorted(one.rate for one in told)
        print(
            f"{streams:5} streams: {statistics.median(rates):7.0f} tokens/s ({rates[0]:.0f} to {rates[-1]:.0f}), "
            f"{statistics.median(one.processor for one in told):.0%} of a processor, engines run "
            f"{statistics.median(one.running for one in told):.0f} and hold back "
            f"{statistics.median(one.waiting for one in told):.0f}"
        )
    print(f"the engines can make {CEILING:.0f} tokens/s")
    verdicts = Counter(why_flat(run) for run in runs)
    told = {
        "streams": max(one.open for run in runs for one in run),
        "flat_because": verdicts.most_common(1)[0][0],
        "tokens_per_second": round(statistics.median(run[-1].rate for run in runs)),
        "share_of_ceiling": round(statistics.median(run[-1].rate for run in runs) / CEILING, 3),
        "processor": round(statistics.median(run[-1].processor for run in runs), 3),
        "failed": failed,
    }
    print(json.dumps(told))
    return int(told["flat_because"] in ("client", "unknown") or failed > 0)


if __name__ == "__main__":
    sys.exit(main())
