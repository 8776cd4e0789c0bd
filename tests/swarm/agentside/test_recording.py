"""What the journal keeps of a model call is enough to hear the same answer again, and names what was asked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.types import ChatRequest, Choice, CompletionRequest, Message, ToolCall
from swarm import recording
from swarm.conversation.talk import dump
from swarm.speech.calls import Turn
from swarm.speech.form import Form
from swarm.speech.turn import read
from swarm.tools.specs import specs

TOOLS = specs(testable=True)
CALL = '{"name": "shell", "arguments": {"command": "ls"}}'
CHOICES = {
    "a native call": Choice(tool_calls=(ToolCall(id="x", name="shell", arguments='{"command":  "ls"}'),)),
    "an alias": Choice(tool_calls=(ToolCall(id="x", name="bash", arguments='{"cmd": "ls"}'),)),
    "arguments that are none": Choice(tool_calls=(ToolCall(id="x", name="shell", arguments='{"command": '),)),
    "a tool that there is not": Choice(tool_calls=(ToolCall(id="x", name="fly", arguments="{}"),)),
    "cut off": Choice(tool_calls=(ToolCall(id="x", name="shell", arguments="{}"),), finish_reason="length"),
    "a call as text": Choice(content=f"I look.\n```tool\n{CALL}\n```\nand then"),
    "words": Choice(content="I do not know"),
    "thought only": Choice(reasoning=f"```tool\n{CALL}\n```"),
    "nothing": Choice(),
    "torn": Choice(torn=(ToolCall(id="x", name="shell", arguments="{'command': 'ls'}"),), finish_reason="length"),
    "words and a thought that ends in a call": Choice(content="I look.", reasoning=f"<tool_call>{CALL}</tool_call>"),
    "thoughts beside a call": Choice(
        reasoning="I look.", tool_calls=(ToolCall(id="x", name="shell", arguments='{"command": "ls"}'),)
    ),
    "thoughts in the words": Choice(content=f"<think>I look.</think>\n<tool_call>{CALL}</tool_call>"),
    "an object": Choice(content=CALL, reasoning="I look."),
}


def _line(choice: Choice, turn: Turn) -> dict[str, object]:
    data = {
        "message": dump(turn.message),
        "finish_reason": choice.finish_reason,
        "answer": recording.answer_of(choice, turn.message),
    }
    return json.loads(json.dumps(data))


def _meaning(turn: Turn) -> tuple[object, ...]:
    return (turn.message, turn.calls)


FORMS = [
    Form(way="native"), Form(way="text"), Form(way="constrained", shape="object"),
    Form(way="native", reasoning="loop"), Form(way="text", reasoning="keep"),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.way}-{form.reasoning}")
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES.keys())
def test_an_answer_played_back_is_read_as_it_was(choice: Choice, form: Form) -> None:
    turn = read(choice, TOOLS, form, number=3)
    again = read(recording.choice_of(_line(choice, turn)), TOOLS, form, number=3)
    assert _meaning(again) == _meaning(turn)


WORDS = st.text(st.characters(codec="utf-8"), max_size=40)
CALLS = st.builds(
    ToolCall,
    id=st.just("c"),
    name=st.sampled_from(["shell", "cat", "write", "nothing"]),
    arguments=st.one_of(WORDS, st.dictionaries(st.sampled_from(["command", "path", "cmd"]), WORDS).map(json.dumps)),
)
ANY = st.builds(
    Choice,
    content=st.one_of(WORDS, st.just(f"so: {CALL} there")),
    reasoning=WORDS,
    tool_calls=st.lists(CALLS, max_size=3).map(tuple),
    torn=st.lists(CALLS, max_size=1).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", "tool_calls"]),
)


@given(ANY, st.sampled_from(FORMS))
def test_any_answer_played_back_is_read_as_it_was(choice: Choice, form: Form) -> None:
    turn = read(choice, TOOLS, form, number=1)
    again = read(recording.choice_of(_line(choice, turn)), TOOLS, form, number=1)
    assert _meaning(again) == _meaning(turn)


def test_a_digest_tells_of_what_is_asked_and_not_of_who_asks() -> None:
    messages = (Message(role="user", content="hello"),)
    asked = ChatRequest(tier="t", messages=messages, session="a", program="p", tools=TOOLS)
    whose = asked.model_copy(update={"session": "b", "program": "q", "deadline": 3.0})
    assert recording.digest(asked) == recording.digest(whose)
    assert recording.digest(asked) == recording.digest(asked, [recording.mark(each) for each in messages])
    others = [
        asked.model_copy(update={"max_tokens": 7}),
        asked.model_copy(update={"tools": TOOLS[1:]}),
        asked.model_copy(update={"messages": (Message(role="user", content="hello "),)}),
        CompletionRequest(tier="t", prompt="hello", session="a"),
    ]
    assert len({recording.digest(each) for each in (asked, *others)}) == 5
