"""A suspected function is written anew: the tests filter, agreement chooses, and nothing else of the file moves."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.errors import PermanentError
from pool.types import ChatRequest, Choice, Reply, Traits, Usage
from swarm.strategies.regions import Region, around, meaning, named, replaced, written
from swarm.strategies.repair import Bounds, SampledRepair
from swarm.strategies.rewriting import ROUNDS, Rewrite, agreed, patience_for, steady
from swarm.types import Budget, Conclusion, TestRun

TESTS = "sh check.sh"
SOURCE = (
    'import math\n\n\ndef clamp(x, low, high):\n    """Bound x.\n\n    >>> clamp(9, 0, 5)\n    5\n    """\n'
    "    return max(low, min(x, low))\n\n\ndef other():\n    return 1\n"
)
CHECK = """\
if grep -q -e 'min(x, high)' -e 'min(high' -e 'x == 9' m.py; then exit 0; fi
echo 'AssertionError: 0 != 5 in m.py'
exit 1
"""
FILES = {"m.py": SOURCE, "check.sh": CHECK}


def body(line: str) -> str:
    return f"Here:\n```python\ndef clamp(x, low, high):\n    {line}\n```\nDone."


def answers(*lines: str) -> Reply:
    return Reply(
        choices=tuple(Choice(content=body(line)) for line in lines),
        usage=Usage(prompt_tokens=300, completion_tokens=100),
        endpoint="e",
        model="some-7b",
        seconds=0.1,
    )


RIGHT, ALSO = "return max(low, min(x, high))", "return min(high, max(low, x))"
OVERFIT = "return 5 if x == 9 else 0"


async def repaired(at) -> Conclusion:
    return await SampledRepair(rules=True, rewrite=True, bounds=Bounds(functions=1)).work(at.work)


async def test_what_most_samples_that_pass_mean_is_kept(desk) -> None:
    at = await desk(FILES, [answers(OVERFIT, RIGHT, "return x", f"{RIGHT}  # so", ALSO)], test_command=TESTS)
    done = await repaired(at)
    assert (done.ending, done.title, done.model) == ("finished", "Correct `clamp` in m.py", "some-7b")
    assert at.text("m.py") == SOURCE.replace("min(x, low)", "min(x, high)")  # docstring and all else as they were
    assert "2 of its samples mean the same" in done.summary
    assert (at.work.ledger.spent().tokens, at.work.ledger.spent().steps) == (400, 1)


async def test_the_request_is_short_and_tells_what_the_tests_say(desk) -> None:
    at = await desk(FILES, [answers(RIGHT)], test_command=TESTS)
    await repaired(at)
    (request,) = at.pool.requests
    assert isinstance(request, ChatRequest)
    shown = request.messages[1].content
    assert "mend it" in shown
    assert "def clamp(x, low, high):" in shown
    assert "def other" not in shown
    assert "AssertionError: 0 != 5" in shown
    assert "import math" in shown
    assert len(shown) < 4000


@pytest.mark.slow
async def test_what_was_tried_is_told_in_the_next_round(desk) -> None:
    at = await desk(FILES, [answers("return low"), answers(RIGHT)], test_command=TESTS)
    assert (await repaired(at)).ending == "finished"
    assert "This was tried and is still wrong:\n```python\ndef clamp" in at.pool.requests[1].messages[1].content
    assert at.pool.requests[1].temperature > at.pool.requests[0].temperature


@pytest.mark.slow
async def test_rules_follow_where_no_sample_passes(desk) -> None:
    at = await desk(FILES, [answers("return low")] * ROUNDS, test_command=TESTS)
    done = await repaired(at)
    assert (done.ending, len(at.pool.requests)) == ("finished", ROUNDS)
    assert "Found by mutation rules" in done.summary


@pytest.mark.slow
async def test_a_server_without_chat_is_asked_otherwise(desk) -> None:
    at = await desk(FILES, lambda _: PermanentError("no such route"), test_command=TESTS)
    assert "Found by mutation rules" in (await repaired(at)).summary


@pytest.mark.slow
async def test_a_model_too_small_to_write_a_function_is_not_asked_for_one(desk) -> None:
    at = await desk(FILES, [], test_command=TESTS, traits=Traits(model="SmolLM2-135M-Instruct"))
    assert "Found by mutation rules" in (await repaired(at)).summary


PASSING = {**FILES, "check.sh": "exit 0\n"}


async def with_paths(desk, *replies: Reply):
    at = await desk(PASSING, list(replies), test_command=TESTS, instructions="clamp does not bound above")
    request = at.work.task.request.model_copy(update={"paths": ("m.py",)})
    at.work = replace(at.work, task=at.work.task.model_copy(update={"request": request}))
    return at


@pytest.mark.slow
async def test_where_no_test_fails_a_majority_that_passes_decides(desk) -> None:
    files_pass = "return max(low, min(x, low)) + 0"
    at = await with_paths(desk, answers(*[files_pass] * 4, "return 0", "return x"))
    done = await repaired(at)
    assert done.ending == "finished"
    assert "no test had failed, so their agreement decided" in done.summary


@pytest.mark.slow
async def test_where_no_test_fails_and_samples_disagree_it_gives_up(desk) -> None:
    at = await with_paths(desk, answers("return 0", "return low", "return x * 0", RIGHT, RIGHT, ALSO))
    done = await repaired(at)
    assert done.ending == "gave_up"
    assert "no majority of samples agrees" in done.summary
    assert at.text("m.py") == SOURCE


@pytest.mark.slow
async def test_no_round_begins_once_the_budget_is_spent(desk) -> None:
    at = await desk(FILES, [answers("return low")] * 9, test_command=TESTS, budget=Budget(tokens=700))
    done = await repaired(at)
    assert len(at.pool.requests) == 2
    assert (done.ending, done.limit) == ("limit_hit", "task.tokens")


@pytest.mark.slow
async def test_what_was_paid_for_is_not_asked_again_after_a_crash(desk) -> None:
    at = await desk(FILES, [answers(RIGHT)], test_command=TESTS)
    await repaired(at)
    cut = next(n for n, line in enumerate(at.steps) if line.kind == "model_call") + 1
    again = await desk(FILES, [], test_command=TESTS)
    again.work = replace(again.work, past=tuple(at.steps[:cut]))
    assert (await repaired(again)).ending == "finished"
    assert again.pool.requests == []


def region(source: str = SOURCE, line: int = 10) -> Region:
    found = around("m.py", source, line)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (body(RIGHT), RIGHT),
        (f"def clamp(x, low, high):\n    {RIGHT}", RIGHT),
        (f"```\nimport math\n\ndef clamp(x, low, high):\n    {RIGHT}\n\nassert clamp(1, 2, 3)\n```", RIGHT),
        (f"```python\n  def clamp(x, low, high):\n      {RIGHT}\n```", RIGHT),
        (f"```python\ndef clamp(x, low, high):\n    'Mine.'\n    {RIGHT}", RIGHT),
        ("```python\nwrong\n```\n" + body(RIGHT), RIGHT),
    ],
)
def test_the_function_is_found_in_whatever_surrounds_it(answer: str, line: str) -> None:
    made = replaced(SOURCE, region(), written(answer, region(), SOURCE))
    assert made == SOURCE.replace("return max(low, min(x, low))", line)


@pytest.mark.parametrize("answer", ["", "I cannot", "```python\ndef other(): pass\n```", "```python\ndef clamp(\n```"])
def test_an_answer_without_the_function_is_none(answer: str) -> None:
    assert written(answer, region(), SOURCE) == ""


def test_new_imports_come_along_and_known_ones_do_not() -> None:
    answer = f"```python\nimport math\nimport re\n\ndef clamp(x, low, high):\n    {RIGHT}\n```"
    made = written(answer, region(), SOURCE)
    assert made.startswith("import re\ndef clamp")


def test_methods_keep_their_indentation_and_line_ends_stay() -> None:
    source = "class A:\r\n    def f(self):\r\n        return 1\r\n\r\n    def g(self):\r\n        return 2\r\n"
    found = around("a.py", source, 3)
    assert found is not None
    made = replaced(source, found, written("```python\ndef f(self):\n    return 3\n```", found, source))
    assert made == source.replace("return 1", "return 3")


def test_the_functions_that_words_name_are_found() -> None:
    assert [one.name for one in named("mend clamp please", {"m.py": SOURCE})] == ["clamp"]
    assert [one.name for one in named("mend it", {"m.py": SOURCE})] == ["clamp", "other"]
    assert named("x", {"m.py": "def f(:"}) == ()


def test_layout_comments_and_docstrings_mean_nothing() -> None:
    assert meaning("m.py", SOURCE) == meaning("m.py", SOURCE.replace("Bound x.", "Other.") + "# more\n")
    assert meaning("m.py", SOURCE) != meaning("m.py", SOURCE.replace("low))", "high))"))
    assert meaning("m.py", "def f(:") == ""


def test_what_differs_from_run_to_run_is_not_told() -> None:
    first = "Ran 3 tests in 0.004s\nobject at 0x7fd1204c8f20\n/tmp/scripted-ab12/work"
    second = "Ran 3 tests in 1.104s\nobject at 0x7fd9204caf20\n/tmp/scripted-zz99/work"
    assert steady(first) == steady(second)


def test_of_equal_agreement_the_smaller_change_is_taken() -> None:
    small, large = (Rewrite(region(), code, code, True, 0) for code in (region().text + " ", "x" * 900))
    assert agreed([large, small]) == (small, 1)
    assert agreed([large, small, large]) == (large, 2)
    assert agreed([]) is None


lines = st.lists(st.text(alphabet="ab =()\n:#'\"\\\r", max_size=30), max_size=8)


@given(lines)
def test_whatever_is_answered_leaves_the_rest_of_the_file(rows: list[str]) -> None:
    answer = "```python\ndef clamp(x, low, high):\n" + "\n".join(f"    {row}" for row in rows) + "\n```"
    code = written(answer, region(), SOURCE)
    made = replaced(SOURCE, region(), code) if code else SOURCE
    assert made.startswith("import math\n\n\n")
    assert made.endswith("\n\n\ndef other():\n    return 1\n")
    assert not code or ast.parse(code)


def test_a_candidate_that_never_ends_is_not_waited_for_long() -> None:
    quick = TestRun(command="t", exit_code=1, seconds=0.2)
    assert patience_for(quick, 4.0) == 5.0
    assert patience_for(quick.model_copy(update={"timed_out": True, "seconds": 60.0}), 4.0) == 8.0
