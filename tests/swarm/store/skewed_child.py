"""A host whose clock is off by some seconds: submits, claims and has a fault, and tells when what was possible."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

OFF = float(sys.argv[2])
_right = time.time
time.time = lambda: _right() + OFF  # before anything else has it

from swarm.config_database import Address  # noqa: E402
from swarm.scheduling.facts import HostFacts  # noqa: E402
from swarm.store.rows import Plan, Settlement  # noqa: E402
from swarm.store.store import Store  # noqa: E402
from swarm.types import AttemptResult, Budget, Conclusion, TaskRequest, TaskState  # noqa: E402

HOST = HostFacts("here", slots=100)
PLAN = Plan(budget=Budget(), tier="small", strategy="auto")
FAULT = Settlement(
    TaskState.QUEUED, "again", AttemptResult(conclusion=Conclusion(ending="infra_failed")), wait=2, failure="model"
)


async def work(address: Address) -> None:
    """One task that expires in ten minutes; prints one JSON line."""
    async with Store(address) as store:
        request = TaskRequest(repository="demo", instructions="fix it", task="fresh", expires=600)
        await store.add(request, PLAN)
        swept = await store.queue.sweep()
        first = await store.queue.claim(HOST)
        assert first is not None
        await store.settle(first, FAULT)
        early = await store.queue.claim(HOST)
        due = await store.queue.due()
        assert due is not None
        wait = due - store.clock()
        await asyncio.sleep(wait)
        later = await store.queue.claim(HOST)
        claimed = [each.task.id if each else None for each in (first, early, later)]
        told = {"off": store.clock() - _right(), "swept": swept, "claimed": claimed, "due": wait}
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    asyncio.run(work(Address(sys.argv[1], os.environ["PASSWORD"])))
