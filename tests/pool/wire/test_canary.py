"""What the answers to small questions prove, and what they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pool.types import CANARY_TOOL, Capability, Verdict
from pool.wire.canary import KEY, WORDS, Heard, judge, questions
from pool.wire.capability import CAPABILITIES, Record

RECORD = Record(kind="vllm", model="m", window=4096, block_tokens=16)


def chat(finish: str = "stop", usage: Any = None, logprobs: Any = None, **message: Any) -> Heard:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, "logprobs": logprobs}
    return Heard(200, json.dumps({"choices": [choice], "usage": usage}))


def called(arguments: str, name: str = CANARY_TOOL) -> Heard:
    return chat("tool_calls", tool_calls=[{"id": "1", "function": {"name": name, "arguments": arguments}}])


def verdict(capability: Capability, *heard: Heard) -> Verdict:
    return judge(capability, "vllm", heard).verdict


@pytest.mark.parametrize("arguments", ["Paris", '"Paris"', '{"word": 1}', '{"word": "rea', "[]", "null"])
def test_tool_call_counts_only_with_arguments_that_fit(arguments: str) -> None:
    """vllm-project/vllm#53269, #47761: cut or misshapen arguments come as a tool call all the same."""
    assert verdict("tools", called(arguments)) == "no"
    assert verdict("tools", called('{"word": "ready"}')) == "yes"
    assert verdict("tools", called('{"word": "ready"}', "other")) == "no"


def test_forced_call_is_a_question_of_its_own_with_arguments_that_are_held_to_the_schema() -> None:
    """vLLM pins the arguments of a tool only where it is ``strict``; seen in 0.32: else the schema itself came back."""
    (free,), (forced,) = questions("tools", RECORD), questions("forced_tools", RECORD)
    assert (free["tool_choice"], forced["tool_choice"]) == ("auto", "required")
    assert forced["tools"][0]["function"]["strict"]
    assert verdict("forced_tools", called('{"word": "ready"}')) == "yes"
    assert verdict("forced_tools", called('{"type": "object", "properties": {}}')) == "no"


def test_end_that_speaks_of_a_call_which_never_came_proves_nothing() -> None:
    """vLLM 0.32 ends by `tool_calls` under a forced choice, also where it ended in the midst of the thinking."""
    assert verdict("forced_tools", chat("tool_calls", content="", reasoning="hm")) == "no"


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "swarm_canary"}',
        "[TOOL_CALLS] swarm_canary",
        "<function=swarm_canary>",
        f'{{"name": "{CANARY_TOOL}", "parameters": {{}}}}',
    ],
)
def test_call_that_comes_as_text_names_the_parser(text: str) -> None:
    found = judge("tools", "vllm", [chat(content=text)])
    assert found.verdict == "no"
    assert "parser is missing or the wrong one" in found.evidence
    assert "--tool-call-parser" in found.mend


def test_refusal_proves_that_it_is_missing_and_a_busy_server_proves_nothing() -> None:
    refusal = Heard(400, '{"error": {"message": "\\"auto\\" tool choice requires --enable-auto-tool-choice"}}')
    assert verdict("tools", refusal) == "no"
    assert "requires --enable-auto" in judge("tools", "vllm", [refusal]).evidence
    for status in (401, 403, 429, 500, 503):
        assert verdict("tools", Heard(status, "")) == "unknown"


def test_reasoning_is_seen_apart_inside_or_not_at_all() -> None:
    assert verdict("reasoning", chat(reasoning="hm", content="42")) == "yes"
    assert verdict("reasoning", chat(reasoning_content="hm", content="42")) == "yes"
    assert verdict("reasoning", chat(content="<think>hm</think>42")) == "no"
    assert verdict("reasoning", chat(content="hm</think>42")) == "no"
    assert verdict("reasoning", chat(content="42")) == "unknown"


def test_schema_counts_only_where_nobody_fits_it_by_chance() -> None:
    """vllm-project/vllm#53975: 200 with unconstrained text."""
    right = f'{{"{KEY}": "{WORDS[0]}"}}'
    assert verdict("json_schema", chat(content=right)) == "yes"
    assert verdict("json_schema", chat(content='{"greeting": "hello"}')) == "no"
    assert verdict("json_schema", chat(content="Hello!")) == "no"
    assert verdict("json_schema", chat("length", content="Hello, how are")) == "no"


def test_answer_full_of_white_space_is_constrained_all_the_same() -> None:
    cut = judge("json_schema", "vllm", [chat("length", content=f'{{\n\n  "{KEY}":   \n\n')])
    assert cut.verdict == "yes"
    assert "white space" in cut.evidence
    assert verdict("json_schema", chat("length", content="\n\n \n")) == "unknown"


def test_usage_of_a_stream_is_looked_for_in_every_event_and_comments_are_none() -> None:
    piece = 'data: {"choices": [{"delta": {"content": "a"}}], "usage": null}'
    last = 'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}'
    assert verdict("stream_usage", Heard(200, f": ping\n\n{piece}\n\n{last}\n\ndata: [DONE]\n\n")) == "yes"
    assert verdict("stream_usage", Heard(200, f"{piece}\n\ndata: {{broken\n\ndata: [DONE]\n\n")) == "no"


def test_cached_tokens_that_are_not_told_are_not_zero() -> None:
    """vllm-project/vllm#16162, vllm-project/aibrix#1607: without its flag the details are null."""

    def told(cached: int | None) -> Heard:
        details = None if cached is None else {"cached_tokens": cached}
        return chat(usage={"prompt_tokens": 400, "prompt_tokens_details": details})

    assert verdict("cached_tokens", told(0), told(384)) == "yes"
    assert verdict("cached_tokens", told(None), told(None)) == "no"
    assert verdict("cached_tokens", told(0), told(0)) == "unknown"


def test_logprobs_are_looked_at() -> None:
    assert verdict("logprobs", chat(logprobs={"content": [{"token": "a", "logprob": -0.1}]})) == "yes"
    assert verdict("logprobs", chat(logprobs=None)) == "no"


@pytest.mark.parametrize("capability", [name for name in CAPABILITIES if name != "priority"])
@pytest.mark.parametrize("text", ["", "[]", "null", '{"choices": [null]}', '{"choices": [{"message": 3}]}', "\xff{"])
def test_rubbish_is_never_taken_for_an_ability(capability: Capability, text: str) -> None:
    assert verdict(capability, Heard(200, text)) != "yes"


def test_questions_fit_the_window_and_fill_whole_blocks_twice() -> None:
    tiny = RECORD.model_copy(update={"window": 256})
    for capability in CAPABILITIES:
        for body in questions(capability, tiny):
            assert body["max_tokens"] <= 128
            assert len(json.dumps(body["messages"])) < 256 * 4
    first, second = questions("cached_tokens", RECORD.model_copy(update={"block_tokens": 128}))
    assert first == second
    assert len(first["messages"][0]["content"]) > 3 * 128 * 2
    assert questions("priority", RECORD) == ()
