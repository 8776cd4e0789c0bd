"""Anthropic's Messages API: what is asked as a chat, what is told in its published order of events, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pool.gateway.keys import hashed
from pool.gateway.messages_in import chat_body
from pool.gateway.messages_out import Message, usage
from pool.gateway.replies import RefusedError
from pool.testing import Slow, error_midway, overflow, overload, paced, pretend_vllm, reset_midway, server_error
from pool.types import Choice, ToolCall
from tests.pool.gateway.conftest import House, Open

PATH = "/v1/messages"
ASKED: dict[str, Any] = {"model": "small", "max_tokens": 64, "messages": [{"role": "user", "content": "Hello"}]}
TOOL = {
    "name": "read",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
TEXT = {"type": "text", "text": "no"}
CACHED = {"type": "ephemeral"}
LONG = "one two three four five six seven eight nine ten"


def asked(**more: Any) -> dict[str, Any]:
    return chat_body(ASKED | more)


def refused(**more: Any) -> Any:
    with pytest.raises(RefusedError) as error:
        asked(**more)
    assert error.value.refusal.status == 400
    return error.value.refusal.param


def read(text: str) -> list[dict[str, Any]]:
    """The events of a stream, each held to its form and all to the published order."""
    events = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    in_order([event for event in events if event["type"] != "ping"])
    return events


def in_order(events: list[dict[str, Any]]) -> None:
    """message_start, then blocks one after the other with start, deltas of their kind and stop, message_delta,
    message_stop; an error may come anywhere after the start and ends it."""
    assert events[0]["type"] == "message_start"
    kinds = {
        "text": {"text_delta"},
        "thinking": {"thinking_delta", "signature_delta"},
        "tool_use": {"input_json_delta"},
    }
    opened, count, ended = "", 0, False
    for event in events[1:]:
        assert not ended
        match event["type"]:
            case "content_block_start":
                assert (opened, event["index"]) == ("", count)
                opened = event["content_block"]["type"]
            case "content_block_delta":
                assert event["index"] == count
                assert event["delta"]["type"] in kinds[opened]
            case "content_block_stop":
                assert (bool(opened), event["index"]) == (True, count)
                opened, count = "", count + 1
            case "message_delta":
                assert not opened
            case "message_stop" | "error":
                ended = True
            case other:
                raise AssertionError(other)
    assert ended


def told(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events make, as a client puts it together."""
    message: dict[str, Any] = {}
    texts: list[str] = []
    for event in events:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                message["content"].append(event["content_block"])
                texts.append("")
            case "content_block_delta":
                delta = event["delta"]
                if delta["type"] == "input_json_delta":
                    texts[event["index"]] += delta["partial_json"]
                elif delta["type"] == "signature_delta":
                    message["content"][event["index"]]["signature"] = delta["signature"]
                else:
                    message["content"][event["index"]][delta["type"].removesuffix("_delta")] += next(
                        delta[name] for name in ("text", "thinking") if name in delta
                    )
            case "content_block_stop":
                block = message["content"][event["index"]]
                if block["type"] == "tool_use":
                    block["input"] = json.loads(texts[event["index"]] or "{}")
            case "message_delta":
                message |= event["delta"]
                message["usage"] = event["usage"]
    return message


async def both(house: House, **more: Any) -> dict[str, Any]:
    """The message, which is the same whole and streamed."""
    whole = await house.client.post(PATH, json=ASKED | more)
    assert whole.status_code == 200, whole.text
    streamed = await house.client.post(PATH, json=ASKED | more | {"stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    one, two = whole.json(), told(read(streamed.text))
    for message in (one, two):
        assert message.pop("id").startswith("msg_")
        for block in message["content"]:
            block.pop("signature", None)
        message["usage"].pop("cache_read_input_tokens")
        message["usage"].pop("input_tokens")
    assert one == two
    return one


# --- what is asked


def test_a_conversation_becomes_the_chat_that_it_is() -> None:
    body = asked(
        system=[{"type": "text", "text": "Be short.", "cache_control": CACHED}, {"type": "text", "text": "Be kind."}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Read a and b.", "cache_control": CACHED}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "Reading."},
                    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "t2", "name": "read", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "A"},
                    {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": [TEXT]},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        tools=[TOOL | {"cache_control": {"type": "ephemeral"}}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        top_k=5,
        metadata={"user_id": "u1"},
        stream=True,
    )  # fmt: skip
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert body["messages"][0]["content"] == "Be short.\nBe kind."
    said = body["messages"][2]
    assert (said["content"], said["reasoning"]) == ("Reading.", "hm")
    assert [call["function"]["arguments"] for call in said["tool_calls"]] == ['{"path": "a"}', "{}"]
    assert [one["content"] for one in body["messages"][3:]] == ["A", "Error: no", "Go on."]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "read", "description": "Read a file.", "parameters": TOOL["input_schema"]},
        }
    ]
    for name, value in (
        ("tool_choice", "required"), ("parallel_tool_calls", False), ("stop", ["END"]), ("top_k", 5), ("user", "u1"),
        ("max_tokens", 64), ("stream_options", {"include_usage": True}),
    ):  # fmt: skip
        assert body[name] == value


def test_turns_of_one_role_are_one_and_a_later_word_of_the_system_is_marked_in_a_persons() -> None:
    """Many chat templates refuse a system message that is not the first one, and roles that do not alternate."""
    picture = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
    call = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    body = asked(
        system=[{"type": "text", "text": "x-anthropic-billing-header: cch=1f2e"}, {"type": "text", "text": "One."}],
        messages=[
            {"role": "system", "content": "Two."},
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "Three."},
            {"role": "user", "content": [picture]},
            {"role": "assistant", "content": "A."},
            {"role": "assistant", "content": [call]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, call]},
        ],
    )
    system, user, said = body["messages"]
    assert system == {"role": "system", "content": "One.\nTwo."}
    assert user["content"][0]["text"] == "hi\n<system-reminder>\nThree.\n</system-reminder>"
    assert user["content"][1]["type"] == "image_url"
    assert (said["content"], said["reasoning"], len(said["tool_calls"])) == ("A.", "hm", 2)
    assert asked(system="x-anthropic-billing-header: cch=1")["messages"] == asked()["messages"]


def test_images_are_shown_and_those_of_a_tool_as_a_persons() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "see"}, picture]}
    body = asked(messages=[{"role": "user", "content": [result, linked]}])
    tool, user = body["messages"]
    assert tool == {"role": "tool", "tool_call_id": "t", "content": "see"}
    assert [part["image_url"]["url"] for part in user["content"]] == [
        "data:image/png;base64,QQ==",
        "https://x.example/a.png",
    ]


@pytest.mark.parametrize(
    ("choice", "means"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "read"}, {"type": "function", "function": {"name": "read"}}),
    ],
)
def test_each_choice_of_tools_has_its_word(choice: Any, means: Any) -> None:
    assert asked(tools=[TOOL], tool_choice=choice)["tool_choice"] == means


def test_effort_form_and_thinking_are_said_in_a_chats_words() -> None:
    body = asked(
        output_config={"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        thinking={"type": "disabled"},
    )
    assert body["reasoning_effort"] == "high"
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "chat_template_kwargs" not in asked(thinking={"type": "enabled", "budget_tokens": 2000})
    assert asked(context_management={"edits": []}, service_tier="auto").keys() == asked().keys()


def test_what_no_chat_can_say_is_refused_by_name() -> None:
    def said(*blocks: Any) -> Any:
        return [{"role": "user", "content": list(blocks)}]

    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="}}
    assert refused(messages=said(pdf)) == "messages.0"
    assert refused(messages=said({"type": "image", "source": {"type": "file", "file_id": "f"}})) == "messages.0"
    assert refused(messages=said({"type": "server_tool_use"})) == "messages.0"
    assert refused(messages=[{"role": "robot", "content": "x"}]) == "messages.0"
    assert refused(tools=[{"type": "web_search_20250305", "name": "web_search"}]) == "tools.0"
    assert refused(tools=[TOOL], tool_choice={"type": "some"}) == "tool_choice"
    assert refused(mcp_servers=[{"url": "x"}]) == "mcp_servers"
    assert refused(container="c") == "container"
    assert refused(output_config={"effort": "hm"}) == "output_config.effort"
    assert refused(best_of=3) == "best_of"
    assert refused(max_tokens=None) == "max_tokens"
    assert refused(messages=[]) == "messages"


@pytest.mark.parametrize(
    "odd",
    [
        {"system": 7},
        {"messages": ["x"]},
        {"messages": [{"role": "user", "content": 7}]},
        {"tools": [1]},
        {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
        {"tools": [{"name": "x"}]},
        {"thinking": "on"},
        {"metadata": 1},
    ],
)
def test_a_field_of_another_shape_is_the_callers_mistake(odd: dict[str, Any]) -> None:
    refused(**odd)


# --- what is told


async def test_answers_are_told_whole_and_event_by_event(gateway: Open) -> None:
    """A text, one that is cut, and thoughts, text and calls as blocks in their order."""
    calls = tuple(ToolCall(id=f"c{n}", name="read", arguments=json.dumps({"path": f"{n}.py"})) for n in range(2))
    much = Choice(reasoning="let me see", content="I read.", tool_calls=calls, finish_reason="tool_calls")
    async with (
        pretend_vllm(lambda recorded: much if recorded.body.get("tools") else LONG) as server,
        gateway(server) as house,
    ):
        message = await both(house)
        assert message["content"] == [{"type": "text", "text": LONG}]
        assert (message["stop_reason"], message["stop_sequence"], message["role"]) == ("end_turn", None, "assistant")
        assert message["usage"]["output_tokens"] == 10
        assert [recorded.path for recorded in server.requests] == ["/v1/chat/completions"] * 2
        assert (await both(house, max_tokens=3))["stop_reason"] == "max_tokens"
        message = await both(house, tools=[TOOL])
        assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use", "tool_use"]
        assert message["content"][2] == {"type": "tool_use", "id": "c0", "name": "read", "input": {"path": "0.py"}}
        assert message["stop_reason"] == "tool_use"


def test_the_text_that_stopped_it_is_told_where_the_server_tells_it() -> None:
    message = Message("1", "m")
    end = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop", "stop_reason": "END"}]}
    events = b"".join((*message.begin(), *message.take(end), *message.end())).decode()
    assert told(read(events))["stop_sequence"] == "END"
    assert message.whole()["stop_reason"] == "stop_sequence"


def test_a_forced_call_ends_as_a_call_and_one_that_was_cut_is_left_out_of_the_whole() -> None:
    forced = Message("1", "m")
    function = {"name": "read", "arguments": "{}"}
    call = {"choices": [{"message": {"tool_calls": [{"id": "c", "function": function}]}, "finish_reason": "stop"}]}
    read(b"".join((*forced.begin(), *forced.take(call), *forced.end())).decode())
    assert (forced.whole()["stop_reason"], forced.whole()["content"][0]["input"]) == ("tool_use", {})
    cut = Message("2", "m")
    function["arguments"] = '{"path": "a'
    call["choices"][0]["finish_reason"] = "length"
    assert [*cut.take(call), *cut.end()]
    assert (cut.whole()["stop_reason"], cut.whole()["content"]) == ("max_tokens", [])


def test_cached_tokens_are_no_part_of_the_input_and_unknown_is_not_zero() -> None:
    known = usage({"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}})
    assert (known["input_tokens"], known["cache_read_input_tokens"], known["output_tokens"]) == (36, 64, 5)
    assert usage({"prompt_tokens": 100, "prompt_tokens_details": None})["cache_read_input_tokens"] is None


# --- what goes wrong


@pytest.mark.parametrize("fault", [error_midway(LONG), reset_midway(LONG)])
async def test_a_stream_that_breaks_ends_with_an_error_event(gateway: Open, fault: Any) -> None:
    async with pretend_vllm(lambda _: fault) as server, gateway(server, pool={"retries": 0}) as house:
        events = read((await house.client.post(PATH, json=ASKED | {"stream": True, "tools": [TOOL]})).text)
        assert events[-1]["type"] == "error"
        assert events[-1]["error"]["type"] == "api_error"
        assert not any(event["type"] == "message_stop" for event in events)


async def test_errors_have_this_apis_form(gateway: Open) -> None:
    faults = (
        (overflow(4096), 400, "invalid_request_error", "prompt is too long: "),
        (server_error(), 502, "api_error", "endpoint a: "),
        (overload(0.5), 503, "overloaded_error", "endpoint a: "),
    )
    fault: Any = None
    async with pretend_vllm(lambda _: fault) as server, gateway(server, pool={"retries": 0}) as house:
        for wrong, status, kind, words in faults:
            fault = wrong
            answer = await house.client.post(PATH, json=ASKED | {"stream": status == 502})
            assert answer.status_code == status
            assert answer.json().keys() == {"type", "error"}
            assert (answer.json()["type"], answer.json()["error"]["type"]) == ("error", kind)
            assert answer.json()["error"]["message"].startswith(words)


async def test_what_is_wrong_before_the_pool_is_asked_has_it_too(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server, keys=[{"name": "a", "sha256": hashed("k")}]) as house:
        for key, content, status, kind in (
            ("wrong", ASKED, 401, "authentication_error"),
            ("k", ASKED | {"model": "nobody"}, 404, "not_found_error"),
            ("k", ASKED | {"best_of": 2}, 400, "invalid_request_error"),
            ("k", ASKED | {"temperature": "hot"}, 400, "invalid_request_error"),
        ):
            for path in (PATH, f"{PATH}/count_tokens")[: 1 if status == 400 else 2]:
                answer = await house.client.post(path, json=content, headers={"x-api-key": key})
                assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)
        odd = await house.client.post(PATH, content=b"{", headers={"x-api-key": "k"})
        assert odd.json()["error"]["type"] == "invalid_request_error"
        assert (await house.client.post(PATH, json=ASKED, headers={"x-api-key": "k"})).status_code == 200


# --- what else such clients do


async def test_an_agent_names_its_session_counts_tokens_and_learns_what_was_cached(gateway: Open) -> None:
    headers = {"x-claude-code-session-id": "tree", "anthropic-version": "2023-06-01", "anthropic-beta": "x"}
    async with pretend_vllm() as server, gateway(server) as house:
        body = ASKED | {"messages": [{"role": "user", "content": "word " * 200}]}
        unbounded = {name: value for name, value in body.items() if name != "max_tokens"} | {"tools": [TOOL]}
        counted = await house.client.post(f"{PATH}/count_tokens", json=unbounded, headers=headers)
        assert (counted.status_code, counted.json().keys()) == (200, {"input_tokens"})
        assert counted.json()["input_tokens"] > 200
        assert not server.requests
        answers = [
            await house.client.post(f"{PATH}?beta=true", json=body | {"stream": True}, headers=headers) for _ in "ab"
        ]
        assert server.requests[-1].headers["x-session-id"] == "tree"
        first, second = (told(read(answer.text))["usage"] for answer in answers)
        assert (first["cache_read_input_tokens"], first["input_tokens"]) == (0, 200)
        assert second["cache_read_input_tokens"] > 0
        assert second["cache_read_input_tokens"] + second["input_tokens"] == 200


async def test_a_virtual_model_speaks_it_with_pings_while_it_drafts(gateway: Open) -> None:
    fuse = {"virtual": {"f": {"kind": "fuse", "tiers": ["small", "large"]}}}
    async with (
        pretend_vllm(lambda _: Slow(0.2, "draft")) as one,
        pretend_vllm(lambda r: paced(LONG, 0.005) if "<draft" in str(r.body["messages"][-1]) else "another") as two,
        gateway(one, two, tiers=("small", "large"), pool=fuse, comment_interval=0.05) as house,
    ):
        text = (await house.client.post(PATH, json=ASKED | {"model": "f", "stream": True})).text
        events = read(text)
        assert told(events)["content"] == [{"type": "text", "text": LONG}]
        assert sum(event["type"] == "ping" for event in events) >= 3


async def test_what_only_suggests_how_to_think_is_left_out_for_a_virtual_model(gateway: Open) -> None:
    vote = {"virtual": {"v": {"kind": "vote", "tiers": ["small"]}}}
    think = {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}
    async with pretend_vllm(["yes"] * 8) as server, gateway(server, pool=vote) as house:
        for model, sent in (("v", False), ("small", True)):
            answer = await house.client.post(PATH, json=ASKED | think | {"model": model})
            assert answer.status_code == 200, answer.text
            assert ("reasoning_effort" in server.requests[-1].body) is sent
            assert ("chat_template_kwargs" in server.requests[-1].body) is sent
        answer = await house.client.post(
            "/v1/responses", json={"model": "v", "input": "x", "reasoning": {"effort": "low"}}
        )
        assert answer.status_code == 200, answer.text
        for field, value in (("reasoning_effort", "low"), ("top_p", 0.5)):
            refused = await house.chat({"model": "v", field: value})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
