"""Kills at random points over many short tasks, and what became of them: `make chaos`, CHAOS="--tasks 30 --kills 20".

Worker daemons, the broker, sandboxes, the model server and Postgres are real processes and end by SIGKILL (Postgres as
by a power cut) while tasks run; each is started again. At the end every task must have ended once, with one branch and
one pull request that holds its work, and nothing may be left over. All of it runs as one user: what this shows is
that nothing is lost or doubled; who may read what is shown elsewhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from broker.client import Client
from broker.wire import Grant, GrantRequest
from chaos_model import MENDED
from chaos_stage import Chaos, below, kill, sandboxes, staged
from stack import StackError, git
from swarm.client import DaemonClient
from swarm.config_database import Address
from swarm.errors import SwarmError
from swarm.store.postgres import url_of
from swarm.types import TaskRequest, TaskState, TaskView

PATIENCE = 1800.0  # seconds for everything
AHEAD = 20  # tasks that are handed in before the kills have come so far
SHOWN = 50  # lines of what went wrong, and of the journal of each of so many
JOURNALS = 3  # tasks that went wrong


@dataclass
class Tally:
    """What happened and what came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    handed_in: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    journals: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0


def granted(stage: Chaos, count: int) -> dict[str, Grant]:
    """A grant for each of the tasks ``t0`` and on."""
    with Client(stage.people) as people:
        return {
            name: people.grant(GrantRequest(repository="demo", task=name))
            for name in (f"t{number}" for number in range(count))
        }


async def hand_in(stage: Chaos, grants: dict[str, Grant], tally: Tally, kills: int) -> None:
    """Hand in the tasks in step with the kills, the last one after all of them, so that each may hit something."""
    ahead = min(AHEAD, len(grants) // 2)
    rest = max(1, len(grants) - 1 - ahead)
    for number, (name, grant) in enumerate(grants.items()):
        while sum(tally.kills.values()) * rest < (number - ahead) * kills:  # noqa: ASYNC110 - a count
            await asyncio.sleep(0.1)
        while name not in tally.handed_in:
            for worker in range(stage.workers):
                with suppress(SwarmError):  # it is down just now; whoever was told twice has it once
                    async with DaemonClient(stage.socket((number + worker) % stage.workers)) as client:
                        await client.submit(_request(name, grant))
                    tally.handed_in.add(name)
                    break
            await asyncio.sleep(0 if name in tally.handed_in else 0.2)


def _request(name: str, grant: Grant) -> TaskRequest:
    return TaskRequest(
        repository="demo",
        instructions=f"chaos task {name} . Some test fails. Mend the fault.",
        capability=grant.capability,
        base_commit=grant.base_commit,
        task=name,
        strategy="agent",
    )


class Killer:
    """Kills one thing after another, and has it back soon. Its choices follow from ``seed``."""

    def __init__(self, stage: Chaos, seed: int, tally: Tally) -> None:
        self._stage = stage
        self._dice = random.Random(seed)  # noqa: S311  chaos that can be had again
        self._tally = tally
        self._lock = asyncio.Lock()
        kinds: dict[str, Callable[[], bool]] = {
            "worker": self._worker,
            "broker": self._broker,
            "sandbox": self._sandbox,
            "model server": self._model,
        }
        self._kinds = kinds | ({"Postgres": self._postgres} if stage.shared else {})

    async def run(self, kills: int, over: Callable[[], bool]) -> None:
        """Until so many were killed, or the tasks are through."""
        kinds = list(self._kinds)
        while sum(self._tally.kills.values()) < kills and not over():
            kind = self._dice.choice(kinds)
            done = await asyncio.to_thread(self._kinds[kind])
            (self._tally.kills if done else self._tally.missed)[kind] += 1
            await asyncio.sleep(self._dice.uniform(0.2, 1.2) if done else 0.05)

    def _worker(self) -> bool:
        number = self._dice.randrange(self._stage.workers)
        daemon = self._stage.daemons[number]
        daemon.kill()
        time.sleep(self._dice.choice((0.0, 0.0, 0.5, 2.0)))
        daemon.start()
        if self._dice.random() < 0.8:  # else it may be killed again on its way up
            with suppress(StackError):
                daemon.wait_for(self._stage.socket(number))
        return True

    def _broker(self) -> bool:
        self._stage.broker.kill()
        time.sleep(self._dice.choice((0.0, 0.3, 1.5)))
        self._stage.start_broker()
        return True

    def _sandbox(self) -> bool:
        ours = {pid for daemon in self._stage.daemons if daemon.popen for pid in below(daemon.pid)}
        found = sorted(ours & sandboxes())
        if not found:
            return False
        kill(self._dice.choice(found))
        return True

    def _model(self) -> bool:
        self._stage.model.kill()
        time.sleep(self._dice.choice((0.0, 0.3, 1.0)))
        self._stage.model.start()
        return True

    def _postgres(self) -> bool:
        self._stage.restart_postgres()
        return True


async def views_of(stage: Chaos, names: Sequence[str]) -> dict[str, TaskView]:
    """The tasks as any living worker shows them; none while none answers."""
    for number in range(stage.workers):
        with suppress(SwarmError):
            async with DaemonClient(stage.socket(number), timeout=10.0) as client:
                return {name: await client.task(name) for name in names}
    return {}


async def watched(stage: Chaos, names: Sequence[str], tally: Tally, said: Console) -> dict[str, TaskView]:
    """Wait until all tasks are final, or time is up; their last views."""
    until, final, told = time.monotonic() + PATIENCE, dict[str, TaskView](), 0.0
    while len(final) < len(names) and time.monotonic() < until:
        await asyncio.sleep(1.0)
        open_ = [name for name in names if name in tally.handed_in and name not in final]
        final |= {name: view for name, view in (await views_of(stage, open_)).items() if view.state.final}
        if time.monotonic() - told > 20:
            told = time.monotonic()
            said.print(f"{len(final)} of {len(names)} tasks have ended")
    return final


def judged(stage: Chaos, names: Sequence[str], final: dict[str, TaskView], tally: Tally) -> None:
    """Look at forge, broker, model and machine, and count what should not be."""
    wrong = tally.wrong
    tally.ended.update(view.state.value for view in final.values())
    with Client(stage.people) as people:
        pulls = Counter(pull.branch for pull in people.pulls("demo").pulls)
    branches = git(stage.forge, "for-each-ref", "--format=%(refname:short)", "refs/heads/swarm/").split()
    lost = [name for name in names if name not in final]
    undelivered = [name for name, view in final.items() if view.state is not TaskState.DELIVERED]
    doubled = [branch for branch, count in pulls.items() if count > 1]
    strange = [branch for branch in branches if branch.removeprefix("swarm/") not in names]
    base = git(stage.forge, "rev-parse", "main")
    bad = [
        name
        for name, view in final.items()
        if view.state is TaskState.DELIVERED
        and (
            pulls[f"swarm/{name}"] != 1
            or git(stage.forge, "rev-parse", f"swarm/{name}~1") != base
            or git(stage.forge, "show", f"swarm/{name}:clamp.py") != MENDED.format(task=name).strip()
        )
    ]
    wrong += [f"{name}: lost, it has not ended" for name in lost]
    wrong += [f"{name}: {final[name].state.value}: {final[name].reason}" for name in undelivered]
    wrong += [f"{branch}: more than one pull request" for branch in doubled]
    wrong += [f"{name}: its branch is not its work, one commit on main, with one pull request" for name in bad]
    wrong += [f"{branch}: a branch that no task of ours has" for branch in strange]
    chain = _chain_whole(stage)
    wrong += [] if chain else ["the broker's log is not whole"]
    asked = Counter(json.loads(line)["question"] for line in stage.answers.read_text().splitlines())
    tally.counts = {
        "tasks": len(names),
        "lost": len(lost),
        "not delivered": len(undelivered),
        "doubled pull requests": len(doubled) + len(bad) + len(strange),
        "model answers": sum(asked.values()),
        "answers asked for twice": sum(count - 1 for count in asked.values()),
        "audit chain whole": int(chain),
    }
    killed = sum(tally.kills.values())
    if tally.counts["answers asked for twice"] > killed * stage.slots * stage.workers:
        wrong.append("more answers were asked for twice than can have been cut off by the kills")


def left_over(stage: Chaos, before: set[int], tally: Tally) -> None:
    """Count what outlives the workers once they have stopped."""
    deadline = time.monotonic() + 10
    while (orphans := sandboxes() - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    tally.counts["orphans"] = len(orphans)
    tally.wrong += [f"process {pid} of a sandbox is left over" for pid in orphans]
    odd = odd_rows(stage)
    tally.counts["rows that should not be"] = sum(odd.values())
    tally.wrong += [f"the database holds {name}, {count} times" for name, count in odd.items()]


ODD = {  # of the database, when every task has ended; each counts rows that there must be none of
    "a task that ended and is still held by a host": (
        "SELECT count(*) FROM tasks WHERE host IS NOT NULL AND state <> 'running' AND state <> 'delivering'"
    ),
    "an attempt without an end": "SELECT count(*) FROM attempts WHERE ended IS NULL",
    "a journal with a gap": "SELECT count(*) FROM (SELECT 1 FROM steps GROUP BY task HAVING count(*) <> max(seq)) odd",
    "a task with two receipts": (
        "SELECT count(*) FROM (SELECT 1 FROM steps WHERE kind = 'receipt' GROUP BY task HAVING count(*) > 1) odd"
    ),
    "a sealed tree made twice by one attempt": (
        "SELECT count(*) FROM (SELECT 1 FROM steps WHERE kind = 'sealed' GROUP BY attempt HAVING count(*) > 1) odd"
    ),
}
UNDONE = "SELECT count(*) FROM {}workflow_status WHERE status IN ('PENDING', 'ENQUEUED', 'DELAYED')"


def odd_rows(stage: Chaos) -> dict[str, int]:
    """What the database holds that it should not, by its name."""
    if stage.shared:
        password = (stage.base / "postgres" / "password").read_text().strip()
        url = url_of(Address(stage.database, password))
        places = dict.fromkeys(ODD.values(), url) | {UNDONE.format("engine."): url}
    else:
        store, runs = (
            sa.URL.create("sqlite", database=str(stage.state(0) / name)) for name in ("swarm.db", "engine.db")
        )
        places = dict.fromkeys(ODD.values(), store) | {UNDONE.format(""): runs}
    named = {query: name for name, query in ODD.items()}
    found = {}
    for query, url in places.items():
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            if count := connection.execute(sa.text(query)).scalar_one():
                found[named.get(query, "a run of the engine that never ended")] = int(count)
        engine.dispose()
    return found


def _chain_whole(stage: Chaos) -> bool:
    argv = (sys.executable, "-m", "broker", "log", "verify", "--config", str(stage.base / "broker.toml"))
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


async def through(stage: Chaos, told: argparse.Namespace, said: Console) -> Tally:
    """The whole run."""
    tally, before, began = Tally(), sandboxes() - _ours(stage), time.monotonic()
    grants = await asyncio.to_thread(granted, stage, told.tasks)
    names = list(grants)
    killer = Killer(stage, told.seed, tally)
    watching = asyncio.create_task(watched(stage, names, tally, said))
    handing_in = asyncio.create_task(hand_in(stage, grants, tally, told.kills))
    await killer.run(told.kills, watching.done)
    for number, daemon in enumerate(stage.daemons):
        with suppress(StackError):
            daemon.wait_for(stage.socket(number), seconds=30)
    await handing_in
    final = await watching
    await asyncio.to_thread(judged, stage, names, final, tally)
    kinds = Counter(view.state for view in final.values())
    odd = sorted(final, key=lambda name: kinds[final[name].state])
    odd = [name for name in odd if final[name].state is not TaskState.DELIVERED][:JOURNALS]
    tally.journals = {name: await journal(stage, name) for name in odd}
    for daemon in stage.daemons:
        await asyncio.to_thread(daemon.stop)
    await asyncio.to_thread(left_over, stage, before, tally)
    tally.seconds = time.monotonic() - began
    return tally


async def journal(stage: Chaos, name: str) -> list[str]:
    """What a task's journal says."""
    async with DaemonClient(stage.socket(0)) as client:
        return [f"{step.seq} {step.kind} {json.dumps(step.data)}" for step in await client.steps(name)]


def _ours(stage: Chaos) -> set[int]:
    return {pid for daemon in stage.daemons for pid in below(daemon.pid)}


def shown(tally: Tally, said: Console) -> None:
    """The tables, and each thing that went wrong."""
    kills = Table("killed", "times", title="kills")
    for kind, count in sorted(tally.kills.items()):
        kills.add_row(kind, str(count))
    kills.add_row("in all", str(sum(tally.kills.values())))
    said.print(kills)
    found = Table("what", "count", title=f"after {tally.seconds:.0f} s")
    for name, number in tally.counts.items():
        found.add_row(name, str(number))
    for state, number in sorted(tally.ended.items()):
        found.add_row(f"ended: {state}", str(number))
    said.print(found)
    kinds = Counter(_kind(line) for line in tally.wrong)
    for line in sorted(tally.wrong, key=lambda line: kinds[_kind(line)])[:SHOWN]:  # the odd one is not to be missed
        said.print(f"WRONG  {line}", markup=False)
    for name, lines in tally.journals.items():
        said.print(f"--- the journal of {name}, its end", markup=False)
        for line in lines[-SHOWN:]:
            said.print(line[:300], markup=False)


def _kind(line: str) -> str:
    return re.sub(r"\d+", "0", line)


def main() -> int:
    """0 where nothing was lost, doubled or left over."""
    parser = argparse.ArgumentParser(prog="chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--embedded", action="store_true", help="one daemon on SQLite in place of two on Postgres")
    parser.add_argument("--slots", type=int, default=3, help="attempts of one worker at a time")
    told = parser.parse_args()
    said = Console(width=110)
    said.print(f"{told.tasks} tasks, {told.kills} kills, seed {told.seed}")
    with staged(shared=not told.embedded, workers=1 if told.embedded else 2, slots=told.slots) as stage:
        tally = asyncio.run(through(stage, told, said))
        shown(tally, said)
        if tally.wrong:
            for process in (stage.broker, *stage.daemons):
                said.print(process.tail(60), markup=False)
    if sum(tally.kills.values()) < told.kills:
        said.print(f"only {sum(tally.kills.values())} kills were made before all tasks had ended: ask for more tasks")
    short = sum(tally.kills.values()) < told.kills
    return 1 if tally.wrong or short else 0


if __name__ == "__main__":
    sys.exit(main())
