"""Conversations as they are sent: every call with one result, whatever the history holds; poisoned turns taken out."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pool.types import Message, ToolCall
from swarm.speech.form import Form
from swarm.speech.layout import lay, paired
from swarm.speech.quarantine import REMOVED, quarantine

NATIVE, STRICT, TEXT = Form(way="native"), Form(way="native", strict_turns=True), Form(way="text")
OPENING = (Message(role="system", content="you"), Message(role="user", content="do it"))


def asked(*ids: str, content: str = "") -> Message:
    calls = tuple(ToolCall(id=id_, name="view", arguments="{}") for id_ in ids)
    return Message(role="assistant", content=content or ("" if ids else "words"), tool_calls=calls)


def result(id_: str, text: str = "x") -> Message:
    return Message(role="tool", content=text, tool_call_id=id_)


def user(text: str) -> Message:
    return Message(role="user", content=text)


IDS = st.sampled_from(["a", "b", "c"])
TURNS = st.lists(
    st.one_of(
        st.builds(lambda ids: asked(*ids), st.lists(IDS, max_size=3)),
        st.builds(result, IDS, st.text(max_size=5)),
        st.builds(user, st.text(max_size=5)),
    ),
    max_size=12,
).map(lambda turns: (*OPENING, *turns))


def well_formed(messages: tuple[Message, ...]) -> bool:
    """Every call has one result right behind its answer, and every result its call."""
    open_: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in open_:
                return False
            open_.discard(message.tool_call_id)
            continue
        if open_:
            return False
        ids = [call.id for call in message.tool_calls]
        open_ = set(ids)
        if len(open_) != len(ids):
            return False
    return not open_


@given(TURNS)
def test_any_history_is_sent_with_every_call_answered_and_every_result_asked_for(messages: tuple[Message, ...]) -> None:
    sent = paired(messages)
    assert well_formed(sent)
    assert paired(sent) == sent
    assert lay(sent, NATIVE) == lay(messages, NATIVE)
    if well_formed(messages):
        assert sent == messages


@given(TURNS)
def test_no_words_are_lost_when_a_history_is_laid_out(messages: tuple[Message, ...]) -> None:
    for form in (NATIVE, STRICT, TEXT):
        told = "\n".join(message.content for message in lay(messages, form))
        assert all(message.content.strip() in told for message in messages)


@given(TURNS, TURNS)
def test_a_conversation_that_goes_on_extends_what_was_sent(
    before: tuple[Message, ...], more: tuple[Message, ...]
) -> None:
    """What is sent ends with the user or a result; the model answers, and then more is said."""
    goes_on = (*before, asked(content="answer"), *more[2:])
    for form in (NATIVE, STRICT, TEXT):
        sent, later = lay(before, form), lay(goes_on, form)
        assert later[: len(sent)] == sent


def test_templates_that_want_turns_by_turn_get_them() -> None:
    messages = (*OPENING, asked("a"), result("a"), user("by the way"), user("and this"))
    assert [message.role for message in lay(messages, STRICT)] == ["system", "user", "assistant", "tool"]
    assert lay(messages, STRICT)[-1].content == "x\n\nby the way\n\nand this"
    assert [message.role for message in lay(messages, NATIVE)] == ["system", "user", "assistant", "tool", "user"]


def test_an_odd_turn_is_cleaned_before_any_is_taken_out() -> None:
    poisoned = Message(
        role="assistant", content="<|im_end|>\x00", tool_calls=(ToolCall(id="a", name="a b", arguments='{"x": '),)
    )
    cured = quarantine((*OPENING, poisoned, result("a")))
    assert cured is not None
    assert cured[2].tool_calls[0] == ToolCall(id="a", name="a_b", arguments="{}")
    assert cured[2].content == ""
    assert cured[3] == result("a")


def test_of_turns_that_look_well_the_newest_is_taken_out_and_its_results_stay_as_words() -> None:
    messages = (*OPENING, asked("a"), result("a", "one"), asked("b"), result("b", "two"))
    once = quarantine(messages)
    assert once is not None
    assert once[4].content == REMOVED
    assert once[5].role == "user"
    assert "two" in once[5].content
    assert once[:4] == messages[:4]
    twice = quarantine(once)
    assert twice is not None
    assert twice[2].content == REMOVED
    assert quarantine(twice) is None


@given(TURNS)
def test_a_quarantine_comes_to_an_end_and_keeps_the_opening(messages: tuple[Message, ...]) -> None:
    for _ in range(len(messages) + 2):
        cured = quarantine(messages)
        if cured is None:
            break
        assert cured[:2] == OPENING
        messages = cured
    assert quarantine(messages) is None
    assert well_formed(lay(messages, NATIVE))
    assert all(isinstance(json.loads(call.arguments), dict) for message in messages for call in message.tool_calls)
