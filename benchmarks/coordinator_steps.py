"""What one step costs the store as the journal grows: an append, a read of what is new, a view, and where time went.

Databases with so many stored steps stand side by side, half of the steps in the task that is looked at and the others
in tasks of a thousand each, and are measured by turns, so that whatever else the machine does meets all alike. Run by
`coordinator_agents`.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from swarm.config_database import Address
from swarm.scheduling.facts import HostFacts
from swarm.store.postgres import url_of
from swarm.store.rows import Claim, Plan
from swarm.store.schema import steps
from swarm.store.store import Store
from swarm.types import Budget, TaskRequest

TASK, OTHERS = "measured", 1000  # steps of each of the other tasks
CALL = {  # what a turn of an agent writes
    "endpoint": "a", "model": "pretend", "prompt_tokens": 3000, "completion_tokens": 40, "cached_tokens": 2900,
    "seconds": 1.5, "waited": 0.1, "prefill": 0.2, "request": "0" * 32, "answer": "1" * 32,
    "message": {"role": "assistant", "content": "I look at the next file. " * 20},
}  # fmt: skip
FIRST = 1000  # number of the first step that is filled in, behind those that the task has by itself
AT_ONCE = 20_000  # rows of one insert


def address(database: Address, name: str) -> Address:
    """Another, new database of the same server."""
    engine = sa.create_engine(url_of(database), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
    finally:
        engine.dispose()
    return Address(re.sub(r"/postgres(?=\?|$)", f"/{name}", database.url), database.password)


async def begun(store: Store, others: int) -> Claim:
    """The task that is looked at, claimed, and others in the queue."""
    plan = Plan(budget=Budget(), tier="small", strategy="agent")
    await store.add(TaskRequest(repository="demo", instructions="Go on.", task=TASK), plan)
    claim = await store.queue.claim(HostFacts("one", frozenset(), 1, 86_400.0))
    if claim is None:
        raise SystemExit("the task could not be claimed")
    for number in range(others):
        await store.add(TaskRequest(repository="demo", instructions="Wait.", task=f"other{number}"), plan)
    await store.record(claim, "phase_started", {"phase": "work"})
    return claim


def fill(where: Path | Address, attempt: str, stored: int) -> int:
    """Write steps as if they had been recorded; the number of the last one of the task that is looked at."""
    engine = sa.create_engine(url_of(where) if isinstance(where, Address) else f"sqlite:///{where}")
    own, data, at = stored // 2, json.dumps(CALL), time.time()

    def row(number: int) -> dict[str, Any]:
        whose = {"task": TASK, "seq": FIRST + number, "attempt": attempt, "kind": "model_call"}
        if number >= own:
            other = (number - own) // OTHERS
            whose = {"task": f"other{other}", "seq": FIRST + number, "attempt": None, "kind": "note"}
        return {**whose, "at": at, "data": data}

    try:
        with engine.begin() as connection:
            for first in range(0, stored, AT_ONCE):
                connection.execute(
                    steps.insert(), [row(number) for number in range(first, min(first + AT_ONCE, stored))]
                )
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")
    finally:
        engine.dispose()
    return FIRST + own - 1


async def measure(folder: Path, server: Address | None, stored: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Milliseconds of each operation, medians, by the number of stored steps; and of all, the last's over the first's.

    ``server``: None is SQLite.
    """
    times: dict[int, dict[str, list[float]]] = {count: defaultdict(list) for count in stored}
    async with AsyncExitStack() as stack:
        lanes = []
        for count in stored:
            where = address(server, f"steps{count}") if server else folder / f"{count}.db"
            store = await stack.enter_async_context(Store(where))
            claim = await begun(store, -(-count // 2 // OTHERS))
            lanes.append((count, store, claim, await asyncio.to_thread(fill, where, claim.attempt.id, count)))
        for _ in range(rounds):
            for count, store, claim, last in lanes:
                for name, operation in operations(store, claim, last):
                    began = time.perf_counter()
                    await operation()
                    times[count][name].append((time.perf_counter() - began) * 1000)
    table = {count: {name: statistics.median(values) for name, values in each.items()} for count, each in times.items()}
    whole = {count: sum(each.values()) for count, each in table.items()}
    shown = {str(count): {name: round(value, 2) for name, value in each.items()} for count, each in table.items()}
    return {"ms": shown, "ratio": round(whole[stored[-1]] / whole[stored[0]], 2), "to": stored[-1]}


def operations(store: Store, claim: Claim, last: int) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    """What a turn and a look at its task ask of the store."""
    return [
        ("append", lambda: store.record(claim, "model_call", CALL)),
        ("read", lambda: store.steps(TASK, after=last - 20, limit=20)),
        ("view", lambda: store.view(TASK)),
        ("time", lambda: store.times.task(TASK)),
    ]
