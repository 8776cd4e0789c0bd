"""A recorded attempt comes to the byte-identical tree again, and where it does not, it is told from where on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import TypeAdapter

from pool.errors import ContextOverflowError
from pool.testing import ScriptedPool
from pool.types import Choice, Reply, Usage
from swarm.replay.verdict import told
from swarm.types import Budget, Step, TaskState
from tests.swarm.replay.conftest import MEND, call, finish

pytestmark = pytest.mark.slow


async def _second_call(bench: Any, name: str) -> None:
    """Wait until a model has answered for the second time, and what it asked for runs."""
    first = await bench.until_step(name, "model_call")
    async with asyncio.timeout(20):
        while not any(  # noqa: ASYNC110 - the journal has no event for a test
            step.kind == "model_call" for step in await bench.store.steps(name, after=first.seq)
        ):
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)


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


@pytest.mark.parametrize("native", [True, False])
async def test_the_text_protocol_and_the_native_one_replay_alike(
    bench: Any, name: str, record: Any, replay: Any, native: bool
) -> None:
    said = (
        "I look\n```tool\n" + '{"name": "shell", "arguments": {"command": "MEND"}}'.replace("MEND", MEND) + "\n```\nso"
    )
    ended = '```tool\n{"name": "finish", "arguments": {"title": "t", "summary": "s"}}\n```'
    bench.pool = ScriptedPool(["just words", said, ended], native=native)
    async with bench.open():
        await bench.submit(name, strategy="agent")
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.first, verdict.lines) == (True, None, verdict.of), "\n".join(told(verdict))


async def test_an_interrupted_attempt_replays_over_all_its_lives(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    gate = call("shell", command="echo lost > lost.txt; sleep 60")
    bench.pool = ScriptedPool([call("write", path="one.txt", content="1\n"), gate])
    async with bench.open():
        await bench.submit(name, strategy="agent")
        await bench.until_step(name, "salvage")
        await bench.until_step(name, "model_call", finish_reason="tool_calls")
        await _second_call(bench, name)
    bench.pool = ScriptedPool([call("shell", command=MEND), finish(), finish()])
    async with bench.open():
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.lives, verdict.first) == (True, 2, None), "\n".join(told(verdict))
    assert verdict.replayed == recorded.sealed
    assert "1 of them on a recorded tree" in "\n".join(told(verdict))
    raw = TypeAdapter(tuple[Step, ...]).dump_json(recorded.steps).replace(b"one.txt", b"uno.txt")
    other = recorded.model_copy(update={"steps": TypeAdapter(tuple[Step, ...]).validate_json(raw)})
    astray = await replay(other, objects)
    assert (astray.same, astray.alike) == (False, True), "\n".join(told(astray))
    assert next(told(astray)).startswith("not whole: ")


async def test_a_replay_that_stops_is_not_the_same_though_nothing_was_changed(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    """One of twelve lines was played, and the untouched tree passed for the recorded one."""
    undone = call("shell", command="git checkout -q .")
    bench.pool = ScriptedPool([call("shell", command="ls"), call("shell", command=MEND), undone, *[finish()] * 4])
    async with bench.open():
        await bench.submit(name, strategy="agent")
        await bench.until(name, TaskState.NO_CHANGE)
        recorded, objects = await record(name)
    steps = list(recorded.steps)
    at = next(index for index, step in enumerate(steps) if step.data.get("tool") == "shell")
    steps[at] = steps[at].model_copy(update={"data": {**steps[at].data, "tool": "other"}})
    verdict = await replay(recorded.model_copy(update={"steps": tuple(steps)}), objects)
    assert (verdict.same, verdict.alike) == (False, True)
    assert verdict.lines < verdict.of
    assert verdict.stopped
    whole = await replay(recorded, objects)
    assert (whole.same, whole.lines) == (True, whole.of), "\n".join(told(whole))


async def test_overflows_budget_notices_and_messages_come_again_as_they_were(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    big = call("shell", command="seq 3000")
    overflow = ContextOverflowError("too long", window=3000)
    bench.pool = ScriptedPool([big, overflow, big, call("shell", command=MEND), overflow, overflow, finish(), finish()])
    async with bench.open():
        await bench.submit(name, strategy="agent", budget=Budget(steps=8))
        await bench.store.messages.add(name, "use low as it is", "ann")
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    kinds = [step.kind for step in recorded.steps]
    assert "message" in kinds
    assert "budget" in kinds
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.first, verdict.lines) == (True, None, verdict.of), "\n".join(told(verdict))


@pytest.mark.parametrize("ending", ["limit_hit", "gave_up", "cancelled"])
async def test_attempts_that_end_badly_replay_to_what_they_left(
    bench: Any, name: str, record: Any, replay: Any, ending: str
) -> None:
    write = call("write", path="one.txt", content="1\n")
    more: dict[str, list[Any]] = {
        "limit_hit": [write, call("shell", command="echo 2 > two.txt")],
        "gave_up": [write, *["no call"] * 5],
        "cancelled": [write, call("shell", command="sleep 60")],
    }
    bench.pool = ScriptedPool(more[ending])
    async with bench.open():
        budget = Budget(steps=1 if ending == "limit_hit" else 60, attempts=1)
        await bench.submit(name, strategy="agent", budget=budget)
        if ending == "cancelled":
            await _second_call(bench, name)
            await bench.coordinator.cancel(name)
        await bench.until(name, TaskState(ending))
        recorded, objects = await record(name)
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.first) == (True, None), "\n".join(told(verdict))


async def test_a_changed_answer_is_found_and_told(bench: Any, name: str, record: Any, replay: Any) -> None:
    bench.pool = ScriptedPool(
        [call("shell", command="echo right > a.txt; exit 3"), call("shell", command=MEND), finish(), finish()]
    )
    async with bench.open():
        await bench.submit(name, strategy="agent")
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    steps = list(recorded.steps)
    at = next(index for index, step in enumerate(steps) if step.kind == "model_call")
    raw = steps[at].model_dump_json().replace("right", "wrong").replace("exit 3", "exit 4")
    steps[at] = steps[at].model_validate_json(raw)
    verdict = await replay(recorded.model_copy(update={"steps": tuple(steps)}), objects)
    assert not verdict.same
    assert verdict.first is not None
    assert (verdict.first.what, verdict.first.step) == ("exit code", steps[at + 1].seq)
    assert {each.what for each in verdict.differences if not each.noise} >= {"exit code", "tree"}
    assert "-right\n+wrong" in verdict.diff
    words = "\n".join(told(verdict))
    assert "exit code 3" in words
    assert "exit code 4" in words


async def test_answers_that_are_missing_or_too_many_end_the_replay_with_the_reason(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    bench.pool = ScriptedPool([call("shell", command=MEND), call("run_tests"), finish()])
    async with bench.open():
        await bench.submit(name, strategy="agent")
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    calls = [index for index, step in enumerate(recorded.steps) if step.kind == "model_call"]
    without = tuple(step for index, step in enumerate(recorded.steps) if index != calls[0])
    verdict = await replay(recorded.model_copy(update={"steps": without}), objects)
    assert not verdict.same
    assert "order" in {each.what for each in verdict.differences}
    assert "something else" in verdict.stopped


async def test_a_sampled_repair_ends_with_the_same_line_however_its_tests_race(
    bench: Any, name: str, record: Any, replay: Any
) -> None:
    def answer(request: Any) -> Any:
        lines = [
            "return max(low, min(x, high))",
            "return min(high, max(low, x))",
            "return max(low, min(high, x))",
            "pass",
        ]
        choices = tuple(Choice(content=f" {line}") for line in lines * 2)
        return Reply(
            choices=choices, usage=Usage(prompt_tokens=9, completion_tokens=9), endpoint="e", model="m", seconds=0.1
        )

    bench.pool = ScriptedPool(answer, native=False)
    async with bench.open():
        await bench.submit(name, strategy="sampled_repair")
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    for _ in range(2):
        verdict = await replay(recorded, objects)
        assert (verdict.same, verdict.first, verdict.lines) == (True, None, verdict.of), "\n".join(told(verdict))
