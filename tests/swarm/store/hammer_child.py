"""One of many workers on one database: claims, records and settles until nothing is left, and tells what it did."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from swarm.config_database import Address
from swarm.errors import StaleClaimError
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Settlement
from swarm.store.store import Store
from swarm.types import AttemptResult, Conclusion, Spent, TaskState

LINES = 5


async def work(address: Address, name: str) -> None:
    """Work until the queue is empty; prints each attempt that it settled, one JSON line each."""
    host = HostFacts(name, slots=100)
    async with Store(address) as store:
        while TaskState.QUEUED in await store.counts() or TaskState.RUNNING in await store.counts():
            claim = await store.queue.claim(host)
            if claim is None:
                await asyncio.sleep(0.05)
                continue
            for number in range(1, LINES + 1):
                store.budgets.spend(claim.attempt.id, Spent(steps=number, tokens=number * 10))
                await store.record(claim, "note", {"text": f"{name} {number}"})
            again = claim.attempt.number < 3
            end = Settlement(
                TaskState.QUEUED if again else TaskState.NO_CHANGE,
                "again" if again else "done",
                AttemptResult(conclusion=Conclusion(ending="finished")),
            )
            settled = await store.settle(claim, end)
            try:
                await store.record(claim, "note", {"text": "too late"})
                late = True
            except StaleClaimError:
                late = False
            sys.stdout.write(json.dumps({"attempt": claim.attempt.id, "settled": settled, "late": late}) + "\n")


if __name__ == "__main__":
    asyncio.run(work(Address(sys.argv[1], os.environ["PASSWORD"]), sys.argv[2]))
