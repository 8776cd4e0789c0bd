"""Where time and money went, over the daemon's real socket."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from swarm.budgets.scopes import DayBudget, DayBudgets
from swarm.errors import TaskNotFoundError
from tests.swarm.api.conftest import LONG
from tests.swarm.api.test_api import served, wanted

pytestmark = pytest.mark.slow


async def test_the_time_of_a_task_and_of_all_is_told_while_it_runs_and_after(bench: Any, name: str) -> None:
    async with served(bench) as (client, desk):
        desk.store.budgets.limits = DayBudgets(fleet=DayBudget(tokens=1000))
        await client.submit(wanted(bench, name))
        during = await client.task_time(name)
        await bench.until(name)
        after, fleet = await client.task_time(name), await client.times(2, "demo")
        budgets = await client.budgets()
    assert during.until <= after.until
    assert after.times.seconds == pytest.approx(sum(part.seconds for part in after.times.parts))
    assert {"queued", "prepare", "checks", "broker"} <= {part.part for part in after.times.parts}
    assert fleet.total.seconds == pytest.approx(after.times.seconds, abs=0.01)
    fleet_wide = next(one for one in budgets.scopes if one.scope == "fleet")
    assert (fleet_wide.spent.tokens, fleet_wide.limits, fleet_wide.shut) == (10, {"tokens": 1000.0}, "")


async def test_what_is_not_there_or_makes_no_sense_is_refused(bench: Any) -> None:
    async with served(bench) as (client, _desk):
        with pytest.raises(TaskNotFoundError):
            await client.task_time("nothing")
        transport = httpx.AsyncHTTPTransport(uds=str(bench.folder / "d.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://daemon", timeout=LONG) as raw:
            for days in ("0", "1000000", "x"):
                assert (await raw.get("/v1/times", params={"days": days})).status_code == 422
