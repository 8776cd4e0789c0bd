"""What a restart cut off, at every line: nothing is lost, made up, or asked again that was answered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pool.testing import call
from pool.types import Choice, Traits
from swarm import history
from swarm.agent import Agent
from swarm.conversation.asking import GaveUpError
from swarm.conversation.talk import dump
from swarm.prompts import INTERRUPTED, SHELL_ANEW
from swarm.tools.kit import Result
from swarm.types import Budget, TaskMessage
from tests.swarm.agentside.conftest import Desk, OpenDesk
from tests.swarm.agentside.conversation.conftest import OpenBench, Scripted, orphans
from tests.swarm.agentside.conversation.test_acting import several

FILES = {"a.py": "x = 1\n"}
EDIT = ("edit", {"path": "a.py", "search": "x = 1", "replace": "x = 2"})
NEW = ("write", {"path": "b.py", "content": "new\n"})
VIEW = ("view", {"path": "a.py"})
FINISH = ("finish", {"title": "Set x", "summary": "as asked"})


def spoken(*calls: tuple[str, dict[str, Any]]) -> str:
    blocks = (f"```tool\n{json.dumps({'name': name, 'arguments': given})}\n```" for name, given in calls)
    return "\n".join(("I act.", *blocks))


def cut(at: Desk, about: str) -> int:
    """How many lines there are up to the first that tells of a tool, or is of a kind."""
    return next(n for n, step in enumerate(at.steps, 1) if about in (step.data.get("tool"), step.kind))


@pytest.mark.parametrize("native", [True, False])
async def test_the_second_call_of_an_answer_is_told_to_be_lost(desk: OpenDesk, native: bool) -> None:
    speak = several if native else spoken
    first = await desk(FILES, [speak(EDIT, NEW), speak(FINISH)], native=native)
    await Agent().work(first.work)
    again = await desk(FILES, [speak(FINISH)], native=native)
    await Agent().work(replace(again.work, past=tuple(first.steps[: cut(first, "edit")])))
    told = [message.content for message in again.pool.requests[0].messages[3:]]
    assert "edited a.py" in told[0]
    assert told[-1].endswith(INTERRUPTED)
    assert sum(text.count(INTERRUPTED) for text in told) == 1
    assert not orphans(again.pool.requests[0].messages)


@pytest.mark.parametrize("native", [True, False])
async def test_an_answer_without_a_call_gets_its_nudge_and_changed_nothing(desk: OpenDesk, native: bool) -> None:
    speak = several if native else spoken
    script = ["I wonder.", speak(FINISH)]
    first = await desk(FILES, list(script), native=native)
    await Agent().work(first.work)
    again = await desk(FILES, script[1:], native=native)
    done = await Agent().work(replace(again.work, past=tuple(first.steps[: cut(first, "model_call")])))
    assert done.ending == "no_change"
    assert again.pool.requests[0].messages == first.pool.requests[1].messages


async def test_a_nudge_that_is_the_last_straw_is_so_after_a_restart(bench: OpenBench) -> None:
    at = bench(lambda _: Choice(content="I would call a tool."))
    talk = await at.begin()
    for _ in range(3):
        await at.turn(talk, Scripted())
    with pytest.raises(GaveUpError):
        await at.turn(talk, Scripted())
    at.steps.pop()
    with pytest.raises(GaveUpError, match="monologue"):
        await at.again()


@pytest.mark.parametrize(
    ("made", "ending"), [(VIEW, "no_change"), (EDIT, "finished"), (("shell", {"command": "make"}), "finished")]
)
async def test_only_a_call_that_could_change_something_counts_as_a_change(
    desk: OpenDesk, made: tuple[str, dict[str, Any]], ending: str
) -> None:
    first = await desk(FILES, [several(made), several(FINISH)])
    await Agent().work(first.work)
    again = await desk(FILES, [several(FINISH)])
    done = await Agent().work(replace(again.work, past=tuple(first.steps[: cut(first, "model_call")])))
    assert done.ending == ending
    assert again.pool.requests[0].messages[-1].content == INTERRUPTED


@pytest.mark.parametrize("calls", [(FINISH,), (FINISH, VIEW, NEW)])
@pytest.mark.parametrize("native", [True, False])
async def test_work_that_was_finished_is_not_asked_for_again(desk: OpenDesk, native: bool, calls: Any) -> None:
    speak = several if native else spoken
    first = await desk(FILES, [speak(EDIT), speak(*calls)], native=native)
    whole = await Agent().work(first.work)
    again = await desk(FILES, [], native=native, budget=Budget(steps=2))
    again.work.ledger.charge(again.work.ledger.spent().model_copy(update={"steps": 2}))
    done = await Agent().work(replace(again.work, past=tuple(first.steps[: cut(first, "finish")])))
    assert not again.pool.requests
    assert done == whole
    assert done.ending == "finished"


async def test_a_question_that_was_asked_is_not_asked_again(desk: OpenDesk) -> None:
    first = await desk(FILES, [several(("ask", {"question": "Which one?"}))])
    whole = await Agent().work(first.work)
    again = await desk(FILES)
    assert await Agent().work(replace(again.work, past=tuple(first.steps))) == whole
    assert whole.ending == "asked"


async def test_a_person_who_waits_is_heard_before_finished_work_ends(desk: OpenDesk) -> None:
    first = await desk(FILES, [several(EDIT), several(FINISH, VIEW)])
    await Agent().work(first.work)

    async def inbox(after: int) -> tuple[TaskMessage, ...]:
        said = (TaskMessage(task="t1", seq=1, at=0.0, author="ann", text="and y"),)
        return tuple(one for one in said if one.seq > after)

    again = await desk(FILES, [several(FINISH)], inbox=inbox)
    past = tuple(first.steps[: cut(first, "finish")])
    assert (await Agent().work(replace(again.work, past=past))).ending == "finished"
    (request,) = again.pool.requests
    assert not orphans(request.messages)
    assert "and y" in request.messages[-1].content


async def test_the_end_of_an_attempt_that_is_gone_on_from_is_none(desk: OpenDesk) -> None:
    first = await desk(FILES, [several(EDIT), several(FINISH)])
    await Agent().work(first.work)
    again = await desk(FILES, [several(FINISH)])
    past = tuple(step.model_copy(update={"attempt": "t1.0"}) for step in first.steps)
    await Agent().work(replace(again.work, past=past))
    assert len(again.pool.requests) == 1


async def test_a_finish_that_was_turned_down_ends_nothing(desk: OpenDesk) -> None:
    first = await desk(FILES, [several(EDIT), several(FINISH), several(FINISH)], test_command="false")
    await Agent().work(first.work)
    again = await desk(FILES, [several(FINISH), several(FINISH)], test_command="false")
    await Agent().work(replace(again.work, past=tuple(first.steps[: cut(first, "finish")])))
    assert again.pool.requests


async def test_a_restart_in_the_middle_of_a_restart_tells_nothing_twice(bench: OpenBench) -> None:
    at = bench([several(("shell", {"command": "make"}), VIEW), call("view", path="a.py")])
    talk = await at.begin()
    await at.turn(talk, Scripted([Result("made", kind="command", changed=True)]))
    at.steps.pop()
    for _ in range(3):
        talk = await at.again()
    told = [message.content for message in talk.messages]
    assert (told.count(INTERRUPTED), told.count(SHELL_ANEW)) == (1, 1)
    assert not orphans(talk.messages)


async def test_no_id_of_a_call_comes_twice_however_the_conversation_was_shortened(bench: OpenBench) -> None:
    at = bench(lambda request: several(("view", {"path": f"f{len(request.messages)}"})), traits=Traits(native=True))
    talk = await at.begin()
    for _ in range(4):
        for _ in range(3):
            await at.turn(talk, Scripted())
        kept = talk.opening
        await talk.rewrite(kept, "anew", about=history.ANEW, messages=[dump(message) for message in kept])
        talk = await at.again()
    made = [call["id"] for step in at.steps for call in step.data.get("message", {}).get("tool_calls", ())]
    assert len(made) == len(set(made)) == 12
