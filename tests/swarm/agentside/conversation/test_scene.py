"""What a conversation begins with: real files, real tests, bounded and the same every time."""

from __future__ import annotations

import re

import pytest

from pool.testing import call
from pool.types import Choice, Traits
from swarm import history, prompts
from swarm.agent import Agent
from swarm.conversation.talk import size_of
from swarm.types import Budget
from tests.swarm.agentside.conftest import OpenDesk

TEST = "import unittest, b\nclass B(unittest.TestCase):\n    def test_b(self): self.assertEqual(b.f(), 2)\n"
FILES = {"b.py": "def f():\n    return 1\n", "test_b.py": TEST}
TESTS = "grep -q 'return 2' b.py || { echo 'AssertionError: 1 != 2'; false; }"
FINISH = call("finish", title="t")
MEND = call("edit", path="b.py", search="return 1", replace="return 2")


def opening(at) -> str:
    return at.pool.requests[0].messages[1].content


async def test_the_files_that_a_task_names_and_its_tests_are_shown_first(desk: OpenDesk) -> None:
    at = await desk(FILES, [MEND, FINISH], test_command=TESTS, paths=("b.py",))
    assert (await Agent().work(at.work)).ending == "finished"
    assert "2\t    return 1" in opening(at)
    assert "AssertionError: 1 != 2" in opening(at)
    assert "return 2" in at.text("b.py"), "what was shown may be edited without another view"


async def test_files_that_a_failing_test_leads_to_are_shown_where_none_are_named(desk: OpenDesk) -> None:
    trace = 'printf \'File "/usr/lib/unittest.py", line 9\\nFile "test_b.py", line 3\\nFile "b.py", line 2\\n\'; false'
    at = await desk(FILES, [FINISH, FINISH], test_command=trace)
    await Agent().work(at.work)
    told = opening(at)
    assert told.index("b.py:\n1\tdef f()") < told.index("test_b.py:\n1\timport unittest")
    assert "unittest.py:\n" not in told


async def test_two_runs_begin_with_the_same_bytes(desk: OpenDesk) -> None:
    first, second = [await desk(FILES, [MEND, FINISH], test_command=TESTS, paths=("b.py",)) for _ in range(2)]
    for at in (first, second):
        await Agent().work(at.work)
    told = [re.sub(r"/\S*/work/", "", opening(at)) for at in (first, second)]  # each has a folder of its own
    assert told[0] == told[1]


async def test_finish_without_a_change_over_failing_tests_is_turned_down_once(desk: OpenDesk) -> None:
    at = await desk(FILES, [FINISH, MEND, FINISH], test_command=TESTS)
    assert (await Agent().work(at.work)).ending == "finished"
    assert at.pool.requests[1].messages[-1].content.startswith(prompts.UNTESTED)


async def test_a_model_that_insists_that_nothing_is_to_be_done_is_let_go(desk: OpenDesk) -> None:
    at = await desk(FILES, [FINISH, FINISH], test_command=TESTS)
    assert (await Agent().work(at.work)).ending == "no_change"


async def test_a_long_file_is_shown_in_part_and_no_window_is_filled_with_it(desk: OpenDesk) -> None:
    long = {"b.py": "x = 1  # a line of some length, as they are\n" * 3000}
    traits = Traits(native=True, window=8000)
    at = await desk(long, [FINISH], paths=("b.py",), traits=traits)
    await Agent().work(at.work)
    assert "b.py:\n" in opening(at)
    assert len(opening(at)) < 8000 * 3 * 0.2 + 1500


async def test_what_is_named_and_not_there_is_left_out(desk: OpenDesk) -> None:
    at = await desk(FILES, [FINISH], paths=("gone.py", "../../etc/passwd"))
    await Agent().work(at.work)
    assert "shown by the tools" not in opening(at)


@pytest.mark.slow
async def test_tests_that_never_end_are_told_of_and_not_waited_for(desk: OpenDesk) -> None:
    at = await desk(FILES, [FINISH], test_command="sleep 60", budget=Budget(wall=12.0))
    assert (await Agent().work(at.work)).ending == "no_change"
    assert "killed: it did not end within" in opening(at)


async def test_a_later_life_knows_that_the_tests_failed_and_does_not_run_them_again(desk: OpenDesk) -> None:
    first = await desk(FILES, [MEND, FINISH], test_command=TESTS, paths=("b.py",))
    await Agent().work(first.work)
    past = history.rebuild(first.steps)
    assert past is not None
    assert past.failing
    begun = next(n for n, step in enumerate(first.steps) if step.data.get("about") == history.OPENING)
    again = await desk(FILES, [MEND, FINISH], test_command=TESTS, paths=("b.py",), past=tuple(first.steps[: begun + 1]))
    assert (await Agent().work(again.work)).ending == "finished"
    assert not [step for step in again.steps if step.data.get("about") == "before"]


def test_small_models_and_small_windows_get_few_tools_and_few_words() -> None:
    assert size_of(Traits(model="Qwen2.5-Coder-1.5B-Instruct", window=32_768)) == "small"
    assert size_of(Traits(model="Qwen3-30B-A3B", window=32_768)) == "full"
    assert size_of(Traits(model="Qwen3-30B-A3B", window=8192)) == "small"
    assert size_of(Traits(model="a-name-that-tells-nothing")) == "full"


BEND = call("edit", path="test_b.py", search="b.f(), 2", replace="b.f(), 1")


async def test_a_test_is_changed_only_by_who_insists(desk: OpenDesk) -> None:
    at = await desk(FILES, [BEND, MEND, FINISH], test_command=TESTS)
    assert (await Agent().work(at.work)).ending == "finished"
    assert at.text("test_b.py") == TEST
    assert "tests are the measure" in at.pool.requests[1].messages[-1].content
    insists = await desk(FILES, [BEND, BEND, FINISH, FINISH], test_command=TESTS)
    await Agent().work(insists.work)
    assert "b.f(), 1" in insists.text("test_b.py")


async def test_a_new_test_is_welcome_and_so_is_any_where_none_failed(desk: OpenDesk) -> None:
    new = call("write", path="test_more.py", content="x = 1\n")
    at = await desk(FILES, [new, FINISH, FINISH], test_command=TESTS)
    await Agent().work(at.work)
    assert at.text("test_more.py") == "x = 1\n"
    passing = FILES | {"b.py": "def f():\n    return 2\n"}
    other = await desk(passing, [BEND, FINISH, FINISH], test_command=TESTS)
    await Agent().work(other.work)
    assert "b.f(), 1" in other.text("test_b.py")


async def test_a_test_is_not_changed_by_a_batch_of_calls_that_comes_twice(desk: OpenDesk) -> None:
    batch = Choice(tool_calls=(*BEND.tool_calls, *FINISH.tool_calls), finish_reason="tool_calls")
    at = await desk(FILES, [batch, batch, batch, FINISH, FINISH], test_command=TESTS)
    await Agent().work(at.work)
    assert at.text("test_b.py") == TEST
