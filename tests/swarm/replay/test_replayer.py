"""A recorded attempt comes to the byte-identical tree again, and where it does not, it is told from where on."""

from __future__ import annotations

from typing import Any

import pytest

from pool.errors import ContextOverflowError
from pool.testing import ScriptedPool
from swarm.replay.verdict import told
from swarm.types import Budget, TaskState
from tests.swarm.replay.conftest import MEND, call, finish

pytestmark = pytest.mark.slow


async def test_an_attempt_of_the_agent_comes_to_its_tree_again(bench: Any, name: str, record: Any, replay: Any) -> None:
    answers = [
        call("run_tests"),
        call("shell", command=MEND),
        call("view", path="clamp.py"),
        call("run_tests"),
        finish(),
    ]
    bench.pool = ScriptedPool(answers)
    async with bench.open():
        await bench.submit(name, strategy="agent")
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.first, verdict.stopped) == (True, None, ""), "\n".join(told(verdict))
    assert verdict.replayed == recorded.sealed
    assert verdict.lines == verdict.of
    assert verdict.noise  # "Ran 2 tests in 0.000s", and how long it took
