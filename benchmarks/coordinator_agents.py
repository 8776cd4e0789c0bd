"""What one daemon costs with a thousand live agents: processor per step, memory per agent, tasks a second, growth.

    python -m benchmarks.coordinator_agents [--quick] [--agents N] [--database sqlite|postgres|both] [--no-peer]

Four parts, each on a real store, engine, pool client, broker and agent loop, with paper sandboxes and a pretend model
in a process of its own (see `coordinator_stage` and `coordinator_model`):

live    1,000 agents at work at a time in one daemon (60 with --quick). cpu_ms_per_step is the processor time of the
        daemon's process, all its threads, through a window in which all agents are at work, over the model calls and
        tool runs that were journaled in it; kib_per_agent what its memory (RSS) grew by from idle, over the agents.
batch   tasks_per_s: trivial tasks (one turn and the end) from the first submit to the last end. What git and the
        broker's process do for them is in it.
growth  `coordinator_steps`: one step's work in the store at 1,000, 100,000 and 1,000,000 stored steps.
peer    `coordinator_peers`: mini-swe-agent's batch runner on the same model, with as many threads as agents.

The last line is one JSON object. Exits with 1 where a goal is missed: 5 ms a step, growth 1.5.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks import coordinator_peers, coordinator_steps
from benchmarks.coordinator_model import READY, instructions
from benchmarks.coordinator_stage import ROOT, Stage, postgres, staged
from benchmarks.pool_overhead import running
from swarm.client import DaemonClient
from swarm.config_database import Address
from swarm.store.postgres import open_engine as open_postgres
from swarm.store.schema import steps
from swarm.store.sqlite import open_engine as open_sqlite
from swarm.types import Budget, TaskState

WANTED_MS, WANTED_GROWTH = 5.0, 1.5
SERVERS, IN_FLIGHT = 4, 400
PATIENCE = 900.0  # seconds until all agents are at work
FOREVER = 100_000  # turns of an agent that is live until its daemon is ended
BUDGET = Budget(steps=FOREVER, tokens=2_000_000_000, wall=86_400, attempts=1)


@dataclass(frozen=True)
class Plan:
    """How much is measured. ``pace`` is the seconds of a model's answer, ``window`` the seconds of the measure.

    ``rounds`` are of the store's operations at each number of ``stored`` steps.
    """

    agents: int
    pace: float
    window: float
    tasks: int
    workers: int
    stored: tuple[int, ...]
    rounds: int


@dataclass(frozen=True)
class Live:
    """What the agents at work cost. Processor in milliseconds, memory in KiB."""

    agents: int
    steps: int
    seconds: float
    cpu_ms_per_step: float
    steps_per_s: float
    cores: float
    idle_cores: float
    kib_per_agent: float
    idle_mib: float
    turns_per_agent: float


def plan_of(agents: int | None, *, quick: bool) -> Plan:
    """By the command line."""
    if quick:
        return Plan(agents or 60, 2.0, 8.0, 20, 10, (1_000, 100_000), 60)
    many = agents or 1000
    return Plan(many, max(4.0, many / 50), 60.0, 500, 100, (1_000, 100_000, 1_000_000), 200)


# --- what is read of the daemon


def processor(pid: int) -> float:
    """Seconds of processor that a process has used, all its threads, its children aside."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """KiB of it that are resident."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return float(line.split()[1])


class Journal:
    """Counts in a daemon's database, from outside of it."""

    def __init__(self, where: Path | Address) -> None:
        if isinstance(where, Address):
            self._engine = open_postgres(where, "benchmark", reading=True)
        else:
            self._engine = open_sqlite(where, reading=True)

    def steps(self) -> int:
        """Model calls and tool runs in the journals."""
        tool = sa.and_(steps.c.kind.in_(["note", "command", "edit"]), steps.c.data.contains('"tool": '))
        query = sa.select(sa.func.count()).where(sa.or_(steps.c.kind == "model_call", tool))
        with self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def working(self) -> int:
        """Tasks whose second model call is in the journal: their sandboxes are open, and they go round."""
        many = sa.select(steps.c.task).where(steps.c.kind == "model_call").group_by(steps.c.task)
        query = sa.select(sa.func.count()).select_from(many.having(sa.func.count() > 1).subquery())
        with self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one()) - 1  # the one that warmed the daemon up

    def close(self) -> None:
        """Let go of it."""
        self._engine.dispose()


# --- the stage


@contextmanager
def model(folder: Path) -> Iterator[list[str]]:
    """The pretend model's addresses."""
    command = [sys.executable, "-m", "benchmarks.coordinator_model", str(SERVERS)]
    with (folder / "model.log").open("ab") as log, running(command, log, cwd=ROOT, stdout=subprocess.PIPE) as child:
        word, *urls = (child.stdout.readline().decode() if child.stdout else "").split() or [""]
        if word != READY:
            raise SystemExit((folder / "model.log").read_text())
        yield urls


@asynccontextmanager
async def daemon(
    folder: Path, urls: list[str], workers: int, database: Address | None
) -> AsyncIterator[tuple[Stage, DaemonClient]]:
    """A daemon that has done one task, so that everything is loaded and the base is in its git folder."""
    more = "".join(
        f'[[pool.endpoints]]\nname = "m{number}"\nurl = "{url}"\ntier = "small"\nmax_in_flight = {IN_FLIGHT}\n'
        for number, url in enumerate(urls[1:])
    )
    async with staged(folder, urls[0], workers, database, more) as stage:
        stage.in_flight = IN_FLIGHT
        await asyncio.to_thread(stage.grant, ["warm"])
        await stage.start()
        async with stage.client() as client:
            await submit(stage, client, ["warm"], 2, 0.0)
            await ended(client, 1)
            yield stage, client


async def submit(stage: Stage, client: DaemonClient, names: list[str], turns: int, seconds: float) -> None:
    """Hand in tasks that were granted."""
    for name in names:
        request = stage.request(name, instructions(turns, seconds))
        await client.submit(request.model_copy(update={"budget": BUDGET}))


async def ended(client: DaemonClient, count: int, patience: float = 300) -> None:
    """Wait until so many tasks are over. Ends the benchmark where one has not ended as it should."""
    async with asyncio.timeout(patience):
        while (found := await client.counts()).get(TaskState.NO_CHANGE, 0) < count:
            if bad := {
                state.value: many for state, many in found.items() if state.final and state.value != "no_change"
            }:
                raise SystemExit(f"tasks ended otherwise: {bad}; see the daemon's log")
            await asyncio.sleep(0.1)


# --- the parts


async def live(folder: Path, urls: list[str], database: Address | None, plan: Plan) -> Live:
    """All agents at work at a time."""
    names = [f"live{number}" for number in range(plan.agents)]
    async with daemon(folder, urls, plan.agents, database) as (stage, client):
        await asyncio.to_thread(stage.grant, names)
        pid = stage.pid
        idle, cpu = memory(pid), processor(pid)
        await asyncio.sleep(3)
        idle_cores = (processor(pid) - cpu) / 3
        await submit(stage, client, names, FOREVER, plan.pace)
        journal = Journal(database or folder / "state" / "swarm.db")
        try:
            async with asyncio.timeout(PATIENCE):
                while await asyncio.to_thread(journal.working) < plan.agents:  # noqa: ASYNC110 - another process works
                    await asyncio.sleep(0.5)
            began, cpu, before = time.monotonic(), processor(pid), journal.steps()
            await asyncio.sleep(plan.window)
            seconds, cpu, made = time.monotonic() - began, processor(pid) - cpu, journal.steps() - before
            running = (await client.counts()).get(TaskState.RUNNING, 0)
            if running < plan.agents:
                raise SystemExit(f"only {running} of {plan.agents} agents were at work to the end")
            return Live(
                agents=plan.agents,
                steps=made,
                seconds=round(seconds, 1),
                cpu_ms_per_step=round(cpu / made * 1000, 2),
                steps_per_s=round(made / seconds, 1),
                cores=round(cpu / seconds, 2),
                idle_cores=round(idle_cores, 3),
                kib_per_agent=round((memory(pid) - idle) / plan.agents, 1),
                idle_mib=round(idle / 1024, 1),
                turns_per_agent=round(journal.steps() / plan.agents / 2, 1),
            )
        finally:
            journal.close()


async def batch(folder: Path, urls: list[str], database: Address | None, plan: Plan) -> float:
    """Trivial tasks a second."""
    names = [f"task{number}" for number in range(plan.tasks)]
    async with daemon(folder, urls, plan.workers, database) as (stage, client):
        await asyncio.to_thread(stage.grant, names)
        began = time.monotonic()
        await submit(stage, client, names, 1, 0.0)
        await ended(client, 1 + len(names))
        return round(len(names) / (time.monotonic() - began), 2)


def on(name: str, base: Path, urls: list[str], plan: Plan) -> dict[str, Any]:
    """All parts on one kind of database."""
    with ExitStack() as stack:
        database = stack.enter_context(postgres(base / "postgres")) if name == "postgres" else None
        there = coordinator_steps.address(database, "live") if database else None
        alive = asyncio.run(live(made(base / f"{name}-live"), urls, there, plan))
        print(f"{name}: {alive}", flush=True)
        there = coordinator_steps.address(database, "batch") if database else None
        rate = asyncio.run(batch(made(base / f"{name}-batch"), urls, there, plan))
        print(f"{name}: {plan.tasks} trivial tasks, {plan.workers} at a time: {rate} a second", flush=True)
        growth = asyncio.run(
            coordinator_steps.measure(made(base / f"{name}-steps"), database, plan.stored, plan.rounds)
        )
        print(f"{name}: {json.dumps(growth)}", flush=True)
    return {**asdict(alive), "tasks_per_s": rate, "growth": growth, "growth_1k_to_1m": growth["ratio"]}


def made(folder: Path) -> Path:
    """A folder."""
    folder.mkdir()
    return folder


def main() -> int:
    """Measure, tell, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="60 agents, SQLite, up to 100,000 steps: under a minute")
    parser.add_argument("--agents", type=int, help="at a time (default 1000; quick: 60)")
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), help="default both; quick: sqlite")
    parser.add_argument("--no-peer", action="store_true", help="leave mini-swe-agent out")
    told = parser.parse_args()
    plan = plan_of(told.agents, quick=told.quick)
    chosen = told.database or ("sqlite" if told.quick else "both")
    parts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="agents-") as folder:
        # Not in a folder that only we may enter: Postgres runs as another user where we are root.
        base = Path(folder)
        base.chmod(0o711)
        with model(base) as urls:
            for name in ("sqlite", "postgres") if chosen == "both" else (chosen,):
                parts[name] = on(name, base, urls, plan)
            peer = None if told.no_peer else coordinator_peers.measure(base, urls, plan.agents, plan.pace, plan.window)
    print(f"mini-swe-agent: {peer}", flush=True)
    worst = {
        "cpu_ms_per_step": max(part["cpu_ms_per_step"] for part in parts.values()),
        "kib_per_agent": max(part["kib_per_agent"] for part in parts.values()),
        "tasks_per_s": min(part["tasks_per_s"] for part in parts.values()),
        "growth_1k_to_1m": max(part["growth_1k_to_1m"] for part in parts.values()),
    }
    print(json.dumps({"agents": plan.agents, **worst, "growth_to": plan.stored[-1], "peer": peer, **parts}))
    return 1 if worst["cpu_ms_per_step"] > WANTED_MS or worst["growth_1k_to_1m"] > WANTED_GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
