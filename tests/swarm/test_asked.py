"""An agent that asks a person, and attempts that learn from those before them: from the queue to the pull request."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import pytest

from pool.testing import ScriptedPool, call
from swarm.agent import Agent
from swarm.types import Budget, Conclusion, TaskState
from swarm.work import Work

pytestmark = pytest.mark.slow

RIGHT = "def clamp(x, low, high):\n    return max(low, min(x, high))\n"
WRONG = "def clamp(x, low, high):\n    return 0\n"


async def test_a_question_stops_the_task_and_its_answer_is_heard_in_the_same_conversation(
    bench: Any, name: str
) -> None:
    bench.strategies["auto"] = Agent()
    bench.pool = ScriptedPool(
        [
            call("view", path="clamp.py"),
            call("ask", question="Is the upper bound\nincluded?"),
            call("write", path="clamp.py", content=RIGHT),
            call("finish", title="Clamp to the upper bound"),
        ]
    )
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
        assert (view.state, view.failure) == (TaskState.NEEDS_PERSON, "person")
        assert view.reason == "the agent asks: Is the upper bound included?"
        assert view.asks
        assert view.attempts[-1].ending == "asked"
        said = await bench.coordinator.message(name, "Yes, it is.", "ann")
        assert f"swarm resume {name}" in said.when
        await bench.coordinator.resume(name)
        view = await bench.until(name)
    assert view.state is TaskState.DELIVERED
    before, after = (request.messages for request in bench.pool.requests[1:3])
    assert after[: len(before)] == before, "the conversation goes on where it stood"
    new = [message.content for message in after[len(before) + 1 :]]
    assert new[0] == "asked"
    assert any("Yes, it is." in text for text in new)
    assert "You asked a person" in new[-1]
    assert not view.asks


async def test_whoever_resumes_without_an_answer_leaves_the_decision_to_the_agent(bench: Any, name: str) -> None:
    bench.strategies["auto"] = Agent()
    asking = call("ask", question="Which bound?")
    finish = call("finish", title="Nothing to do")
    bench.pool = ScriptedPool([asking, finish, finish])
    async with bench.open():
        await bench.submit(name)
        await bench.until(name)
        await bench.coordinator.resume(name)
        view = await bench.until(name)
    assert view.state is TaskState.NO_CHANGE
    assert "decide for yourself" in bench.pool.requests[1].messages[-1].content


def writing(content: str) -> list[Any]:
    return [
        call("write", path="clamp.py", content=content),
        call("finish", title="Clamp", summary="I return what is asked for"),
        call("finish", title="Clamp", summary="I return what is asked for"),
    ]


async def test_the_next_tier_begins_from_the_base_and_is_told_what_was_tried(bench: Any, name: str) -> None:
    bench.strategies["auto"] = Agent()
    bench.pool = ScriptedPool([*writing(WRONG), call("view", path="clamp.py"), *writing(RIGHT)[:2]])
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
    assert view.state is TaskState.DELIVERED
    assert [attempt.tier for attempt in view.attempts] == ["small", "large"]
    opening = bench.pool.requests[3].messages[1].content
    assert "tried before, without success" in opening
    assert "It edited: clamp.py" in opening
    assert "The checks said:" in opening
    seen = bench.pool.requests[4].messages[-1].content
    assert "return 0" not in seen, "bad work is not built on"


async def test_a_fresh_attempt_follows_on_the_tier_that_a_person_named_and_no_more_than_the_budget_has(
    bench: Any, name: str
) -> None:
    bench.strategies["auto"] = Agent()
    bench.pool = ScriptedPool([*writing(WRONG) * 2])
    async with bench.open():
        await bench.submit(name, tier="large", budget=Budget(attempts=2))
        view = await bench.until(name)
    assert view.state is TaskState.CHECKS_FAILED
    assert [attempt.tier for attempt in view.attempts] == ["large", "large"]
    assert "tried before" in bench.pool.requests[3].messages[1].content


class Half:
    """Mends one of two things, then, where it finds that done, the other."""

    def __init__(self) -> None:
        self.found: list[bool] = []
        self.told: list[str] = []

    async def work(self, work: Work) -> Conclusion:
        self.told.append(work.task.request.instructions)
        there = await work.sandbox.read("clamp.py")
        self.found.append(b"MENDED" in there)
        content = f"MENDED = 1\n{RIGHT if self.found[-1] else WRONG}"
        await work.sandbox.write("clamp.py", content.encode())
        await work.save()
        return Conclusion(ending="finished", title="t", lessons="It edited: clamp.py")


TWO_TESTS = """
import unittest, clamp
class Two(unittest.TestCase):
    def test_high(self): self.assertEqual(clamp.clamp(9, 0, 5), 5)
    def test_name(self): self.assertTrue(hasattr(clamp, "MENDED"))
unittest.main(verbosity=2)
"""


async def test_work_that_mended_some_tests_and_broke_none_is_built_on(bench: Any, name: str) -> None:
    half = bench.strategies["auto"] = Half()
    bench.test_command = f"{sys.executable} -c {shlex.quote(TWO_TESTS)}"
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
        steps = await bench.store.steps(name)
    assert view.state is TaskState.DELIVERED
    assert half.found == [False, True]
    assert "but for the changes of attempt 1" in half.told[1]
    kept = [step for step in steps if step.kind == "salvage" and step.attempt == view.attempts[1].id]
    assert kept[0].data["ref"] == view.attempts[0].salvage
