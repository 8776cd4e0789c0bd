"""What each kind of server is sent, and what is made of its answers, torn and odd ones included."""

from __future__ import annotations

from typing import Any

import pytest

from pool.errors import PermanentError, TransientError
from pool.types import ChatRequest, CompletionRequest, Message, Served, ToolCall, Usage
from pool.wire.assembly import Assembly, whole
from pool.wire.fields import ceiling, chat_body, completion_body, read_models

SCHEMA = {"type": "object", "properties": {"line": {"type": "integer"}}}
VLLM = Served(kind="vllm", model="m", window=4096, version="0.32.0")
LLAMA = Served(kind="llamacpp", model="m", window=2048, slots=4)
OTHER = Served(kind="other", model="m")


def chat(**more: Any) -> ChatRequest:
    return ChatRequest.model_validate(
        {"tier": "t", "session": "s", "messages": (Message(role="user", content="hi"),), **more}
    )


def completion(**more: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"tier": "t", "session": "s", "prompt": "p", **more})


@pytest.mark.parametrize("served", [VLLM, LLAMA, OTHER])
def test_no_request_carries_a_seed(served: Served) -> None:
    assert "seed" not in chat_body(chat(), served, 1) | completion_body(completion(), served, 1)


@pytest.mark.parametrize("served", [VLLM, LLAMA, OTHER])
def test_chat_schema_is_the_standard_field_everywhere(served: Served) -> None:
    field = chat_body(chat(json_schema=SCHEMA), served, 1)["response_format"]
    assert (field["type"], field["json_schema"]["schema"]) == ("json_schema", SCHEMA)


def test_completion_schema_is_translated_for_each_server() -> None:
    asked = completion(json_schema=SCHEMA)
    assert completion_body(asked, VLLM, 1)["structured_outputs"] == {"json": SCHEMA}
    assert completion_body(asked, LLAMA, 1)["json_schema"].items() >= SCHEMA.items()
    old = VLLM.model_copy(update={"version": "0.11.2"})
    assert completion_body(asked, old, 1)["guided_json"] == SCHEMA
    assert "structured_outputs" not in completion_body(asked, old, 1)


def test_completion_schema_that_might_be_ignored_is_refused() -> None:
    with pytest.raises(PermanentError, match="without a word"):
        completion_body(completion(json_schema=SCHEMA), OTHER, 1)


def test_ceiling_is_clamped_to_the_window() -> None:
    assert chat_body(chat(max_tokens=9999), VLLM, 1)["max_tokens"] == 4096
    assert chat_body(chat(max_tokens=9999), OTHER, 1)["max_tokens"] == 9999
    assert ceiling(9999, 4096, 4000) == 96
    assert ceiling(9999, 4096, 5000) == 1
    assert ceiling(10, 4096, 4000) == 10


def test_conversation_with_tools_keeps_its_shape() -> None:
    call = ToolCall(id="c1", name="shell", arguments="{not json")
    messages = (Message(role="assistant", tool_calls=(call,)), Message(role="tool", content="out", tool_call_id="c1"))
    sent = chat_body(chat(messages=messages), VLLM, 1)["messages"]
    assert sent[0]["tool_calls"][0]["function"] == {"name": "shell", "arguments": "{not json"}
    assert sent[1] == {"role": "tool", "content": "out", "tool_call_id": "c1"}


@pytest.mark.parametrize(
    ("seen", "name"),
    [(VLLM, "reasoning"), (VLLM.model_copy(update={"version": "0.11.2"}), "reasoning_content"),
     (LLAMA, "reasoning_content"), (OTHER, "reasoning_content")],
)  # fmt: skip
def test_reasoning_is_sent_back_under_the_name_that_the_server_reads(seen: Served, name: str) -> None:
    """vllm-project/vllm#38488, vllm-project/router#115."""
    said = (Message(role="assistant", content="so", reasoning="because"),)
    sent = chat_body(chat(messages=said), seen, 1)["messages"][0]
    assert sent == {"role": "assistant", "content": "so", name: "because"}


def answer(choice: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "x", "model": "m", "choices": [choice], **more}


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_under_both_names(field: str) -> None:
    choices, _ = whole(answer({"index": 0, "finish_reason": "stop", "message": {"content": None, field: "because"}}))
    assert (choices[0].content, choices[0].reasoning) == ("", "because")


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_answer_that_the_server_gave_up_is_no_success(reason: str) -> None:
    with pytest.raises(TransientError, match=reason):
        whole(answer({"index": 0, "finish_reason": reason, "message": {"content": "half"}}))


def test_unknown_finish_is_neither_stop_nor_length() -> None:
    choices, _ = whole(answer({"index": 0, "finish_reason": "repetition", "message": {"content": "x"}}))
    assert choices[0].finish_reason == "other"


@pytest.mark.parametrize(
    "odd", ["<html>", None, [], {}, {"choices": []}, {"choices": None}, {"choices": [{}]}, {"choices": [7]},
            {"choices": {"a": 1}}, {"choices": [{"message": None}]},
            {"choices": [{"text": 7, "finish_reason": "stop"}]},
            {"choices": [{"message": {"content": ["x"]}, "finish_reason": "stop"}]},
            {"choices": [{"message": {"tool_calls": [7]}, "finish_reason": "stop"}]},
            {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": [1]}],
)  # fmt: skip
def test_odd_answer_is_a_passing_fault(odd: object) -> None:
    with pytest.raises(TransientError):
        whole(odd)


@pytest.mark.parametrize(
    ("details", "cached"),
    [({}, None), ({"prompt_tokens_details": None}, None), ({"prompt_tokens_details": {}}, None),
     ({"prompt_tokens_details": {"cached_tokens": 0}}, 0), ({"prompt_tokens_details": {"cached_tokens": 96}}, 96)],
)  # fmt: skip
def test_absent_cached_tokens_are_none_and_zero_is_zero(details: dict[str, Any], cached: int | None) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101, **details}
    said = answer({"index": 0, "finish_reason": "stop", "message": {"content": "x"}}, usage=usage)
    assert whole(said)[1] == Usage(prompt_tokens=100, completion_tokens=1, cached_tokens=cached)


def test_models_are_read_for_kind_window_and_the_wanted_name() -> None:
    cards = {"data": [{"id": "a", "owned_by": "vllm", "max_model_len": 9}, {"id": "b", "owned_by": "vllm"}]}
    assert read_models("e", cards, None) == Served(kind="vllm", model="a", window=9)
    assert read_models("e", cards, "b").model == "b"
    llama = {"data": [{"id": "s", "owned_by": "llamacpp", "meta": {"n_ctx": 2048}}]}
    assert read_models("e", llama, None) == Served(kind="llamacpp", model="s", window=2048)
    with pytest.raises(PermanentError, match=r"endpoint e: it serves a, b, not c"):
        read_models("e", cards, "c")


@pytest.mark.parametrize("odd", [None, [], {}, {"data": None}, {"data": [{}]}, {"data": ["x"]}, "text"])
def test_list_of_models_that_is_none_is_a_passing_fault(odd: object) -> None:
    with pytest.raises(TransientError):
        read_models("e", odd, None)


def piece(index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "x", "model": "m", "choices": [{"index": index, "finish_reason": finish, "delta": delta}]}


def usage(count: int) -> dict[str, Any]:
    told = {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}
    return {"id": "x", "model": "m", "choices": [], "usage": told}


def test_pieces_of_two_samples_and_a_call_become_whole() -> None:
    whole = Assembly()
    first = {"index": 0, "id": "c1", "function": {"name": "shell", "arguments": '{"c":'}}
    rest = {"index": 0, "function": {"arguments": ' "ls"}'}}
    texts = piece(1, content="he"), piece(1, content="y"), piece(1, "length"), usage(2)
    calls = piece(0, tool_calls=[first]), piece(0, tool_calls=[rest]), piece(0, "tool_calls"), usage(7)
    for text, call in zip(texts, calls, strict=True):
        whole.add(text)
        whole.add(call)
    choices, used = whole.done()
    assert choices[0].tool_calls == (ToolCall(id="c1", name="shell", arguments='{"c": "ls"}'),)
    assert (choices[1].content, choices[1].finish_reason) == ("hey", "length")
    assert used == Usage(prompt_tokens=5, completion_tokens=9)


@pytest.mark.parametrize(
    "parts", [[], [piece(content="half")], [piece(0, "stop", content="x"), piece(1, content="half")]]
)
def test_stream_that_ends_early_is_torn_and_never_a_success(parts: list[dict[str, Any]]) -> None:
    whole = Assembly()
    for part in parts:
        whole.add(part)
    with pytest.raises(TransientError, match="broke off"):
        whole.done()
