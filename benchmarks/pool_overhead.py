"""What a gateway adds to each request, and how many it can carry: ours, vllm-router (Rust) and LiteLLM's proxy.

    python -m benchmarks.pool_overhead [--quick]

A model server that answers after 20 ms and an open-loop load run in processes of their own. Added latency is that of a
contender minus that of asking the server directly, at the same rate in the same round, at 50, 100 and 500 requests a
second; the ceiling is what 64 clients get through in a closed loop, told with the processor time of a request there,
which a busy machine changes least. Rounds take turns, so that a busy neighbour hits all alike; medians are reported
with the spread. The peers are installed under the project's cache when missing. The last line is one JSON object: the
worst of the three rates, since the goal (at most 2) holds for each; the ceiling's goal is 8. Exits with 1 where a goal
is missed, not where a peer could not be had.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.pool_http import MODEL, PATIENCE

UPSTREAM = 0.020
RATES = (50, 100, 500)
CLIENTS = 64
ROUTER, LITELLM = "vllm-router==0.1.17", "litellm[proxy]==1.105.7"
GOAL, CEILING_GOAL = 2.0, 8.0
STARTING = 120.0
KEY = "sk-benchmark"
Say = Callable[[str], None]


@dataclass
class Contender:
    """Who stands between. ``added`` holds milliseconds by rate: p50 and p99 of each round; ``ceiling`` requests/s and
    ``processor`` the milliseconds of processor that each took of its process ``group``."""

    name: str
    url: str
    key: str = ""
    steady: bool = True
    added: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    ceiling: list[float] = field(default_factory=list)
    group: int = 0
    processor: list[float] = field(default_factory=list)
    failed: int = 0


def cache() -> Path:
    """The folder of the project's cache."""
    if told := os.environ.get("AGENT_SWARM_CACHE"):
        return Path(told)
    if os.geteuid() == 0:
        return Path("/var/cache/agent-swarm")
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "agent-swarm"


def installed(requirement: str) -> Path | None:
    """The folder of commands of a virtual environment that has it; None, with the reason told, where it cannot be."""
    name = requirement.split("[", maxsplit=1)[0].split("=", maxsplit=1)[0]
    home = cache() / "rivals" / name
    mark = home / ".installed"
    if mark.is_file() and mark.read_text() == requirement:
        return home / "bin"
    print(f"installing {requirement} in {home}", flush=True)
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"blocked: {requirement} cannot be installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return None
    mark.write_text(requirement)
    return home / "bin"


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], log: IO[bytes], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A child for as long as the block runs, with its whole process group."""
    child = subprocess.Popen(command, stderr=log, start_new_session=True, **more)
    try:
        yield child
    finally:
        for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(patience)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def upstream(log: IO[bytes]) -> Iterator[str]:
    """The model server's address."""
    command = [sys.executable, "-m", "benchmarks.pool_http", "upstream", str(UPSTREAM)]
    with running(command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"


@contextmanager
def ours(server: str, log: IO[bytes]) -> Iterator[Contender]:
    """Our gateway, as a user starts it."""
    command = [sys.executable, "-m", "swarm", "pool", "serve", "--endpoint", server, "--port", "0", "--json"]
    with running(command, log, stdout=subprocess.PIPE) as child:
        url = json.loads(child.stdout.readline())["url"].removesuffix("/v1")
        yield Contender("ours", url, group=child.pid)


@contextmanager
def vllm_router(server: str, log: IO[bytes], policy: str = "cache_aware") -> Iterator[Contender | None]:
    """The Rust router with its default policy."""
    commands = installed(ROUTER)
    if commands is None:
        yield None
        return
    port, meter = free_port(), free_port()
    command = [str(commands / "vllm-router"), "--worker-urls", server, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(meter), "--log-level", "error", "--policy", policy]
    with running(command, log, stdout=log) as child:
        yield Contender("vllm-router", f"http://127.0.0.1:{port}", group=child.pid)


@contextmanager
def litellm(server: str, log: IO[bytes], folder: Path) -> Iterator[Contender | None]:
    """LiteLLM's proxy with one worker and no database."""
    commands = installed(LITELLM)
    if commands is None:
        yield None
        return
    port = free_port()
    told = {"model": f"openai/{MODEL}", "api_base": f"{server}/v1", "api_key": "none"}
    settings = {"model_list": [{"model_name": MODEL, "litellm_params": told}], "general_settings": {"master_key": KEY}}
    config = folder / "litellm.json"
    config.write_text(json.dumps(settings))  # JSON is YAML
    command = [str(commands / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--num_workers", "1", "--telemetry", "False"]
    environ = {"PATH": f"{commands}:{os.environ['PATH']}", "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with running(command, log, stdout=log, env=environ) as child:
        yield Contender("litellm", f"http://127.0.0.1:{port}", key=KEY, steady=False, group=child.pid)


class Generator:
    """The load's process."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    def order(self, **order: Any) -> dict[str, Any]:
        """Have one load carried out."""
        stdin, stdout = self._child.stdin, self._child.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the load has no pipes")
        stdin.write(json.dumps(order).encode() + b"\n")
        stdin.flush()
        told: dict[str, Any] = json.loads(stdout.readline())
        return told


def answers(one: Contender) -> bool:
    """Wait until a chat is answered."""
    message = {"model": MODEL, "messages": [{"role": "user", "content": "Are you there?"}]}
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        request = urllib.request.Request(  # noqa: S310  our own loopback address
            f"{one.url}/v1/chat/completions",
            json.dumps(message).encode(),
            {"content-type": "application/json", "authorization": f"Bearer {one.key or 'none'}"},
        )
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10):  # noqa: S310
            return True
        time.sleep(0.2)
    print(f"blocked: {one.name} did not answer within {STARTING:g} s")
    return False


def percentile(values: list[float], share: float) -> float:
    """By rank, in milliseconds; where nothing was answered, what was waited for it."""
    ordered = sorted(values) or [PATIENCE]
    return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def round_of(load: Generator, direct: Contender, others: list[Contender], seconds: float) -> None:
    """Every rate once, everybody in turn."""
    for rate in RATES:
        floor = load.order(url=direct.url, rate=rate, seconds=seconds)["latencies"]
        for one in others:
            told = load.order(url=one.url, key=one.key, rate=rate, seconds=seconds)
            one.failed += told["failed"]
            pair = [percentile(told["latencies"], share) - percentile(floor, share) for share in (0.5, 0.99)]
            one.added.setdefault(rate, []).append((pair[0], pair[1]))


def used(group: int) -> float:
    """Seconds of processor that the processes of a group have used; 0 where the system has no /proc."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12]) if int(fields[2]) == group else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def ceilings(load: Generator, contenders: list[Contender], seconds: float) -> None:
    """How many requests a second each gets through."""
    for one in contenders:
        before = used(one.group)
        told = load.order(url=one.url, key=one.key, clients=CLIENTS, seconds=seconds)
        one.ceiling.append(len(told["latencies"]) / told["seconds"])
        one.processor.append(1000 * (used(one.group) - before) / max(1, len(told["latencies"])))


def spread(values: list[float]) -> str:
    """Median with the least and the most."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def show(contenders: list[Contender]) -> None:
    """The figures for people."""
    for one in contenders:
        for rate, pairs in one.added.items():
            p50, p99 = spread([pair[0] for pair in pairs]), spread([pair[1] for pair in pairs])
            print(f"{one.name:12} {rate:4} req/s  adds p50 {p50} ms, p99 {p99} ms")
        failed = f", {one.failed} failed" if one.failed else ""
        print(f"{one.name:12} ceiling {spread(one.ceiling)} req/s{failed}")
        print(f"{one.name:12} processor {spread(one.processor)} ms a request at its ceiling")


def ratio(mine: Contender, other: Contender | None, place: int) -> float | None:
    """The worst of the rates, of medians over the rounds."""
    if other is None:
        return None
    return max(
        statistics.median(pair[place] for pair in mine.added[rate])
        / max(0.05, statistics.median(pair[place] for pair in other.added[rate]))
        for rate in RATES
    )


def measure(runs: int, seconds: float) -> dict[str, Any]:
    """Start everybody, measure, and say what came out."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overhead-")))
        log = stack.enter_context((folder / "log").open("wb"))
        server = stack.enter_context(upstream(log))
        found = [
            stack.enter_context(litellm(server, log, folder)),
            stack.enter_context(ours(server, log)),
            stack.enter_context(vllm_router(server, log)),
        ]
        rivals = [one for one in found if one is not None and answers(one)]
        command = [sys.executable, "-m", "benchmarks.pool_http", "load"]
        child = stack.enter_context(running(command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        load, direct = Generator(child), Contender("direct", server)
        steady = [one for one in rivals if one.steady]
        round_of(load, direct, steady, 0.5)  # everybody warms up
        for one in steady:
            one.added.clear()
        for number in range(runs):
            round_of(load, direct, steady[:: 1 if number % 2 else -1], seconds)
            ceilings(load, rivals, seconds)
        show(sorted(rivals, key=lambda one: one.name))
        return figures({one.name: one for one in rivals})


def figures(by_name: dict[str, Contender]) -> dict[str, Any]:
    """The keys of the last line."""
    mine, router, proxy = by_name["ours"], by_name.get("vllm-router"), by_name.get("litellm")
    top = statistics.median(mine.ceiling)
    return {
        "ratio_vllm_router_p50": _rounded(ratio(mine, router, 0)),
        "ratio_vllm_router_p99": _rounded(ratio(mine, router, 1)),
        "ceiling_ratio_litellm": _rounded(top / statistics.median(proxy.ceiling)) if proxy else None,
        "ceiling": _rounded(top),
        "processor_ms": _rounded(statistics.median(mine.processor)),
        "processor_ms_vllm_router": _rounded(statistics.median(router.processor)) if router else None,
        "failed": mine.failed,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round each, under a minute once installed")
    quick = parser.parse_args().quick
    told = measure(1, 1.5) if quick else measure(5, 8.0)
    print(json.dumps(told))
    late = any((told[f"ratio_vllm_router_{name}"] or 0.0) > GOAL for name in ("p50", "p99"))
    slow = (told["ceiling_ratio_litellm"] or CEILING_GOAL) < CEILING_GOAL
    return int(late or slow)


if __name__ == "__main__":
    sys.exit(main())
