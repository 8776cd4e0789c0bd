"""The engines that `pool_agents` runs over: pretend ones in processes of their own, or servers that stand already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.agent_ways import Engines
from benchmarks.pool_overhead import running

BLOCKS = {"rich": 32_768, "scarce": 6_144}
PROCESSES = 2  # that share the engines


@dataclass(frozen=True)
class Plan:
    """How one run is measured: seconds before the window and of it; ``pace`` is how many times as long as by default
    everything takes, engines and tools alike. ``servers`` stand already and run at a speed of their own."""

    engines: int
    regime: str
    agents: int
    pace: float
    warmup: float
    window: float
    shrink: float = 1.0
    servers: tuple[str, ...] = ()


class Fleet:
    """The engines of one run: their addresses, and the processes of those that this program started."""

    def __init__(self, engines: Engines, pids: list[int]) -> None:
        self.engines = engines
        self._pids = pids

    def forget(self) -> None:
        """Empty every cache, once nothing runs any more."""
        for url in self.engines.urls:
            while self._metric(url, "vllm:num_requests_running") + self._metric(url, "vllm:num_requests_waiting"):
                time.sleep(0.05)
            request = urllib.request.Request(f"{url}/reset_prefix_cache", b"", method="POST")  # noqa: S310  told
            try:
                with urllib.request.urlopen(request, timeout=10):  # noqa: S310
                    pass
            except urllib.error.HTTPError as error:
                raise SystemExit(
                    f"{url} cannot empty its prefix cache ({error.code}): start it with VLLM_SERVER_DEV_MODE=1"
                ) from error

    def total(self, name: str) -> float:
        """A metric, summed over the engines."""
        return sum(self._metric(url, name) for url in self.engines.urls)

    def seconds(self) -> float:
        """Processor time that they used."""
        ticks = os.sysconf("SC_CLK_TCK")
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in self._pids]
        return sum(int(row[11]) + int(row[12]) for row in fields) / ticks

    @staticmethod
    def _metric(url: str, name: str) -> float:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:  # noqa: S310  told
            lines = page.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


@contextmanager
def fleet(plan: Plan, log: IO[bytes]) -> Iterator[Fleet]:
    """The servers that stand already, or else pretend engines, started in a few processes."""
    if plan.servers:
        yield Fleet(Engines(plan.servers, _model(plan.servers[0])), [])
        return
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
        yield Fleet(Engines(tuple(urls)), pids)


def _model(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as page:  # noqa: S310  told
        name: str = json.load(page)["data"][0]["id"]
        return name
