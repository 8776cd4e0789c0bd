"""The Responses API without state: what is asked as a chat, what is told as events, what is refused."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from pool.gateway.replies import RefusedError
from pool.gateway.responses_in import chat_body
from pool.gateway.responses_out import Answer
from pool.testing import pretend_vllm, reset_midway
from pool.types import Choice, ToolCall
from tests.pool.gateway.conftest import House, Open

TOOL = {
    "type": "function",
    "name": "read",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
ASKED = {"model": "small", "input": "Hello"}


def sdk(house: House) -> openai.AsyncOpenAI:
    """OpenAI's own client."""
    return openai.AsyncOpenAI(base_url=f"{house.client.base_url}/v1", api_key="x", max_retries=0)


def test_a_conversation_becomes_the_chat_that_it_is() -> None:
    body = chat_body(
        {
            "model": "m",
            "instructions": "Be short.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Read a."}]},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Reading."}]},
                {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"a"}'},
                {"type": "function_call", "call_id": "c2", "name": "read", "arguments": '{"path":"b"}'},
                {"type": "function_call_output", "call_id": "c1", "output": "A"},
                {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "B"}]},
            ],
            "tools": [TOOL],
            "tool_choice": {"type": "function", "name": "read"},
            "max_output_tokens": 9,
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}},
        }
    )
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    said = body["messages"][2]
    assert (said["content"], said["reasoning"]) == ("Reading.", "hm")
    assert [one["id"] for one in said["tool_calls"]] == ["c1", "c2"]
    assert body["messages"][4]["content"] == "B"
    assert body["tools"][0]["function"]["name"] == "read"
    assert body["tool_choice"] == {"type": "function", "function": {"name": "read"}}
    assert body["max_completion_tokens"] == 9
    assert body["reasoning_effort"] == "low"
    assert body["response_format"]["json_schema"] == {"name": "x", "schema": {"type": "object"}, "strict": True}


def test_images_stay_images() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,xx", "detail": "low"}
    body = chat_body({"model": "m", "input": [{"role": "user", "content": [image]}]})
    shown = {"type": "image_url", "image_url": {"url": image["image_url"], "detail": "low"}}
    assert body["messages"][0]["content"] == [shown]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"include": ["reasoning.encrypted_content", "file_search_call.results"]}, "include"),
        ({"client_metadata": "word"}, "client_metadata"),
        ({"client_metadata": {"session": {"id": 1}}}, "client_metadata"),
        ({"tools": [{"type": "namespace", "name": "agents", "tools": [TOOL]}]}, "tools"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [{"type": "custom", "name": "patch"}]}, "tools"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0]"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0]"),
        ({"input": []}, "input"),
        ({"top_k": 5}, "top_k"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(RefusedError) as caught:
        chat_body(ASKED | more)
    assert caught.value.refusal.status == 400
    assert caught.value.refusal.param == param


def test_what_says_only_what_is_so_anyway_is_taken() -> None:
    harmless = {"store": False, "include": [], "truncation": "disabled", "service_tier": "auto", "metadata": {"a": "b"}}
    assert chat_body(ASKED | harmless)["messages"] == [{"role": "user", "content": "Hello"}]


def test_what_codex_sends_is_the_chat_that_it_means() -> None:
    """Recorded of Codex 0.171.0, second turn, its texts and most tools left out."""
    told = {"role": "developer", "content": [{"type": "input_text", "text": "You are a coding agent."}]}
    body = chat_body(
        {
            "model": "small",
            "stream": True,
            "input": [
                {"type": "message", "id": "msg_e7976377", **told},
                {
                    "type": "message",
                    "id": "msg_01a2",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Mend"}],
                },
                {
                    "type": "reasoning",
                    "id": "rs_0",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "hm hm"}],
                    "encrypted_content": None,
                },
                {
                    "type": "function_call",
                    "status": "completed",
                    "id": "fc_1",
                    "name": "exec_command",
                    "arguments": '{"cmd": "cat calc.py"}',
                    "call_id": "call-1",
                },
                {"type": "function_call_output", "id": "fco_01a2", "call_id": "call-1", "output": "Process exited"},
            ],
            "tools": [TOOL | {"name": "exec_command", "strict": False}],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"summary": "auto"},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "01a22a7f",
            "client_metadata": {"session_id": "01a22a7f", "x-codex-turn-metadata": "{}"},
        }
    )
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool"]
    called = body["messages"][2]
    assert (called["reasoning"], called["tool_calls"][0]["function"]["name"]) == ("hm hm", "exec_command")
    assert body["tools"][0]["function"]["strict"] is False
    assert not {"include", "client_metadata", "store", "reasoning"} & body.keys()


def test_asking_for_encrypted_reasoning_gets_it_in_clear() -> None:
    """A client that carries thoughts from turn to turn that way loses none of them."""
    answer = Answer("1", 0, ASKED | {"include": ["reasoning.encrypted_content"], "store": False})
    list(answer.take({"choices": [{"delta": {"reasoning": "hm hm"}}, {"delta": {"content": "Done."}}]}))
    list(answer.end())
    said = chat_body(ASKED | {"input": [*answer.whole()["output"], {"role": "user", "content": "Go on."}]})
    assert said["messages"][0] == {"role": "assistant", "content": "Done.", "reasoning": "hm hm"}


def test_a_cut_answer_is_incomplete_and_says_why() -> None:
    answer = Answer("1", 0, ASKED)
    for piece in ({"delta": {"content": "Hal"}}, {"delta": {}, "finish_reason": "length"}):
        list(answer.take({"choices": [piece]}))
    last = json.loads(list(answer.end())[-1].decode().split("data: ")[1])
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_unknown_counts_are_not_zero_and_known_ones_are_numbers() -> None:
    """vllm-project/vllm#16162. Codex breaks off at a count that is null, and begins the turn again."""
    answer = Answer("1", 0, ASKED)
    list(answer.take({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}))
    assert answer.whole()["usage"]["input_tokens_details"] is None
    assert answer.whole()["usage"]["output_tokens_details"] is None
    known = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 1}}
    list(answer.take({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2} | known}))
    assert answer.whole()["usage"]["input_tokens_details"] == {"cached_tokens": 4}
    assert answer.whole()["usage"]["output_tokens_details"] == {"reasoning_tokens": 1}


async def test_the_sdk_gets_text_and_usage(gateway: Open) -> None:
    async with pretend_vllm(["Hello you."]) as server, gateway(server) as house, sdk(house) as client:
        answer = await client.responses.create(model="small", input="Hi", instructions="Be short.")
        assert answer.output_text == "Hello you."
        assert answer.status == "completed"
        assert answer.usage is not None
        assert answer.usage.output_tokens > 0
        assert [m["role"] for m in server.requests[-1].body["messages"]] == ["system", "user"]


async def test_the_sdk_follows_a_stream_of_reasoning_text_and_calls(gateway: Open) -> None:
    scripted = Choice(
        content="I read it.",
        reasoning="hm hm",
        tool_calls=tuple(ToolCall(id=f"c-{x}", name="read", arguments=json.dumps({"path": x})) for x in "ab"),
        finish_reason="tool_calls",
    )
    async with pretend_vllm([scripted]) as server, gateway(server) as house, sdk(house) as client:
        async with client.responses.stream(model="small", input="Read", tools=[TOOL]) as stream:  # type: ignore[list-item]
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
        assert [json.loads(item.arguments) for item in final.output[2:]] == [{"path": "a"}, {"path": "b"}]  # type: ignore[union-attr]
        assert final.output_text == "I read it."
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"


async def test_events_are_numbered_and_open_and_close_in_order(gateway: Open) -> None:
    async with pretend_vllm(["one two three"]) as server, gateway(server) as house:
        text = (await house.client.post("/v1/responses", json=ASKED | {"stream": True})).text
        told = [json.loads(block.split("data: ")[1]) for block in text.strip().split("\n\n")]
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        opened = [event["type"] for event in told if not event["type"].endswith("delta")]
        assert opened == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]


async def test_a_torn_stream_ends_as_failed(gateway: Open) -> None:
    tool = {"tools": [TOOL]}
    async with pretend_vllm(lambda _: reset_midway("a b c d")) as server, gateway(server, pool={"retries": 0}) as house:
        text = (await house.client.post("/v1/responses", json=ASKED | tool | {"stream": True})).text
        last = json.loads(text.strip().split("\n\n")[-1].split("data: ")[1])
        assert last["type"] == "response.failed"
        assert last["response"]["error"]["code"] == "server_error"
        assert "response.completed" not in text


async def test_a_field_that_cannot_be_honoured_is_a_400(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        answer = await house.client.post("/v1/responses", json=ASKED | {"previous_response_id": "resp_1"})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "previous_response_id"
        assert not server.requests


@pytest.mark.parametrize("field", ["tools", "text", "reasoning"])
async def test_a_field_of_another_type_is_the_callers_mistake(gateway: Open, field: str) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        for body in ({"model": "small", "input": "hi", field: 5}, {"model": "small", "input": [{"content": 5}]}):
            assert (await house.client.post("/v1/responses", json=body)).status_code == 400
        odd = {"model": "auto", "tools": 5, "stop": 0.5}
        assert (await house.chat(odd)).status_code == 400
