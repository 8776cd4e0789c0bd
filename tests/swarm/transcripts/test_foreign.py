"""Trajectories of other programs: told apart, read in all their forms, never believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import TranscriptError
from swarm.transcripts import atif, chats, foreign, lines
from swarm.transcripts.shape import Transcript
from swarm.types import Step
from tests.swarm.transcripts.conftest import MINI_1, MINI_2, MINI_RESPONSES, NATIVE, SWE_AGENT, line

FORMS = {"mini 1": MINI_1, "mini 1.1": MINI_2, "responses": MINI_RESPONSES, "swe-agent": SWE_AGENT}


def read(value: Any, form: str = "auto") -> Transcript:
    return foreign.read(json.dumps(value).encode(), form)


@pytest.mark.parametrize("form", FORMS)
def test_each_comes_back_the_same_through_our_lines_and_through_atif(form: str) -> None:
    told = read(FORMS[form])
    assert lines.loads(lines.dumps(told).encode()) == told
    assert read(atif.document(told)) == told
    assert read(atif.document(told), "atif") == told


def test_mini_swe_agents_first_format_is_read() -> None:
    told = read(MINI_1)
    assert told.header.origin == "mini-swe-agent"
    assert (told.header.agent.version, told.header.agent.model_name) == ("1.17.5", "openai/small")
    assert [step.source for step in told.steps] == ["system", "user", "agent"]
    assert told.steps[2].observation is not None
    assert "a.py" in told.steps[2].observation.results[0].content
    assert told.end is not None
    assert (told.end.ending, told.end.submission, told.end.total_cost_usd) == ("Submitted", "diff --git a/a b/a", 0.5)


def test_its_second_formats_calls_usage_and_exit_codes_are_read() -> None:
    told = read(MINI_2)
    answer = told.steps[2]
    assert (answer.reasoning_content, answer.message, answer.model_name) == ("hm", "", "small")
    assert answer.tool_calls[0].arguments == {"command": "ls"}
    assert answer.metrics is not None
    assert (answer.metrics.prompt_tokens, answer.metrics.cached_tokens, answer.metrics.cost_usd) == (10, 8, 0.25)
    assert answer.observation is not None
    assert (answer.observation.results[0].source_call_id, answer.observation.results[0].extra["exit_code"]) == ("c1", 1)
    assert answer.timestamp == "2023-11-14T22:13:20.500Z"
    assert [step.source for step in told.steps[3:]] == ["user", "user"], "a format error and the exit are no results"
    assert told.end is not None
    assert told.end.total_cached_tokens == 8


def test_its_answers_over_openais_responses_are_read() -> None:
    answer = read(MINI_RESPONSES).steps[2]
    assert (answer.message, answer.reasoning_content) == ("I look.", "hm")
    assert answer.metrics is not None
    assert (answer.metrics.prompt_tokens, answer.metrics.cached_tokens) == (10, 4)
    assert answer.observation is not None
    assert answer.observation.results[0].source_call_id == "c1"


def test_bare_list_of_messages_is_mini_swe_agents() -> None:
    assert len(read(MINI_1["messages"]).steps) == 3


def test_swe_agents_turns_are_joined_to_its_answers_and_demonstrations_are_told_apart() -> None:
    told = read(SWE_AGENT)
    shown, answer = (step for step in told.steps if step.source == "agent")
    assert (shown.llm_call_count, answer.llm_call_count) == (0, 1)
    assert answer.extra["state"] == {"open_file": "n/a"}
    assert answer.observation is not None
    assert answer.observation.results[0].extra["seconds"] == 0.25
    assert "query" not in answer.extra, "each turn repeats the whole conversation there"
    assert told.header.agent.model_name == "gpt-small"
    assert told.end is not None
    assert (told.end.total_prompt_tokens, told.end.submission) == (30, "diff")


def test_swe_agents_trajectory_without_a_history_is_read_from_its_turns() -> None:
    told = read({key: value for key, value in SWE_AGENT.items() if key != "history"})
    (step,) = told.steps
    assert step.observation is not None
    assert (step.message, step.extra["action"], step.observation.results[0].content) == ("I look.", "ls", "a.py")


def test_chat_of_a_trajectory_is_the_chat_that_it_came_of() -> None:
    roles = [message["role"] for message in chats.messages(read(SWE_AGENT))]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (line(99, "report", verdict="failed", reason="2 fail", ending="gave_up"), "gave_up"),
        (line(99, "report", verdict="failed", reason="2 fail"), "failed"),
        (line(99, "fault", what="the machinery failed", why="no sandbox"), "infra_failed"),
        (line(99, "state", **{"from": "running", "to": "delivered", "reason": ""}), "delivered"),
        (line(99, "state", **{"from": "queued", "to": "running", "reason": ""}), None),
        (line(99, "note", text="it goes on"), None),
    ],
)
def test_a_journal_ends_where_its_last_word_says_so(last: Step, ending: str | None) -> None:
    raw = "".join(each.model_dump_json() + "\n" for each in (*NATIVE, last))
    told = foreign.read(raw.encode())
    assert (told.end.ending if told.end else None) == ending


@pytest.mark.parametrize("version", ["ATIF-v1.0", "ATIF-v1.8"])
def test_atif_documents_of_others_are_read(version: str) -> None:
    value = {
        "schema_version": version,
        "session_id": "s",
        "agent": {"name": "terminus", "version": "2", "model_name": "m", "tool_definitions": None},
        "steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "see"}, {"type": "image"}]},
            {
                "step_id": 2,
                "source": "agent",
                "message": "ok",
                "reasoning_effort": "high",
                "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {}, "extra": None}],
                "observation": {"results": [{"source_call_id": "c", "content": None}]},
                "metrics": {"prompt_tokens": 3, "logprobs": [0.5], "cost_usd": None},
            },
        ],
        "notes": "a note",
        "final_metrics": {"total_steps": 2},
    }
    told = read(value)
    assert told.steps[0].message == "see\n[image]"
    assert told.steps[1].extra["reasoning_effort"] == "high"
    assert told.steps[1].metrics is not None
    assert told.steps[1].metrics.extra["logprobs"] == [0.5]
    assert told.header.extra["notes"] == "a note"
    assert told.end is not None
    assert told.end.total_steps == 2


def test_what_is_ours_alone_lies_where_atif_has_room_for_it(made: Transcript) -> None:
    document = atif.document(made)
    assert read(document) == made
    assert set(document) <= {
        *("schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics", "extra"),
    }
    for step in document["steps"]:
        agents = {"model_name", "reasoning_content", "tool_calls", "metrics"} & set(step)
        assert step["source"] == "agent" or not agents


@pytest.mark.parametrize(
    ("raw", "form", "words"),
    [
        (b"", "auto", "no transcript and no JSON"),
        (b"\x00\xff" * 50, "auto", "no transcript and no JSON"),
        (b"{}", "auto", "nothing that is read here looks like it"),
        (b"[]", "auto", "nothing that is read here looks like it"),
        (b'"text"', "mini-swe-agent", "does not look like what mini-swe-agent writes"),
        (b'{"schema_version": "ATIF-v9.9"}', "auto", "is of schema 'ATIF-v9.9'"),
        (b'{"schema_version": "ATIF-v1.4", "steps": []}', "auto", "no list of steps"),
        (
            b'{"schema_version": "ATIF-v1.4", "agent": {"name": "x"}, "steps": [3]}',
            "auto",
            "is no ATIF document: source",
        ),
        (b'{"schema_version": "ATIF-v1.4", "steps": [{"source": "user"}]}', "auto", "is no ATIF document: name"),
        (b'{"trajectory": ' + b"[" * 5000 + b"]" * 5000 + b"}", "auto", "nested deeper"),
    ],
)
def test_file_that_is_none_is_refused_in_words(raw: bytes, form: str, words: str) -> None:
    with pytest.raises(TranscriptError) as told:
        foreign.read(raw, form)
    assert words in str(told.value)


def test_journal_in_a_file_is_read_the_last_of_its_attempts() -> None:
    other = NATIVE[2].model_copy(update={"attempt": "t1-0-aaaa", "seq": 99})
    raw = b"".join(step.model_dump_json().encode() + b"\n" for step in (other, *NATIVE))
    told = foreign.read(raw)
    assert told == foreign.read(raw, "journal")
    assert (told.header.task, told.header.attempt) == ("t1", "t1-1-abcd")
    assert len([step for step in told.steps if step.source == "agent"]) == 2
    for wrong, words in ((raw + b"{}", "line 12 is no line of a journal: task"), (raw + b"[", "line 12 is no JSON")):
        with pytest.raises(TranscriptError, match=words):
            foreign.read(wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
WORDS = ("role", "content", "tool_calls", "extra", "tool_call_id", "output", "object", "type", "action", "observation")
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(WORDS), JSON | st.sampled_from(["assistant", "tool", "user", "response"])),
    max_size=5,
)


@given(MESSAGES, JSON)
def test_wrong_types_anywhere_are_left_out_or_told(messages: list[Any], info: Any) -> None:
    for value in (
        {"messages": messages, "info": info, "trajectory_format": "mini-swe-agent-1"},
        {"trajectory": messages, "history": messages, "info": info, "replay_config": info},
        {"schema_version": "ATIF-v1.7", "agent": info, "steps": messages},
    ):
        try:
            told = read(value)
        except TranscriptError:
            continue
        assert lines.loads(lines.dumps(told).encode()) == told
