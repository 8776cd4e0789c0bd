"""Our loop and mini-swe-agent with a model that makes the known faults of local models: how often each completes.

    python -m benchmarks.agent_robustness [--quick] [--runs N] [--rates 0.1,0.5] [--faults NAME,NAME] [--mini FOLDER]

One small real task (a script to mend, a check that must pass), one scripted model behind a pretend vLLM over real HTTP,
which makes one kind of fault in a given share of its answers; see `robustness_model` for the faults. Both agents meet
the same faults (the same seeds), may ask the model 16 times, and call tools natively. A run is complete where the agent
said itself that it is done and the check passes on what it left. mini-swe-agent 2.4.6 is the real package with its own
prompts, client and environment: as shipped it ends after three answers in a row of a bad form (``baseline``); without
that bound it is ``patient``. A refusal of the server is tried twice by it, not ten times, since nothing changes between
tries here. Our agent works in a real sandbox, through the real pool. The last line is one JSON object: shares of
complete runs by fault and rate. Exits with 1 where our agent completes less than the better baseline of any fault, with
2 where something could not run.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import effectiveness_mini as mini
from benchmarks import robustness_peer
from benchmarks.robustness_model import FAULTS, FILES, TASK, TESTS, Model
from pool.config import EndpointConfig, PoolConfig
from pool.errors import PoolError
from pool.pretend.server import PretendServer
from pool.router import Pool
from sandbox.base import SandboxBackend
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxError
from sandbox.factory import chosen_backend
from sandbox.types import Command, SandboxSpec
from swarm.agent import Agent
from swarm.budgets.ledger import BudgetLedger
from swarm.types import Budget, Spent, Task, TaskRequest
from swarm.work import Work

CALLS = 16  # of the model, for both
WINDOW, NARROW = 32_768, 12_288  # tokens; the narrow one for the fault that fills it
WALL = 120.0
RATES = (0.1, 0.25, 0.5)
RUNS, QUICK = 10, 3
OURS, SHIPPED, PATIENT = "ours", "baseline", "patient"
SEED = "robustness"
PEER = str(Path(robustness_peer.__file__).resolve())


@dataclass(frozen=True)
class Asked:
    """One run of one agent."""

    fault: str
    rate: float
    number: int

    @property
    def model(self) -> Model:
        """The model as this run meets it, the same for every agent."""
        return Model(self.fault, self.rate, f"{SEED} {self.fault} {self.rate} {self.number}")

    def server(self) -> PretendServer:
        """Its server, not started yet."""
        return PretendServer(script=self.model, window=NARROW if self.fault == "overflow" else WINDOW)


@dataclass(frozen=True)
class Ended:
    """How it ended: ``complete`` by its own word and by the check, ``calls`` of the model, answers that were faulty."""

    how: str
    calls: int
    faulty: int
    seconds: float
    complete: bool = False


async def tree() -> AsyncIterator[bytes]:
    """The task's files as a tar stream."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    yield buffer.getvalue()


async def ours(asked: Asked, backend: SandboxBackend, spec: SandboxSpec) -> Ended:
    """One run of our agent, with a pool and a server of its own."""
    model, server, began = asked.model, asked.server(), time.monotonic()
    server.script = model
    await server.start()
    try:
        config = PoolConfig(endpoints=(EndpointConfig(name="m", url=server.url, tier="bench"),), canaries=False)
        async with Pool(config) as pool, backend.open(spec, tree()) as sandbox:
            done = await Agent().work(_work(asked, pool, sandbox))
            good = (await sandbox.run(Command(argv=("/bin/sh", "-c", TESTS)))).exit_code == 0
    except PoolError as error:
        how = f"{type(error).__name__}: {error}"[:140]
        return Ended(how, model.asked, model.faulty, time.monotonic() - began)
    finally:
        await server.stop()
    told = f"{done.ending}{'' if good else ', check fails'} {done.summary if done.ending != 'finished' else ''}"
    complete = good and done.ending == "finished"
    return Ended(told.strip()[:140], model.asked, model.faulty, time.monotonic() - began, complete)


def _work(asked: Asked, pool: Pool, sandbox: Any) -> Work:
    budget = Budget(wall=WALL, tokens=10_000_000, steps=CALLS)
    task = Task(id="bench", request=TaskRequest(repository="r", instructions=TASK), budget=budget, created=0)

    async def record(kind: str, data: dict[str, Any]) -> None:
        """Nothing outlives a run."""

    async def save() -> None:
        """Nothing outlives a run."""

    return Work(
        task=task,
        attempt=f"bench-{asked.number}",
        tier="bench",
        sandbox=sandbox,
        pool=pool,
        ledger=BudgetLedger(budget, Spent(), Spent(), lambda _: None),
        test_command=TESTS,
        record=record,
        save=save,
    )


async def theirs(runs: Sequence[Asked], packages: Path, scratch: Path) -> tuple[list[Ended], list[Ended]]:
    """The same runs of mini-swe-agent, as shipped and patient, all by one process of its own Python."""
    asked = [(one, errors) for errors in (3, 0) for one in runs]
    async with AsyncExitStack() as stack:
        models, lines = [], []
        for number, (one, errors) in enumerate(asked):
            model, server = one.model, one.server()
            server.script = model
            await server.start()
            stack.push_async_callback(server.stop)
            folder = scratch / f"{one.fault}-{one.rate}-{one.number}-{errors}"
            folder.mkdir(parents=True)
            for name, text in FILES.items():
                (folder / name).write_text(text)
            models.append((model, folder))
            told = {"id": number, "url": server.url, "folder": str(folder), "task": TASK, "calls": CALLS}
            lines.append(json.dumps(told | {"format_errors": errors}))
        ended = await _peer("\n".join(lines), packages, scratch)
    judged = [_judged(one, *models[one["id"]]) for one in sorted(ended, key=lambda one: int(one["id"]))]
    return judged[: len(runs)], judged[len(runs) :]


def _judged(told: dict[str, Any], model: Model, folder: Path) -> Ended:
    good = subprocess.run(["/bin/sh", "-c", TESTS], cwd=folder, capture_output=True, check=False).returncode == 0
    how = f"{told['ended']}{'' if good else ', check fails'}"
    complete = good and told["ended"] == "Submitted"
    return Ended(how, model.asked, model.faulty, told["seconds"], complete)


async def _peer(lines: str, packages: Path, scratch: Path) -> list[dict[str, Any]]:
    results = scratch / "results.jsonl"
    environ = os.environ | {
        "PYTHONPATH": str(packages),
        "MSWEA_GLOBAL_CONFIG_DIR": str(scratch),
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        PEER,
        str(results),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
        cwd=scratch,
    )
    _, err = await process.communicate(lines.encode())
    told = results.read_text() if process.returncode == 0 else ""
    ended = [json.loads(line) for line in told.splitlines()]
    if len(ended) != lines.count("\n") + 1:
        raise ChildProcessError(f"mini-swe-agent ended {len(ended)} runs: {err.decode()[-400:]}")
    return ended


async def measure(faults: Sequence[str], rates: Sequence[float], runs: int, told: Path | None) -> dict[str, Any]:
    """Every fault at every rate, by every agent; shares of complete runs."""
    found: dict[str, dict[str, dict[str, float]]] = {OURS: {}, SHIPPED: {}, PATIENT: {}}
    ways: dict[str, dict[str, list[str]]] = {OURS: {}, SHIPPED: {}, PATIENT: {}}
    config = SandboxConfig()
    spec = SandboxSpec(limits=config.limits, env=config.env)
    with tempfile.TemporaryDirectory(prefix="robustness-") as name:
        scratch = Path(name)
        packages = await asyncio.to_thread(mini.packages, told, scratch)
        async with chosen_backend(config, state=scratch) as backend:
            await backend.self_test()
            for fault in ("", *faults):
                asked = [Asked(fault, rate, number) for rate in (rates if fault else (0.0,)) for number in range(runs)]
                shipped, patient = await theirs(asked, packages, scratch)
                each = {OURS: [await ours(one, backend, spec) for one in asked], SHIPPED: shipped, PATIENT: patient}
                for agent, ended in each.items():
                    found[agent][fault or "none"] = _shares(asked, ended)
                    if failed := {one.how for one in ended if not one.complete}:
                        ways[agent][fault or "none"] = sorted(failed)[:4]
                _tell(fault or "none", asked, each)
    return {
        "completion_by_fault": found[OURS],
        "baseline_by_fault": found[SHIPPED],
        "patient_by_fault": found[PATIENT],
        "runs": runs,
        "calls": CALLS,
        "endings": ways,
    }


def _shares(asked: Sequence[Asked], ended: Sequence[Ended]) -> dict[str, float]:
    """Shares of complete runs by rate."""
    by_rate: dict[str, list[bool]] = {}
    for one, end in zip(asked, ended, strict=True):
        by_rate.setdefault(f"{one.rate:g}", []).append(end.complete)
    return {rate: round(sum(each) / len(each), 3) for rate, each in by_rate.items()}


def _tell(fault: str, asked: Sequence[Asked], each: dict[str, list[Ended]]) -> None:
    for rate in dict.fromkeys(one.rate for one in asked):
        columns = []
        for ended in each.values():
            some = [end for one, end in zip(asked, ended, strict=True) if one.rate == rate]
            calls = sum(one.calls for one in some) / len(some)
            columns.append(f"{sum(one.complete for one in some):>3}/{len(some):<3}{calls:5.1f} calls")
        print(f"{fault:22}{rate:>6.0%}   {'   '.join(columns)}", flush=True)


def falls_short(results: dict[str, Any]) -> list[str]:
    """The faults of which our agent completes less than a baseline does."""

    def mean(by_rate: dict[str, float]) -> float:
        return sum(by_rate.values()) / len(by_rate)

    ours_, baselines = results["completion_by_fault"], ("baseline_by_fault", "patient_by_fault")
    return [fault for fault in ours_ if mean(ours_[fault]) < max(mean(results[name][fault]) for name in baselines)]


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} runs instead of {RUNS}, only at 50 %%")
    parser.add_argument("--runs", type=int, help="runs of each fault at each rate")
    parser.add_argument("--rates", help="shares of answers that are faulty")
    parser.add_argument("--faults", help=f"some of: {', '.join(FAULTS)}")
    parser.add_argument("--mini", type=Path, help="folder of mini-swe-agent's installed packages; default: the cache's")
    options = parser.parse_args()
    runs = max(1, options.runs or (QUICK if options.quick else RUNS))
    rates = (
        [float(one) for one in options.rates.split(",")] if options.rates else RATES[-1:] if options.quick else RATES
    )
    faults = options.faults.split(",") if options.faults else list(FAULTS)
    if unknown := [fault for fault in faults if fault not in FAULTS]:
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    print(f"{'':28}   {'ours':18}   {'mini-swe-agent':18}   patient", flush=True)
    try:
        results = asyncio.run(measure(faults, rates, runs, options.mini))
    except (PoolError, SandboxError, OSError, subprocess.SubprocessError) as error:
        print(f"the benchmark cannot run: {error}", file=sys.stderr)
        return 2
    short = falls_short(results)
    print(json.dumps(results | {"falls_short": short}))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
