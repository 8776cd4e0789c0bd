"""`auto` in a whole attempt: what the repository's earlier attempts came to decides, and people are told why."""

from __future__ import annotations

from typing import Any

import pytest

from pool.testing import ScriptedPool
from swarm.cli.view import whole
from swarm.strategies.auto import Auto
from swarm.types import Conclusion, TaskState
from swarm.work import Work

pytestmark = pytest.mark.slow

MEND = b"def clamp(x, low, high):\n    return max(low, min(x, high))\n"


class Mender:
    """Mends clamp, or gives up."""

    def __init__(self, *, does: bool) -> None:
        self.does = does

    async def work(self, work: Work) -> Conclusion:
        if not self.does:
            return Conclusion(ending="gave_up", summary="no idea")
        await work.sandbox.write("clamp.py", MEND)
        return Conclusion(ending="finished", title="Mend clamp", model="m")


async def test_what_solved_earlier_tasks_is_taken_and_told(bench: Any, name: str) -> None:
    ways = {"review": Mender(does=True), "agent": Mender(does=False)}
    bench.pool = ScriptedPool([])
    bench.strategies = {**ways, "auto": Auto(frozenset(), lambda way: ways.get(way, Mender(does=True)))}
    async with bench.open():
        for number in range(4):
            for way, end in (("review", TaskState.DELIVERED), ("agent", TaskState.GAVE_UP)):
                await bench.submit(f"{name}{way[0]}{number}", strategy=way)
                await bench.until(f"{name}{way[0]}{number}", end)
        outcomes = await bench.store.outcomes.of("demo")
        assert {(one.strategy, one.solved) for one in outcomes} == {("review", True), ("agent", False)}
        await bench.submit(name, strategy="auto")
        view = await bench.until(name, TaskState.DELIVERED)
        (note,) = [step.data for step in await bench.store.steps(name) if step.data.get("about") == "strategy"]
    assert note["learnt"]
    assert "review solved 4 of 4" in note["why"] or "now and then" in note["why"]
    assert view.attempts[0].way == f"{note['names'][0]} ({note['why']})"
    assert any("took " in line and note["names"][0] in line for line in whole(view))
