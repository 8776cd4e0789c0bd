"""How long a killed daemon's attempts stand still, and whether anything is paid for twice.

    python -m benchmarks.coordinator_recovery [--quick] [--agents N] [--rounds N]

A real daemon (see `coordinator_stage`) works at N attempts at a time, each in the middle of its work: a command, after
which the work is saved, then a model call, a tool that takes half a second, the next call. It is killed with SIGKILL,
another is started on the same state, and the seconds count from the kill until the model has been asked again by every
one of the attempts: process start, databases, claims, engine, sandboxes and conversations. With SQLite, then with
Postgres.

steps_paid_twice: answers that the model gave again to a turn whose first answer was in the journal when the daemon was
killed. in_flight: turns that were answered again since their answer was not there yet. resumed: the share of the
attempts that went on as themselves (not as a new attempt) and ended right. The last line is one JSON object. Exits with
1 where a goal is missed: all resumed, none paid twice, 10 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.coordinator_stage import postgres, staged
from pool.pretend.script import Recorded, Scripted, call
from pool.testing import pretend_vllm
from swarm.client import DaemonClient
from swarm.config_database import Address
from swarm.types import TaskView

WANTED_S = 10.0
KILLED_AT = 3  # turns that every attempt has behind it then
TURNS = 8  # before an agent says that it is done


@dataclass
class Model:
    """Sends each agent the same way, and remembers how often it was asked for each turn of each task."""

    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    asked_since: dict[str, float] = field(default_factory=dict)
    killed: bool = False

    def __call__(self, asked: Recorded) -> Scripted:
        messages = asked.body.get("messages", ())
        turn = sum(1 for message in messages if message.get("role") == "assistant")
        task = asked.prompt.partition("This is task ")[2].partition(".")[0]
        self.answered[task, turn] += 1
        self.asked_since.setdefault(task, time.monotonic())
        if turn == 0:
            return call("shell", command="sleep 0.1")
        if not self.killed:
            return call(
                "view", path=f"sleep/{0.5 if turn < KILLED_AT else 2}/{turn}"
            )  # who is first waits for the last
        if turn < TURNS:
            return call("view", path=f"sleep/0.5/{turn}")
        return call("finish", title="Nothing to change", summary="")

    def turns(self, task: str) -> int:
        """How many turns a task has had."""
        return max((turn + 1 for name, turn in self.answered if name == task), default=0)


@dataclass(frozen=True)
class Round:
    """One kill."""

    attempts: int
    resumed: int
    seconds: float
    steps_paid_twice: int
    in_flight: int


async def one(folder: Path, agents: int, database: Address | None) -> Round:
    """Start, kill, start again, and see every task to its end."""
    model = Model()
    async with (
        pretend_vllm(model, window=200_000, record=False) as server,
        staged(folder, server.url, agents, database) as stage,
    ):
        names = [f"r{number}" for number in range(agents)]
        await asyncio.to_thread(stage.grant, names)
        await stage.start()
        async with stage.client() as client:
            for name in names:
                await client.submit(stage.request(name, f"This is task {name}. Wait until told to stop."))
        await _until(lambda: all(model.turns(name) >= KILLED_AT for name in names), 180)
        stage.kill()
        killed, model.killed = time.monotonic(), True
        before = Counter(model.answered)
        model.asked_since.clear()
        await stage.start()
        await _until(lambda: set(names) <= set(model.asked_since), 180)
        seconds = max(model.asked_since[name] for name in names) - killed
        async with stage.client() as client:
            views = [await _ended(client, name) for name in names]
            kept = {name: await _kept(client, name) for name in names}
        again = [(name, turn) for (name, turn), count in model.answered.items() if count > 1]
        twice = sum(1 for name, turn in again if turn in kept[name] and before[name, turn])
        good = sum(1 for view in views if len(view.attempts) == 1 and view.state.value == "no_change")
        return Round(agents, good, seconds, twice, len(again) - twice)


async def _kept(client: DaemonClient, task: str) -> set[int]:
    """Turns whose answer was in the journal when the daemon was killed: all calls before the line that tells of it."""
    turns: set[int] = set()
    for step in await client.steps(task):
        if step.kind == "note" and step.data.get("text") == "interrupted":
            return turns
        if step.kind == "model_call":
            turns.add(len(turns))
    return turns


async def _ended(client: DaemonClient, task: str) -> TaskView:
    async with asyncio.timeout(180):
        while not (view := await client.task(task)).state.final:  # noqa: ASYNC110 - another process moves it
            await asyncio.sleep(0.1)
        return view


async def _until(there: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not there():  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.02)


def measure(name: str, agents: int, rounds: int) -> list[Round]:
    """Some kills on one kind of database, told as they come."""
    found = []
    for number in range(rounds):
        with ExitStack() as stack:
            # Not in a folder that only we may enter: Postgres runs as another user where we are root.
            base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recovery-")))
            base.chmod(0o711)
            (base / "stage").mkdir()
            database = stack.enter_context(postgres(base / "postgres")) if name == "postgres" else None
            one_round = asyncio.run(one(base / "stage", agents, database))
        print(f"{name} {number + 1}: {one_round}", flush=True)
        found.append(one_round)
    return found


def summary(found: list[Round]) -> dict[str, float]:
    """What some kills came to."""
    return {
        "resumed": sum(each.resumed for each in found) / sum(each.attempts for each in found),
        "seconds": round(statistics.median(each.seconds for each in found), 2),
        "seconds_max": round(max(each.seconds for each in found), 2),
        "steps_paid_twice": sum(each.steps_paid_twice for each in found),
        "in_flight": sum(each.in_flight for each in found),
    }


def main() -> int:
    """Measure, tell, judge."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # the model writes to a daemon that was killed
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer attempts, one kill for each database")
    parser.add_argument("--agents", type=int, help="attempts at a time (default 100; quick: 40)")
    parser.add_argument("--rounds", type=int, help="kills for each database (default 3; quick: 1)")
    told = parser.parse_args()
    agents = told.agents or (40 if told.quick else 100)
    rounds = told.rounds or (1 if told.quick else 3)
    parts = {name: summary(measure(name, agents, rounds)) for name in ("sqlite", "postgres")}
    whole = {
        "resumed": min(part["resumed"] for part in parts.values()),
        "seconds": max(part["seconds"] for part in parts.values()),
        "steps_paid_twice": sum(part["steps_paid_twice"] for part in parts.values()),
    }
    print(json.dumps({"attempts": agents, **whole, **parts}))
    missed = whole["resumed"] < 1 or whole["steps_paid_twice"] > 0 or whole["seconds"] > WANTED_S
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
