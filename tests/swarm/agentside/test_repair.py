"""Sampled repair from failing test to edit, with a scripted model and real test runs."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from pool.errors import OverloadError, PermanentError, TransientError
from pool.types import ChatRequest, Choice, CompletionRequest, Reply, Usage
from swarm.budgets.scopes import Standing
from swarm.strategies.asking import Samples
from swarm.strategies.repair import Bounds, SampledRepair
from swarm.types import Budget, Spent

TESTS = "/usr/bin/python3 -m unittest -v"


def written(module: str, name: str, *cases: tuple[str, object]) -> str:
    """A test module with one test for each call and its result."""
    head = f"import unittest\nfrom {module} import {name}\n\n\nclass T(unittest.TestCase):\n"
    return head + "".join(
        f"    def test_{number}(self):\n        self.assertEqual({call}, {result!r})\n\n"
        for number, (call, result) in enumerate(cases)
    )


FILES = {
    "m.py": "def sign(x):\n    if x < 0:\n        return 1\n    return 1\n",
    "test_m.py": written("m", "sign", ("sign(3)", 1), ("sign(-3)", -1)),
}


def reply(*texts: str) -> Reply:
    choices = tuple(Choice(content=text) for text in texts)
    return Reply(
        choices=choices, usage=Usage(prompt_tokens=10, completion_tokens=5), endpoint="e", model="tiny", seconds=0.1
    )


def model(*samples: str):
    """The same samples for every line, in whichever way they are asked for."""

    def script(request):
        if isinstance(request, CompletionRequest):
            return reply(*samples)
        schema = request.json_schema["properties"]
        edits = ({"file": schema["file"]["const"], "line": schema["line"]["const"], "replacement": s} for s in samples)
        return reply(*(json.dumps(item) for item in edits))

    return script


async def repaired(at, **more):
    return await SampledRepair(**more).work(at.work)


async def test_sampled_line_that_passes_is_put_in(desk) -> None:
    at = await desk(FILES, model("return 2", "return -1", "return 1", "garbage ("), native=False, test_command=TESTS)
    done = await repaired(at)
    assert (done.ending, done.title, done.model) == ("finished", "Correct `sign` in m.py", "tiny")
    assert at.text("m.py") == FILES["m.py"].replace("return 1", "return -1", 1)
    assert at.saves == 1
    assert at.kinds("edit")[0]["path"] == "m.py"
    assert {item["new"]: item["passed"] for item in at.kinds("candidate")} == {"return 2": False, "return -1": True}
    assert "`return 1` and is now `return -1`" in done.summary


async def test_pytest_is_traced_and_judged_as_well(desk) -> None:
    at = await desk(FILES, model("return -1"), native=False, test_command="/usr/bin/python3 -m pytest -q")
    done = await repaired(at)
    assert done.ending == "finished"
    assert "test_m.py::T::test_1 failed before" in done.summary


async def test_smallest_of_the_passing_changes_is_taken(desk) -> None:
    at = await desk(FILES, model("return -abs(x) // abs(x)", "return -1"), native=False, test_command=TESTS)
    await repaired(at)
    assert "return -1\n" in at.text("m.py")
    assert [item["passed"] for item in at.kinds("candidate")] == [True, True]


async def test_change_that_breaks_a_passing_test_is_not_taken(desk) -> None:
    files = {**FILES, "m.py": "def sign(x):\n    one = 1\n    return one\n"}
    at = await desk(files, model("one = -1", "return -1"), native=False, test_command=TESTS)
    done = await repaired(at)
    assert done.ending == "gave_up"
    assert at.text("m.py") == files["m.py"]


async def test_tests_are_never_changed(desk) -> None:
    at = await desk(FILES, model("assert True", "pass"), native=False, test_command=TESTS)
    done = await repaired(at)
    assert done.ending == "gave_up"
    assert {item["file"] for item in at.kinds("candidate")} <= {"m.py"}
    assert at.text("test_m.py") == FILES["test_m.py"]


async def test_giving_up_says_what_was_tried(desk) -> None:
    at = await desk(FILES, model("return 7"), native=False, test_command=TESTS)
    done = await repaired(at)
    assert done.ending == "gave_up"
    assert "suspicious lines: 2" in done.summary
    assert "candidates tested" in done.summary
    assert at.saves == 0


async def test_ladder_warms_up_and_ends_with_constrained_edits(desk) -> None:
    at = await desk(FILES, model("return 7"), native=False, test_command=TESTS)
    await repaired(at)
    styles = [(type(r).__name__, r.temperature) for r in at.pool.requests if "return 1" in str(r)]
    assert list(dict.fromkeys(styles)) == [
        ("CompletionRequest", 0.7), ("CompletionRequest", 1.0), ("CompletionRequest", 1.3), ("ChatRequest", 0.8),
    ]  # fmt: skip


async def test_capable_tier_is_asked_for_constrained_edits_first(desk) -> None:
    at = await desk(FILES, model("return -1"), native=True, test_command=TESTS)
    assert (await repaired(at)).ending == "finished"
    assert all(isinstance(request, ChatRequest) for request in at.pool.requests)
    schema = at.pool.requests[0].json_schema
    assert schema["properties"]["file"] == {"const": "m.py"}
    assert schema["properties"]["line"] == {"const": 3}


async def test_server_that_knows_one_way_only_is_asked_in_the_other(desk) -> None:
    def script(request):
        return (
            PermanentError("no such route") if isinstance(request, CompletionRequest) else model("return -1")(request)
        )

    at = await desk(FILES, script, native=False, test_command=TESTS)
    assert (await repaired(at)).ending == "finished"


async def test_server_that_knows_no_way_is_an_error(desk) -> None:
    at = await desk(FILES, lambda _: PermanentError("unknown model"), native=False, test_command=TESTS)
    with pytest.raises(PermanentError):
        await repaired(at)


async def test_full_tier_is_an_error_of_its_own_class(desk) -> None:
    at = await desk(FILES, lambda _: OverloadError("busy"), native=False, test_command=TESTS)
    with pytest.raises(OverloadError):
        await repaired(at)


async def test_no_failing_test_gives_up(desk) -> None:
    files = {**FILES, "m.py": FILES["m.py"].replace("return 1", "return -1", 1)}
    at = await desk(files, model("return 5"), native=False, test_command=TESTS)
    done = await repaired(at)
    assert done.ending == "gave_up"
    assert "all tests pass already" in done.summary
    assert at.pool.requests == []


async def test_no_test_command_gives_up(desk) -> None:
    at = await desk(FILES, model("x"), native=False)
    assert "no test command" in (await repaired(at)).summary


async def test_test_command_that_is_not_there_is_told(desk) -> None:
    at = await desk(FILES, model("x"), native=False, test_command="no-such-runner --all")
    done = await repaired(at)
    assert done.ending == "gave_up"
    assert "cannot be run" in done.summary


async def test_tokens_over_budget_end_as_limit(desk) -> None:
    at = await desk(FILES, model("return 7"), native=False, test_command=TESTS, budget=Budget(tokens=20))
    done = await repaired(at)
    assert done.ending == "limit_hit"
    assert len(at.pool.requests) <= 4


async def test_no_further_round_is_begun_than_there_are_steps(desk) -> None:
    at = await desk(FILES, model("return 7"), native=False, test_command=TESTS, budget=Budget(steps=2))
    done = await repaired(at)
    assert (done.ending, done.limit) == ("limit_hit", "task.steps")
    assert done.summary.startswith("2 of 2 steps are spent (")
    assert at.work.ledger.spent().steps == 2


async def test_time_of_the_first_task_that_is_over_is_told_as_that(desk) -> None:
    at = await desk(FILES, model("return 7"), native=False, test_command=TESTS)
    at.work.ledger.heard((Standing("lineage", {"wall": 60.0}, Spent(wall=61.0)),))
    done = await repaired(at)
    assert (done.ending, done.limit) == ("limit_hit", "lineage.wall")


async def test_what_the_last_tokens_bought_is_still_tested(desk) -> None:
    at = await desk(FILES, model("return -1"), native=False, test_command=TESTS, budget=Budget(tokens=5))
    assert (await repaired(at)).ending == "finished"


async def test_clock_over_budget_ends_as_limit(desk) -> None:
    at = await desk(FILES, model("return 7"), native=False, test_command=TESTS, budget=Budget(wall=0.01))
    assert (await repaired(at)).ending == "limit_hit"


async def test_slow_samples_do_not_hold_up_a_repair_that_already_passes(desk) -> None:
    files = {
        "m.py": "def sign(x):\n    if x < 0:\n        y = 1\n        return y\n    return 1\n",
        "test_m.py": FILES["test_m.py"],
    }
    cut_off = []

    async def ask(work, suspect, rung, failure, deadline):
        if suspect.text == "y = 1":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cut_off.append(suspect.text)
                raise
        return Samples(("return -y",), model="m")

    at = await desk(files, (), native=False, test_command=TESTS)
    done = await repaired(at, ask=ask)
    assert done.ending == "finished"
    assert cut_off == ["y = 1"]
    assert "return -y" in at.text("m.py")


@pytest.mark.slow
async def test_model_that_answers_too_late_is_the_clocks_end_not_the_pools_fault(desk) -> None:
    at = await desk(FILES, lambda _: late(at), native=False, test_command=TESTS, budget=Budget(wall=4))
    assert (await repaired(at)).ending == "limit_hit"


def late(at) -> TransientError:
    while at.work.ledger.spent().wall < 3.9:
        time.sleep(0.05)
    return TransientError("no answer within the deadline")


@pytest.mark.slow
async def test_candidate_that_loops_for_ever_does_not_hold_up_the_search(desk) -> None:
    loop = (
        "def drain(n):\n    while n > 0:\n        n = n + 1 if n > 5 else n - 2\n        if n > 9:\n            break\n"
        "    return n\n"
    )
    files = {"m.py": loop, "test_m.py": written("m", "drain", ("drain(4)", 0), ("drain(6)", 0))}
    samples = ("n = n", "n = n - 2")
    at = await desk(files, model(*samples), native=False, test_command=TESTS)
    done = await repaired(at, bounds=Bounds(enough=1, patience=0.5))
    assert done.ending == "finished"
    assert "n = n - 2" in at.text("m.py")


async def test_crlf_and_mark_of_the_file_stay(desk) -> None:
    source = b"\xef\xbb\xbf" + FILES["m.py"].replace("\n", "\r\n").encode()
    at = await desk({**FILES, "m.py": source}, model("return -1"), native=False, test_command=TESTS)
    assert (await repaired(at)).ending == "finished"
    assert (at.sandbox.work / "m.py").read_bytes() == source.replace(b"return 1", b"return -1", 1)


async def test_restart_pays_for_no_sample_and_runs_no_candidate_twice(desk) -> None:
    whole = await desk(FILES, model("return 7", "return -1"), native=False, test_command=TESTS)
    await repaired(whole)
    cut = next(n for n, step in enumerate(whole.steps) if step.kind == "edit")
    again = await desk(FILES, [], native=False, test_command=TESTS)
    done = await SampledRepair().work(replace(again.work, past=tuple(whole.steps[:cut])))
    assert done.ending == "finished"
    assert again.pool.requests == []
    assert again.kinds("candidate") == []
    assert "return -1" in again.text("m.py")


async def test_restart_after_the_repair_only_tells_it_again(desk) -> None:
    whole = await desk(FILES, model("return -1"), native=False, test_command=TESTS)
    first = await repaired(whole)
    again = await desk(FILES, [], native=False, test_command=TESTS)
    assert await SampledRepair().work(replace(again.work, past=tuple(whole.steps))) == first


async def test_prompt_knows_nothing_of_the_tests_or_the_task(desk) -> None:
    at = await desk(FILES, model("return -1"), native=False, test_command=TESTS, instructions="return minus one")
    await repaired(at)
    assert all("minus" not in request.prompt and "-1)" not in request.prompt for request in at.pool.requests)
