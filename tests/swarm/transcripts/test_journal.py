"""A journal as a transcript: no line is lost, each result stands under the call that it answers, sums are right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.transcripts import chats, journal, lines
from swarm.transcripts.shape import Transcript
from swarm.types import Step
from tests.swarm.transcripts.conftest import HEADER, NATIVE, USAGE, asked, line


def test_each_answer_is_one_step_with_its_calls_results_and_costs(made: Transcript) -> None:
    answer = next(step for step in made.steps if step.source == "agent")
    assert (answer.message, answer.reasoning_content, answer.model_name) == ("I look.", "a sign?", "qwen")
    assert [call.function_name for call in answer.tool_calls] == ["view", "shell"]
    assert answer.tool_calls[0].arguments == {"path": "a.py"}
    assert (answer.tool_calls[1].arguments, answer.tool_calls[1].extra) == ({}, {"raw": "{broken"})
    assert answer.observation is not None
    first, second = answer.observation.results
    assert (first.source_call_id, first.content) == ("c1", "1: a - b")
    assert (second.source_call_id, second.extra["exit_code"], second.extra["seconds"]) == ("c2", 2, 0.2)
    assert answer.metrics is not None
    assert (answer.metrics.cached_tokens, answer.metrics.extra["seconds"]) == (80, 1.5)
    assert answer.extra["endpoint"] == "box"
    assert answer.timestamp == "2023-11-14T22:13:23.000Z"


def test_every_line_of_the_journal_is_in_it(made: Transcript) -> None:
    told = [step.extra["seq"] for step in made.steps]
    results = [
        each.extra["seq"] for step in made.steps for each in (step.observation.results if step.observation else ())
    ]
    assert {*told, *results} == {each.seq for each in NATIVE}
    assert [step.step_id for step in made.steps] == list(range(1, len(made.steps) + 1))


def test_who_spoke_is_told(made: Transcript) -> None:
    sources = [(step.extra["seq"], step.source) for step in made.steps]
    people = {seq for seq, source in sources if source == "user"}
    assert people == {2, 7}
    assert [source for seq, source in sources if seq == 9] == ["system"], "a nudge is the program's, no person's"


def test_sums_are_those_of_the_calls(made: Transcript) -> None:
    assert made.end is not None
    assert (made.end.total_prompt_tokens, made.end.total_cached_tokens) == (200, 160)
    assert (made.end.ending, made.end.reason) == ("finished", "done")
    assert made.header.agent.model_name == "qwen"


def test_attempt_that_goes_on_has_no_end() -> None:
    assert journal.transcript(HEADER, NATIVE[:4]).end is None


def test_results_of_the_text_protocol_are_the_answers_own() -> None:
    said = asked("<shell>ls</shell>")
    steps = [
        line(1, "model_call", model="m", **USAGE, message=said),
        line(2, "command", tool="shell", exit_code=0, message={"role": "user", "content": "a.py"}),
    ]
    (step,) = journal.transcript(HEADER, steps).steps
    assert step.observation is not None
    assert (step.observation.results[0].source_call_id, step.observation.results[0].content) == (None, "a.py")


def test_results_of_parts_that_run_at_once_stay_with_their_own_part() -> None:
    steps = [
        line(1, "model_call", part="a", message=asked("", ("c1", "shell", "{}"))),
        line(2, "model_call", part="b", message=asked("", ("c1", "shell", "{}"))),
        line(3, "command", part="a", tool="shell", message={"role": "tool", "content": "of a", "tool_call_id": "c1"}),
        line(4, "command", part="b", tool="shell", message={"role": "tool", "content": "of b", "tool_call_id": "c1"}),
    ]
    told = {step.extra["part"]: step.observation for step in journal.transcript(HEADER, steps).steps}
    assert {part: each.results[0].content for part, each in told.items() if each} == {"a": "of a", "b": "of b"}


def test_result_of_a_call_that_was_never_made_is_kept_and_says_so() -> None:
    steps = [
        line(1, "model_call", message=asked("hm")),
        line(2, "note", message={"role": "tool", "content": "lost", "tool_call_id": "gone"}),
    ]
    (step,) = journal.transcript(HEADER, steps).steps
    assert step.observation is not None
    result = step.observation.results[0]
    assert (result.source_call_id, result.extra["call"], result.content) == (None, "gone", "lost")


def test_what_an_agent_of_others_printed_and_asked_is_told() -> None:
    steps = [
        line(1, "output", text="thinking\nwriting"),
        line(2, "model_call", endpoint="box", model="m", tier="small", tokens=7, seconds=0.1),
        line(3, "command", text="aider", exit_code=0, seconds=2.0, changed=True),
    ]
    printed, call, end = journal.transcript(HEADER, steps).steps
    assert printed.message == "thinking\nwriting"
    assert (call.source, call.message, call.metrics and call.metrics.extra["tokens"]) == ("agent", "", 7)
    assert end.extra["exit_code"] == 0


def test_messages_of_a_chat_are_what_the_model_was_told(made: Transcript) -> None:
    roles = [message["role"] for message in chats.messages(made)]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user", "assistant", "user"]
    calls = chats.messages(made)[2]["tool_calls"]
    assert calls[1]["function"]["arguments"] == "{broken", "arguments go back as they came"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("message", "messages", "about", "tool", "model", "reasoning", "part", "text", "prompt_tokens", "seconds")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["note", "model_call", "command", "new"]), st.dictionaries(st.sampled_from(KEYS), JSON)
        )
    )
)
def test_odd_data_breaks_no_transcript(raw: list[tuple[str, dict[str, Any]]]) -> None:
    steps = [
        Step(task="t", attempt="a", seq=n, at=float(n), kind=kind, data=data) for n, (kind, data) in enumerate(raw)
    ]
    told = journal.transcript(HEADER, steps, ending="gave_up")
    assert lines.loads(lines.dumps(told).encode()).steps == told.steps


@pytest.mark.parametrize("at", [float("inf"), -1.0, 1e18])
def test_time_that_is_none_is_left_out(at: float) -> None:
    step = Step(task="t", attempt="a", seq=1, at=at, kind="note")
    assert journal.transcript(HEADER, [step]).steps[0].timestamp is None
