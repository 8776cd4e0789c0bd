"""A chat through the gateway: what reaches the server, what reaches the client, and what is left when either breaks."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest

from pool.gateway.keys import hashed
from pool.testing import (
    Slow,
    closed_early,
    error,
    error_midway,
    hang,
    overflow,
    overload,
    paced,
    pretend_vllm,
    reset,
    reset_midway,
    server_error,
    stalled,
    unfinished,
    without_done,
)
from tests.pool.gateway.conftest import HELLO, Open

LONG = "one two three four five six seven eight nine ten"


def events(text: str) -> list[dict[str, Any]]:
    """The JSON events of a stream."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


async def test_the_body_reaches_the_server_unchanged_but_for_the_model(gateway: Open) -> None:
    """BerriAI/litellm#41380: a rewrite dropped reasoning, 43 % of the prompt."""
    odd = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": "hm", "reasoning": "think", "x_unknown": {"deep": [1, None]}},
            {"role": "user", "content": "go on"},
        ],
        "top_k": 7,
        "chat_template_kwargs": {"enable_thinking": False},
        "seed_is_not_sent": "but this is",
    }
    async with pretend_vllm() as server, gateway(server) as house:
        assert (await house.chat(odd)).status_code == 200
        got = server.requests[-1].body
        assert got["model"] == server.model
        assert {name: got[name] for name in odd} == odd


async def test_an_answer_tells_who_gave_it(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        answer = await house.chat()
        told = {name: answer.headers[f"x-swarm-{name}"] for name in ("endpoint", "tier", "model", "attempts")}
        assert told == {"endpoint": "a", "tier": "small", "model": "pretend", "attempts": "1"}
        assert float(answer.headers["x-swarm-queue-ms"]) >= 0
        assert answer.headers["x-request-id"].startswith("req-")
        assert house.service.pool.explain(answer.headers["x-request-id"]) is not None


@pytest.mark.parametrize("name", ["small", "pretend"])
async def test_a_tier_and_a_real_model_are_both_asked_for_by_name(gateway: Open, name: str) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        assert (await house.chat({"model": name})).json()["choices"][0]["message"]["content"] == "ok"


async def test_a_real_model_is_asked_only_where_it_is_served(gateway: Open) -> None:
    async with pretend_vllm(model="m-a") as one, pretend_vllm(model="m-b") as two, gateway(one, two) as house:
        for model, server in (("m-a", one), ("m-b", two)):
            for number in range(4):
                answer = await house.chat({"model": model}, **{"x-session-id": f"s{number}"})
                assert answer.headers["x-swarm-model"] == model
            assert {recorded.body["model"] for recorded in server.requests} == {model}


async def test_a_name_that_nobody_knows_is_a_404_that_lists_the_tiers(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        answer = await house.chat({"model": "nobody"})
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"
        assert "small" in answer.json()["error"]["message"]


async def test_the_session_reaches_the_server_and_no_key_of_the_client_does(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        await house.chat(
            **{"x-claude-code-session-id": "tree", "authorization": "Bearer sk-client", "x-api-key": "sk-2"}
        )
        got = server.requests[-1].headers
        assert got["x-session-id"] == server.requests[-1].body["session_id"] == "tree"
        assert got["x-request-id"].startswith("req-")
        assert "authorization" not in got
        assert "sk-" not in json.dumps(got) + json.dumps(server.requests[-1].body)


@pytest.mark.slow
async def test_turns_of_an_agent_that_says_nothing_stay_on_one_endpoint(gateway: Open) -> None:
    async with pretend_vllm() as one, pretend_vllm() as two, gateway(one, two) as house:
        for agent in range(6):
            messages: list[dict[str, str]] = [{"role": "user", "content": f"task {agent} " * 1000}]
            seen = set()
            for _ in range(4):
                answer = await house.chat({"messages": messages})
                seen.add(answer.headers["x-swarm-endpoint"])
                messages += [
                    answer.json()["choices"][0]["message"] | {"tool_calls": []},
                    {"role": "user", "content": "on"},
                ]
            assert len(seen) == 1


async def test_a_stream_comes_event_by_event_and_ends_with_done(gateway: Open) -> None:
    async with pretend_vllm([paced(LONG, 0.02)]) as server, gateway(server) as house:
        arrived: list[float] = []
        text = ""
        async with house.client.stream("POST", "/v1/chat/completions", json=HELLO | {"stream": True}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["x-swarm-endpoint"] == "a"
            async for piece in answer.aiter_text():
                arrived.append(asyncio.get_running_loop().time())
                text += piece
        assert "".join(e["choices"][0]["delta"].get("content") or "" for e in events(text)) == LONG
        assert text.endswith("data: [DONE]\n\n")
        assert arrived[-1] - arrived[0] > 0.1
        assert len(arrived) > 5


@pytest.mark.parametrize("asked", [True, False])
async def test_usage_comes_only_to_who_asked_for_it(gateway: Open, asked: bool) -> None:
    more = {"stream_options": {"include_usage": True}} if asked else {}
    async with pretend_vllm([LONG]) as server, gateway(server) as house:
        text = (await house.chat({"stream": True} | more)).text
        assert any(event.get("usage") for event in events(text)) is asked
        assert all(event["choices"] for event in events(text)) is not asked
        assert await house.metric("swarm_gateway_tokens_total") > 0


@pytest.mark.parametrize(
    "fault",
    [closed_early(LONG), without_done(LONG), unfinished(LONG), reset_midway(LONG), error_midway(LONG)],
    ids=["closed early", "no [DONE]", "no finish reason", "reset", "in-band error"],
)
async def test_a_torn_stream_never_looks_like_a_clean_one(gateway: Open, fault: Any) -> None:
    """Portkey-AI/gateway#1797, semantic-router#3063, vllm-project/vllm#52852: a cut one looked like a clean 200."""
    tools = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}
    async with pretend_vllm(lambda _: fault) as server, gateway(server, pool={"retries": 0}) as house:
        text = (await house.chat({"stream": True, "n": 2} | tools)).text
        told = [event["error"] for event in events(text) if "error" in event]
        assert len(told) == 1
        assert told[0]["code"] >= 500
        assert text.endswith("data: [DONE]\n\n")
        page = (await house.client.get("/metrics")).text
        assert 'key="anybody",request_class="default",status="torn"} 1.0' in page
        await house.quiet()


async def test_the_sdk_raises_on_a_torn_stream(gateway: Open) -> None:
    async with pretend_vllm(lambda _: reset_midway(LONG)) as server, gateway(server, pool={"retries": 0}) as house:
        client = openai.AsyncOpenAI(base_url=str(house.client.base_url) + "/v1", api_key="x", max_retries=0)
        with pytest.raises(openai.APIError, match="broke"):
            async for _ in await client.chat.completions.create(**HELLO, n=2, stream=True):  # type: ignore[call-overload]
                pass
        await client.close()


async def test_a_stream_of_text_is_gone_on_with_elsewhere(gateway: Open) -> None:
    """livekit/agents-js#2477, aden-hive#5923: sending it again repeats what was said."""
    first = iter([reset_midway(LONG)])

    def script(recorded: Any) -> Any:
        last = recorded.body["messages"][-1]
        if last["role"] == "assistant":  # asked to go on
            return LONG[len(last["content"]) :]
        return next(first, LONG)

    async with pretend_vllm(script) as one, pretend_vllm(script) as two, gateway(one, two) as house:
        text = (await house.chat({"stream": True})).text
        said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events(text) if e.get("choices"))
        assert not any("error" in event for event in events(text))
        assert said.split() == LONG.split()


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (error(422, "no such thing"), 422, "refused_upstream"),
        (error(401, "wrong key sk-upstream"), 502, "upstream_key"),
        (overflow(4096), 400, "context_length_exceeded"),
        (server_error(), 502, "upstream_failed"),
        (overload(0.5), 503, "overloaded"),
        (reset(), 502, "upstream_failed"),
    ],
)
async def test_each_refusal_of_a_server_has_its_own_status(gateway: Open, fault: Any, status: int, code: str) -> None:
    async with pretend_vllm(lambda _: fault) as server, gateway(server, pool={"retries": 0}) as house:
        answer = await house.chat()
        assert answer.status_code == status
        assert answer.json()["error"]["code"] == code
        assert "sk-upstream" not in answer.text


async def test_the_client_is_asked_not_to_retry_what_was_retried_already(gateway: Open) -> None:
    """Vibe-Trading#1208, openclaw#134281: retries of SDK, gateway and agent multiply."""
    async with pretend_vllm(lambda _: server_error()) as server, gateway(server, pool={"retries": 1}) as house:
        client = openai.AsyncOpenAI(base_url=str(house.client.base_url) + "/v1", api_key="x", max_retries=5)
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**HELLO)  # type: ignore[call-overload]
        await client.close()
        assert len(server.requests) == 2


async def test_another_endpoint_answers_where_one_fails(gateway: Open) -> None:
    """vllm-project/production-stack#382, #939: no second backend was tried."""
    async with (
        pretend_vllm(lambda _: server_error()) as bad,
        pretend_vllm() as good,
        gateway(bad, good) as house,
    ):
        answers = [await house.chat(**{"x-session-id": f"s{number}"}) for number in range(6)]
        assert {answer.status_code for answer in answers} == {200}
        assert await house.metric("swarm_gateway_retries_total") == len(bad.requests) > 0


@pytest.mark.slow
async def test_200_clients_that_hang_up_leave_no_count_behind(gateway: Open) -> None:
    """vllm-project/router#215: the counter of requests in flight leaked on disconnects, about 400 a day and worker."""
    async with pretend_vllm(lambda _: Slow(0.15, paced(LONG, 0.05))) as server, gateway(server) as house:
        body = json.dumps(HELLO | {"stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)

        async def hang_up(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", house.here.port)
            writer.write(head + body)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02 + number / 400):  # before, at and after the first byte
                    await reader.read(200)
                    await asyncio.sleep(1)
            writer.transport.abort()

        await asyncio.gather(*(hang_up(number) for number in range(200)))
        await house.quiet()
        async with asyncio.timeout(5):
            while server.running:  # noqa: ASYNC110  it notices in its own time
                await asyncio.sleep(0.01)
        assert await house.metric("swarm_gateway_disconnects_total") > 150
        assert (await house.chat()).status_code == 200


async def test_a_client_that_hangs_up_takes_its_request_out_of_the_server_at_once(gateway: Open) -> None:
    async with pretend_vllm(lambda _: hang()) as server, gateway(server) as house:
        with suppress(httpx.ReadTimeout):
            await house.client.post("/v1/chat/completions", json=HELLO, timeout=0.3)
        async with asyncio.timeout(2):
            while server.dropped == 0:  # noqa: ASYNC110  another process would be asked the same way
                await asyncio.sleep(0.01)
        await house.quiet()


async def test_a_stalled_server_ends_in_an_error_within_the_deadline(gateway: Open) -> None:
    """vllm-project/production-stack#749, maximhq/bifrost#5504: a stream hung for ever."""
    async with pretend_vllm(lambda _: stalled(LONG)) as server, gateway(server, pool={"retries": 0}) as house:
        text = (await house.chat({"stream": True}, **{"x-request-deadline": "0.5"})).text
        assert any("error" in event for event in events(text))
        await house.quiet()


async def test_a_slow_reader_is_not_buffered_for_and_in_the_end_cut_off(gateway: Open) -> None:
    big = ("w" * 4000 + " ") * 4000  # beyond what the sockets between them hold
    async with pretend_vllm(lambda _: big) as server, gateway(server, stall_timeout=0.5) as house:
        body = json.dumps(HELLO | {"stream": True}).encode()
        with socket.create_connection(("127.0.0.1", house.here.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
            await asyncio.get_running_loop().sock_sendall(client, head + body)
            async with asyncio.timeout(5):
                while not await house.metric("swarm_gateway_disconnects_total"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await house.quiet()
        assert await house.metric("swarm_gateway_disconnects_total") == 1


async def test_completions_go_the_same_way(gateway: Open) -> None:
    async with pretend_vllm(["yes"]) as server, gateway(server) as house:
        answer = await house.client.post("/v1/completions", json={"model": "small", "prompt": "Is it?"})
        assert answer.json()["choices"][0]["text"] == "yes"
        assert server.requests[-1].path == "/v1/completions"


async def test_removed_fields_are_translated_for_the_server(gateway: Open) -> None:
    """vllm-project/vllm#53975: guided_json is ignored with a 200."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    async with pretend_vllm() as server, gateway(server) as house:
        answer = await house.chat({"guided_json": schema})
        assert json.loads(answer.json()["choices"][0]["message"]["content"]).keys() == {"a"}
        assert "guided_json" not in server.requests[-1].body


async def test_auto_answers_through_a_tier_and_says_why(gateway: Open) -> None:
    async with pretend_vllm() as one, pretend_vllm() as two, gateway(one, two, tiers=("small", "large")) as house:
        for stream in (False, True):
            answer = await house.chat({"model": "auto", "stream": stream, "top_k": 3})
            assert answer.status_code == 200
            assert answer.headers["x-swarm-tier"] == "small"
            assert answer.headers["x-swarm-why"].startswith("auto")
        assert one.requests[-1].body["top_k"] == 3


async def test_auto_climbs_when_the_conversation_is_too_long(gateway: Open) -> None:
    """SWE-agent/mini-swe-agent#721: an overflow ended the run."""
    async with (
        pretend_vllm(window=64) as one,
        pretend_vllm(window=8192) as two,
        gateway(one, two, tiers=("small", "large")) as house,
    ):
        answer = await house.chat({"model": "auto", "messages": [{"role": "user", "content": "word " * 300}]})
        assert answer.status_code == 200
        assert answer.headers["x-swarm-tier"] == "large"


VOTE = {"virtual": {"voters": {"kind": "vote", "tiers": ["small"], "samples": 3}}}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_virtual_model_answers_in_the_same_shape(gateway: Open, stream: bool) -> None:
    async with pretend_vllm(lambda _: "42") as server, gateway(server, pool=VOTE) as house:
        answer = await house.chat({"model": "voters", "stream": stream})
        assert answer.status_code == 200, answer.text
        if stream:
            told = [event["choices"][0]["delta"].get("content") or "" for event in events(answer.text)]
        else:
            told = [answer.json()["choices"][0]["message"]["content"]]
        assert "".join(told) == "42"


async def test_a_virtual_model_refuses_by_name_what_it_cannot_honour(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server, pool=VOTE) as house:
        answer = await house.chat({"model": "voters", "top_k": 5})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "top_k"


async def test_whoever_hangs_up_before_the_end_pays_for_what_was_said(gateway: Open) -> None:
    key = {"name": "anna", "sha256": hashed("sk-anna"), "tokens_per_day": 100_000}
    async with pretend_vllm([paced("w " * 2000, 0.0005)]) as server, gateway(server, keys=[key]) as house:
        auth, body = {"authorization": "Bearer sk-anna"}, HELLO | {"stream": True}
        async with house.client.stream("POST", "/v1/chat/completions", json=body, headers=auth) as answer:
            lines = answer.aiter_lines()
            pieces = 0
            while pieces < 500:
                pieces += (await anext(lines)).startswith("data")
        await house.quiet()
        assert house.service.keys.caller("Bearer sk-anna").budgets[0][1].wait(100_000 - 400) > 0


async def test_half_a_surrogate_pair_goes_to_the_server_as_it_came(gateway: Open) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        raw = rb'{"model": "small", "messages": [{"role": "user", "content": "\ud83d"}]}'
        assert (await house.client.post("/v1/chat/completions", content=raw)).status_code == 200
        assert server.requests[-1].body["messages"][0]["content"] == "\ud83d"


@pytest.mark.parametrize("name", ["host", "origin"])
async def test_web_page_of_another_name_is_kept_out_where_there_are_no_keys(gateway: Open, name: str) -> None:
    async with pretend_vllm() as server, gateway(server) as house:
        for foreign in ("evil.example", "http://evil.example:8080", "null", "[::ffff:1.2.3.4]"):
            refused = await house.chat(**{name: foreign})
            assert refused.status_code == 403
            assert "pool.gateway.keys" in refused.text
        assert server.requests == []
        for own in ("localhost:3000", "127.0.0.1", "[::1]:80", "app.localhost"):
            assert (await house.chat(**{name: own if name == "host" else f"http://{own}"})).status_code == 200


@pytest.mark.parametrize(("tools", "words"), [("text", "no tool call"), ("refused", "--tool-call-parser")])
async def test_tools_asked_of_a_tier_without_them_are_refused_with_the_flag_that_enables_them(
    gateway: Open, tools: Any, words: str
) -> None:
    asked = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}
    async with pretend_vllm(tools=tools) as one, pretend_vllm(tools=tools) as two, gateway(one, two) as house:
        for model in ("small", "pretend"):
            answer = await house.chat({"model": model, **asked})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (400, "unsupported", "tools")
            for told in ("a, b: ", "--enable-auto-tool-choice --tool-call-parser NAME", model):
                assert told in error["message"]
