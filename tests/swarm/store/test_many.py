"""Many processes on one database at once: nothing is claimed twice, and every journal is without a gap."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from swarm.config_database import Address
from swarm.store.rows import Plan
from swarm.store.store import Store
from swarm.types import Budget, TaskRequest, TaskState
from tests.swarm.store.hammer_child import LINES

WORKERS, TASKS, TRIES = 6, 30, 3
ROOT = Path(__file__).resolve().parents[3]
PLAN = Plan(budget=Budget(attempts=TRIES), tier="small", strategy="auto")


@pytest.mark.slow
@pytest.mark.postgres
async def test_many_processes_claim_nothing_twice_and_leave_no_gap(postgres: Address) -> None:
    async with Store(postgres) as store:
        for number in range(TASKS):
            await store.add(TaskRequest(repository="demo", instructions="fix it", task=f"t{number}"), PLAN)
        shares = await asyncio.gather(*(worker(postgres, f"w{number}") for number in range(WORKERS)))
        assert sum(bool(share) for share in shares) > 1
        told = [line for share in shares for line in share]
        assert await store.counts() == {TaskState.NO_CHANGE: TASKS}
        assert all(line["settled"] and not line["late"] for line in told)
        names = [line["attempt"] for line in told]
        assert len(names) == len(set(names)) == TASKS * TRIES
        for number in range(TASKS):
            view, lines = await store.view(f"t{number}"), await store.steps(f"t{number}")
            assert [attempt.number for attempt in view.attempts] == [1, 2, 3]
            assert [attempt.spent.tokens for attempt in view.attempts] == [LINES * 10] * TRIES
            assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
            assert "too late" not in {line.data.get("text") for line in lines}
            for attempt in view.attempts:
                writers = {
                    line.data["text"].split()[0] for line in lines if line.attempt == attempt.id and line.kind == "note"
                }
                assert len(writers) == 1


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_host_whose_clock_is_off_keeps_the_databases_time(postgres: Address, hours: int) -> None:
    (told,) = await worker(postgres, str(hours * 3600), "skewed_child")
    assert abs(told["off"]) < 60
    assert told["swept"] == []
    assert told["claimed"] == ["fresh", None, "fresh"]
    assert 0 < told["due"] < 5
    async with Store(postgres) as store:
        assert all(abs(line.at - time.time()) < 60 for line in await store.steps("fresh"))


async def worker(address: Address, name: str, what: str = "hammer_child") -> list[dict[str, Any]]:
    """Run one worker process to its end; what it told."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"tests.swarm.store.{what}",
        address.url,
        name,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PASSWORD": address.password or ""},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(child.communicate(), 100)
    assert child.returncode == 0, err.decode()
    return [json.loads(line) for line in out.decode().splitlines()]
