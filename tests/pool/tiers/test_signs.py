"""Circles are found whatever their length, and what only looks like one is not; unusable answers are named."""

from __future__ import annotations

import json

import pytest

from pool.tiers.answers import confidence, difference, key, unusable
from pool.tiers.signs import LOOKED_AT, rounds, sign_of
from pool.types import Choice, Message, ToolCall
from tests.pool.tiers.below import READ, calls, chat


def turn(name: str, result: str, **arguments: object) -> tuple[Message, Message]:
    call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
    return (
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=result, tool_call_id="c"),
    )


def talk(*turns: tuple[Message, Message]) -> tuple[Message, ...]:
    return (Message(role="user", content="do it"), *(message for pair in turns for message in pair))


A, B, C = turn("read", "one", path="a"), turn("read", "two", path="b"), turn("run", "three", command="x")


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        ((), 0),
        ((A,), 1),
        ((A, B, C), 1),
        ((A, A, A), 3),
        ((B, A, A), 2),
        ((A, B, A, B), 2),
        ((C, A, B, A, B, A, B), 3),
        ((A, B, C, A, B, C, A, B, C), 3),
        ((A, A, A, B), 1),
    ],
)
def test_rounds_of_every_length_are_counted_at_the_end_of_the_conversation(
    turns: tuple[tuple[Message, Message], ...], found: int
) -> None:
    """weave-os/router#337: a cycle of several different calls is a loop as well; BerriAI/litellm#39809: so is one."""
    assert rounds(talk(*turns)) == found


def test_polling_whose_results_change_is_no_circle() -> None:
    polls = [turn("status", f"{percent} % done", job=1) for percent in (10, 20, 30, 40)]
    assert rounds(talk(*polls)) == 1


def test_results_that_differ_in_their_durations_alone_are_the_same() -> None:
    runs = [turn("run", f"2 failed in {seconds} s", command="pytest") for seconds in ("0.12", "0.31", "1.07")]
    assert rounds(talk(*runs)) == 3


def test_the_same_call_after_different_edits_is_no_circle() -> None:
    test = turn("run", "failed", command="pytest")
    edits = [turn("edit", "ok", text=str(number)) for number in range(4)]
    assert rounds(talk(*(pair for edit in edits for pair in (edit, test)))) == 1


def test_text_answers_that_repeat_are_a_circle_as_well() -> None:
    again = (Message(role="assistant", content="I will look."), Message(role="user", content="use a tool"))
    assert rounds(talk(again, again, again)) == 3


def test_what_came_before_the_last_move_is_not_held_against_the_new_tier() -> None:
    messages = talk(A, A, A, A)
    assert rounds(messages, since=len(messages)) == 0
    assert rounds((*messages, *A), since=len(messages)) == 1


def test_a_very_long_conversation_is_looked_at_from_its_end_only() -> None:
    assert rounds(talk(*[A] * 1000)) == LOOKED_AT


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (calls("write", path="a"), "no tool"),
        (calls("read", paht="a"), "do not fit"),
        (Choice(tool_calls=(ToolCall(id="c", name="read", arguments='{"path": "a'),)), "no JSON object"),
        (Choice(content="  "), "empty"),
    ],
    ids=["unknown tool", "wrong arguments", "cut arguments", "nothing"],
)
def test_answers_that_nobody_can_use_say_why(choice: Choice, words: str) -> None:
    assert words in unusable(choice, chat("t", tools=(READ,)))


def test_a_good_call_and_a_good_text_are_usable() -> None:
    assert not unusable(calls("read", path="a"), chat("t", tools=(READ,)))
    assert not unusable(Choice(content="yes"), chat("t", tools=(READ,)))


def test_answers_out_of_schema_are_unusable_and_a_broken_schema_blames_nobody() -> None:
    schema = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}
    request = chat("t", json_schema=schema)
    assert not unusable(Choice(content='{"x": 1}'), request)
    assert "schema" in unusable(Choice(content='{"x": "1"}'), request)
    assert "no JSON" in unusable(Choice(content="x is 1"), request)
    assert not unusable(Choice(content="{}"), chat("t", json_schema={"type": "nonsense"}))


def test_equal_answers_have_one_key() -> None:
    assert key(Choice(content=" Yes. ")) == key(Choice(content="yes"))
    assert key(Choice(content='{"a": 1, "b": 2}')) == key(Choice(content='```json\n{"b": 2, "a": 1}\n```'))
    assert key(calls("read", path="a")) != key(calls("read", path="b"))
    assert key(Choice(content="So 6*7 is 42"), "number") == key(Choice(content="It is 42.0!"), "number")
    assert key(Choice(content="thinking\nanswer: B"), "last_line") == key(Choice(content="hm\nAnswer: B."), "last_line")
    assert key(Choice(content="6 and 42")) != key(Choice(content="7 and 42"))


def test_difference_runs_from_the_same_to_nothing_in_common() -> None:
    assert difference(Choice(content="the port is 80"), Choice(content="The port is 80.")) == 0.0
    assert difference(Choice(content="red"), Choice(content="blue")) == 1.0
    assert 0.0 < difference(Choice(content="the port is 80"), Choice(content="the port is 443")) < 1.0
    assert difference(calls("read", path="a"), Choice(content="read a")) == 1.0


def test_confidence_can_look_at_the_arguments_of_a_call_alone() -> None:
    """The name and the frame of a call are easy; what was unsure is the path."""
    tokens = ("<call>", "read", '{"path": "', "a.py", '"}', "</call>")
    choice = Choice(
        tool_calls=(ToolCall(id="c", name="read", arguments='{"path": "a.py"}'),),
        tokens=tokens,
        logprobs=(-0.0, -0.0, -0.1, -4.0, -0.1, -0.0),
        margins=(9.0, 9.0, 3.0, 0.1, 3.0, 9.0),
    )
    assert confidence(choice, "mean") == pytest.approx(-0.7)
    assert confidence(choice, "mean", arguments_only=True) == pytest.approx(-1.4)
    assert confidence(choice, "least", arguments_only=True) == -4.0
    assert confidence(choice, "margin", arguments_only=True) == pytest.approx(6.1 / 3)


def test_what_a_server_does_not_tell_is_no_confidence() -> None:
    bare = Choice(content="42")
    assert confidence(bare, "mean") is None
    assert confidence(Choice(content="42", logprobs=(-0.1,)), "margin") is None
    lost = calls("read", path="a").model_copy(update={"logprobs": (-0.1,), "tokens": ("elsewhere",)})
    assert confidence(lost, "mean", arguments_only=True) is None
    assert sign_of(bare, chat("t")).confidence is None
