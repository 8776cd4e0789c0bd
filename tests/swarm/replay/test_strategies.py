"""Strategies that are made of parts replay to the same tree, also where parts went on beside one another."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from pool.testing import ScriptedPool
from swarm.agent import Agent
from swarm.replay.verdict import told
from swarm.strategies.best_of import BestOf
from swarm.strategies.choice import InTurn, strategy_named
from swarm.types import TaskState
from tests.swarm.replay.conftest import MEND, call, finish

pytestmark = pytest.mark.slow

WRONG = "sed -i 's/min(x, low)/min(x, low + 1)/' clamp.py"


def by_session(**scripts: list[Any]) -> ScriptedPool:
    """Answers each part from a list of its own."""
    given: dict[str, list[Any]] = defaultdict(list, {name: list(script) for name, script in scripts.items()})

    def answer(request: Any) -> Any:
        return given[request.session.partition("~")[2].replace("-", "_")].pop(0)

    return ScriptedPool(answer)


async def whole(bench: Any, name: str, strategy: str, record: Any) -> Any:
    async with bench.open():
        await bench.submit(name, strategy=strategy)
        await bench.until(name, TaskState.DELIVERED)
        return await record(name)


async def test_best_of_replays_with_the_prefix_that_tries_shared(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    bench.pool = by_session(
        try_1=[call("view", path="clamp.py"), call("shell", command=WRONG), finish(), finish()],
        try_2=[call("shell", command=MEND), finish(), finish()],
        try_3=[call("shell", command=MEND), finish(), finish()],
    )
    bench.strategies = {"best-of-3": strategy_named("best-of-3")}
    recorded, objects = await whole(bench, name, "best-of-3", record)
    after = [step.data["after"]["part"] for step in recorded.steps if "after" in step.data]
    assert after == ["try-1", "try-1"]
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.stopped, verdict.lines) == (True, "", verdict.of), "\n".join(told(verdict))
    assert verdict.replayed == recorded.sealed


async def test_tries_beside_one_another_replay_in_their_recorded_order(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    bench.pool = by_session(
        try_1=[call("view", path="clamp.py"), call("shell", command=WRONG), finish(), finish()],
        try_2=[call("run_tests"), call("shell", command=MEND), finish(), finish()],
        try_3=[call("shell", command="sleep 0.1"), call("shell", command=MEND), finish(), finish()],
    )
    wide = BestOf(Agent(), n=3, agree=2, at_once=3)
    bench.strategies = {"wide": wide}
    recorded, objects = await whole(bench, name, "wide", record)
    verdict = await replay(recorded, objects, strategy=lambda _: wide)
    assert (verdict.same, verdict.stopped) == (True, ""), "\n".join(told(verdict))
    assert verdict.replayed == recorded.sealed


async def test_a_review_replays_its_question_and_the_conversation_that_goes_on(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    fault = {"kind": "fault", "file": "clamp.py", "line": 1, "what": "is wrong", "mend": ""}
    bench.pool = by_session(
        work=[call("shell", command=MEND), call("run_tests"), finish()],
        review_1=[json.dumps({"findings": [fault]})],
        fix_1=[call("view", path="clamp.py"), finish(), finish()],
        review_2=[json.dumps({"findings": []})],
    )
    bench.strategies = {"review": strategy_named("review")}
    recorded, objects = await whole(bench, name, "review", record)
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.stopped, verdict.lines) == (True, "", verdict.of), "\n".join(told(verdict))
    assert not [difference for difference in verdict.differences if not difference.noise]


async def test_a_cascade_replays(bench: Any, name: str, record: Any, replay: Any) -> None:
    bench.pool = ScriptedPool(lambda _: f"```tool\n{json.dumps(nexts.pop(0))}\n```", native=False)
    nexts = [
        {"name": "shell", "arguments": {"command": MEND}},
        {"name": "run_tests", "arguments": {}},
        {"name": "finish", "arguments": {"title": "t", "summary": "s"}},
    ]
    bench.strategies = {"cascade": strategy_named("cascade")}
    recorded, objects = await whole(bench, name, "cascade", record)
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.stopped, verdict.lines) == (True, "", verdict.of), "\n".join(told(verdict))


async def test_ways_in_turn_replay_the_one_that_gave_up_as_well(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    bench.pool = by_session(
        way_1=[call("shell", command=WRONG), *["I cannot"] * 9],
        way_2=[call("shell", command=MEND), call("run_tests"), finish(), finish()],
    )
    turns = InTurn(("first", "second"), lambda _: Agent())
    bench.strategies = {"turns": turns}
    recorded, objects = await whole(bench, name, "turns", record)
    parts = [step.data.get("part") for step in recorded.steps if step.kind == "model_call"]
    assert (parts[0], parts[-1]) == ("way-1", "way-2")
    assert any("taken back" in str(step.data.get("text")) for step in recorded.steps if step.kind == "edit")
    verdict = await replay(recorded, objects, strategy=lambda _: turns)
    assert (verdict.same, verdict.stopped) == (True, ""), "\n".join(told(verdict))
