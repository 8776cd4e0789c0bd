"""What is run of an answer, what is held back, and what the model and whoever chooses it are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from pool.testing import call
from pool.types import Choice, ToolCall, Traits
from swarm.conversation.acting import MOST
from swarm.conversation.asking import GaveUpError
from swarm.recording import fingerprint
from swarm.speech.calls import Said
from swarm.speech.form import Form
from swarm.speech.told import nudge
from swarm.tools.kit import Result
from tests.swarm.agentside.conversation.conftest import Bench, OpenBench, Scripted, orphans

FORCED = Traits(native=True, forced=True)
MISSED = Result("error: a.py is unchanged: the search text is not there", ok=False)


def several(*calls: tuple[str, dict[str, object]]) -> Choice:
    made = (ToolCall(id=f"c{n}", name=name, arguments=json.dumps(given)) for n, (name, given) in enumerate(calls))
    return Choice(tool_calls=tuple(made), finish_reason="tool_calls")


def edit(path: str, search: str = "x") -> tuple[str, dict[str, object]]:
    return "edit", {"path": path, "search": search, "replace": "y"}


VIEW = ("view", {"path": "b.py"})
SHELL = ("shell", {"command": "make"})
TESTS = ("run_tests", {})
FINISH = ("finish", {"title": "done"})


async def turned(at: Bench, kit: Scripted) -> list[str]:
    talk = await at.begin()
    await at.turn(talk, kit)
    assert not orphans(talk.messages)
    return [message.content for message in talk.messages[3:]]


async def test_calls_run_in_order(bench: OpenBench) -> None:
    kit = Scripted()
    await turned(bench([several(VIEW, edit("a.py"), SHELL)]), kit)
    assert kit.ran == ["view", "edit", "shell"]


async def test_what_builds_on_an_edit_that_missed_is_not_run(bench: OpenBench) -> None:
    kit = Scripted([MISSED])
    told = await turned(bench([several(edit("a.py"), edit("a.py", "z"), SHELL, TESTS, FINISH)]), kit)
    assert kit.ran == ["edit"]
    assert all(text.startswith("not run:") for text in told[1:])


async def test_what_only_looks_and_edits_of_other_files_are_run_after_a_miss(bench: OpenBench) -> None:
    kit = Scripted([MISSED])
    await turned(bench([several(edit("a.py"), VIEW, edit("b.py"))]), kit)
    assert kit.ran == ["edit", "view", "edit"]


async def test_after_a_call_that_cannot_be_read_nothing_that_changes_is_run(bench: OpenBench) -> None:
    kit = Scripted()
    told = await turned(bench([several(("launch", {}), edit("b.py"), VIEW, FINISH)]), kit)
    assert kit.ran == ["view"]
    assert told[0].startswith("error: ")


async def test_a_command_that_fails_holds_nothing_back(bench: OpenBench) -> None:
    """A search that finds nothing fails as well."""
    kit = Scripted([Result("[exit code 1]", kind="command", ok=False)])
    await turned(bench([several(SHELL, edit("a.py"))]), kit)
    assert kit.ran == ["shell", "edit"]


async def test_an_answer_with_hundreds_of_calls_is_bounded(bench: OpenBench) -> None:
    calls = [("view", {"path": f"f{n}.py"}) for n in range(300)]
    kit = Scripted()
    told = await turned(bench([several(*calls)]), kit)
    assert len(kit.ran) <= MOST
    assert len(told) <= 300


async def test_a_question_ends_the_answer_and_is_answered_in_the_conversation(bench: OpenBench) -> None:
    at = bench([several(("ask", {"question": "Which one?"}), edit("a.py"))])
    kit = Scripted([Result("asked", ask="Which one?")])
    talk = await at.begin()
    done = await at.turn(talk, kit)
    assert done is not None
    assert (done.ask, done.finish) == ("Which one?", None)
    assert kit.ran == ["ask"]
    assert not orphans(talk.messages), "a later life finds every call answered"


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(content="I wonder."), "words"),
        (Choice(content=""), "nothing"),
        (Choice(content="", reasoning="Let me think."), "thought"),
    ],
)
async def test_each_kind_of_answer_without_a_call_is_told_its_own_mend(
    bench: OpenBench, choice: Choice, said: Said
) -> None:
    assert (await turned(bench([choice]), Scripted()))[0] == nudge(said, Form(way="native"))


async def test_a_hint_is_specific_and_journaled_and_told_to_whoever_chooses_the_model(bench: OpenBench) -> None:
    at = bench(lambda _: call("view", path="a.py"), traits=Traits(native=True))
    talk, kit = await at.begin(), Scripted(lambda _name, _arguments: Result("the same"))
    for _ in range(5):
        await at.turn(talk, kit)
    with pytest.raises(GaveUpError, match="repetition"):
        await at.turn(talk, kit)
    hints = [step.data["stuck"] for step in at.steps if "stuck" in step.data]
    assert [hint["count"] for hint in hints] == [3, 4, 5, 6]
    assert "same call 3 times" in talk.messages[7].content
    assert at.notes == [("t1.1", True)] * 4


async def test_commands_that_fail_without_a_word_are_no_circle(bench: OpenBench) -> None:
    silent = Result(
        "[exit code 1, 0.0 s]\n(no output)", kind="command", data={"output": fingerprint(b"")}, changed=True, ok=False
    )
    names = iter("abcdefghij")
    at = bench(lambda _: call("shell", command=f"grep -rn {next(names)} ."), traits=Traits(native=True))
    talk, kit = await at.begin(), Scripted(lambda _name, _arguments: silent)
    for _ in range(10):
        await at.turn(talk, kit)
    assert not [step for step in at.steps if "stuck" in step.data]


async def test_a_file_that_is_written_to_and_fro_ends_the_attempt(bench: OpenBench) -> None:
    texts = iter("abababab")
    at = bench(lambda _: call("write", path="a.py", content=next(texts)), traits=Traits(native=True))

    def write(_name: str, given: Mapping[str, Any]) -> Result:
        shown = {"path": "a.py", "digest": given["content"]}
        return Result("written", kind="edit", data={"path": "a.py", "shown": shown}, changed=True)

    talk, kit = await at.begin(), Scripted(write)
    for _ in range(5):
        await at.turn(talk, kit)
    with pytest.raises(GaveUpError, match="undoing"):
        await at.turn(talk, kit)


async def test_a_restart_goes_on_counting_circles(bench: OpenBench) -> None:
    at = bench(lambda _: call("view", path="a.py"), traits=Traits(native=True))
    kit = Scripted(lambda _name, _arguments: Result("the same"))
    talk = await at.begin()
    for _ in range(5):
        await at.turn(talk, kit)
        talk = await at.again()
    with pytest.raises(GaveUpError, match="repetition"):
        await at.turn(talk, kit)


async def test_a_person_who_speaks_as_the_work_ends_finds_every_call_answered(bench: OpenBench) -> None:
    at = bench([several(FINISH, VIEW), call("finish", title="t")])
    talk, kit = await at.begin(), Scripted()
    assert await at.turn(talk, kit)
    at.hear("one more thing")
    assert await at.turn(talk, kit)
    assert not orphans(talk.messages)
    assert kit.ran == ["finish", "finish"]


async def test_after_an_answer_without_a_call_one_is_demanded_and_sampled_hotter(bench: OpenBench) -> None:
    at = bench(["words", "other words", call("view", path="a"), call("view", path="b")], traits=FORCED)
    talk, kit = await at.begin(), Scripted()
    for _ in range(4):
        await at.turn(talk, kit)
    assert [request.tool_choice for request in at.requests] == ["auto", "required", "required", "auto"]
    first, second, third, last = [request.temperature for request in at.requests]
    assert first < second < third
    assert last == first


async def test_a_call_is_not_demanded_of_endpoints_that_were_not_seen_to_make_one(bench: OpenBench) -> None:
    at = bench(["words", call("view", path="a")], traits=Traits(native=True))
    talk, kit = await at.begin(), Scripted()
    for _ in range(2):
        await at.turn(talk, kit)
    assert {request.tool_choice for request in at.requests} == {"auto"}


async def test_whoever_calls_nothing_again_and_again_is_told_a_call_that_would_help(bench: OpenBench) -> None:
    at = bench(["words", "other words"])
    talk, kit = await at.begin(), Scripted()
    for _ in range(2):
        await at.turn(talk, kit)
    first, second = [message.content for message in talk.messages if message.role == "user"][1:]
    assert first in second
    assert "a call of run_tests" in second


async def test_a_finish_written_before_a_call_of_the_same_answer_failed_is_not_taken(bench: OpenBench) -> None:
    kit = Scripted([Result("[tests: 1 failed]", kind="command", ok=False)])
    at = bench([several(TESTS, FINISH)])
    talk = await at.begin()
    assert await at.turn(talk, kit) is None
    assert kit.ran == ["run_tests"]
    assert "not run" in talk.messages[-1].content


class Failing(Scripted):
    async def tests(self, seconds: float | None = None) -> Result:
        return Result("[tests: 1 failed]", kind="command", ok=False)


async def test_work_over_failing_tests_is_handed_in_only_by_a_finish_of_its_own(bench: OpenBench) -> None:
    at = bench([several(VIEW, FINISH), several(VIEW, FINISH), several(FINISH)])
    talk, kit = await at.begin(), Failing()
    talk.tested = False
    ended = [await at.turn(talk, kit) for _ in range(3)]
    assert [done is not None for done in ended] == [False, False, True]
