"""The pretend server streams, breaks and counts over real HTTP as vLLM does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pool.pretend.script import Scripted
from pool.testing import (
    EngineSettings,
    PretendServer,
    Slow,
    call,
    closed_early,
    commented,
    error_midway,
    paced,
    pretend_vllm,
    reset_midway,
    split,
    stalled,
    torn_call,
    unfinished,
    without_details,
    without_done,
    without_usage,
)
from pool.types import CANARY_TOOL, Choice

CHAT = {"model": "pretend", "messages": [{"role": "user", "content": "hello"}]}
STREAM = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
TEXT = {"model": "pretend", "prompt": "hello"}
FAST = EngineSettings(block_size=4, num_gpu_blocks=512, step_base=0.001, step_per_sequence=0.0)


@asynccontextmanager
async def serving(replies: Any = None, **fields: Any) -> AsyncIterator[tuple[PretendServer, httpx.AsyncClient]]:
    async with pretend_vllm(replies, **fields) as server, httpx.AsyncClient(base_url=server.url, timeout=20) as client:
        yield server, client


def events(raw: str) -> list[Any]:
    told = [line.removeprefix("data: ") for line in raw.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in told]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.005)


async def streamed(scripted: Scripted, body: dict[str, Any] = STREAM) -> tuple[list[Any], str]:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    async with serving([scripted]) as (_, client):
        raw = (await client.post(path, json=body)).text
    return events(raw), raw


async def test_chat_stream_has_role_pieces_finish_usage_and_terminator() -> None:
    found, _ = await streamed("one two three")
    deltas = [choice["delta"] for chunk in found[:-1] for choice in chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [delta["content"] for delta in deltas[1:]] == ["one ", "two ", "three"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in found[:4]] == [None, None, None, "stop"]
    assert found[-2]["choices"] == []
    assert found[-2]["usage"]["completion_tokens"] == 3
    assert found[-1] == "[DONE]"


async def test_stream_tells_no_usage_that_was_not_asked_for() -> None:
    found, _ = await streamed("one", {**CHAT, "stream": True})
    assert all("usage" not in chunk for chunk in found[:-1])


async def test_calls_and_reasoning_are_streamed_in_pieces_that_add_up() -> None:
    said = call("look", path="a b").model_copy(update={"reasoning": "let me see"})
    found, _ = await streamed(said)
    deltas = [choice["delta"] for chunk in found[:-1] for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "let me see"
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    assert (parts[0]["id"], parts[0]["function"]["name"]) == ("call-look", "look")
    assert json.loads("".join(part["function"]["arguments"] for part in parts)) == {"path": "a b"}
    assert len(parts) > 3
    assert found[-3]["choices"][0]["finish_reason"] == "tool_calls"


async def test_openai_sdk_reads_the_streams() -> None:
    async with (
        serving(["one two", "three four"]) as (server, _),
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as sdk,
    ):
        chat = await sdk.chat.completions.create(
            model="pretend", messages=[{"role": "user", "content": "x"}], stream=True, logprobs=True, top_logprobs=2
        )
        pieces = [piece async for piece in chat]
        said = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        text = await sdk.completions.create(model="pretend", prompt="x", stream=True)
        words = "".join([piece.choices[0].text async for piece in text])
    assert (said, words) == ("one two", "three four")
    assert pieces[1].choices[0].logprobs is not None
    assert len(pieces[1].choices[0].logprobs.content[0].top_logprobs) == 2


async def test_several_samples_are_streamed_side_by_side_by_index() -> None:
    found, _ = await streamed("one two", {**STREAM, "n": 3})
    pieces = [choice for chunk in found[:-1] for choice in chunk["choices"]]
    assert [piece["index"] for piece in pieces[:6]] == [0, 0, 1, 1, 2, 2]
    assert sorted(piece["index"] for piece in pieces if piece["finish_reason"]) == [0, 1, 2]
    assert found[-2]["usage"]["completion_tokens"] == 6


async def test_stream_interval_gathers_tokens_after_the_first() -> None:
    async with serving(["a b c d e f g"], stream_interval=3) as (_, client):
        found = events((await client.post("/v1/chat/completions", json=STREAM)).text)
    said = [choice["delta"].get("content") for chunk in found[:-1] for choice in chunk["choices"]]
    assert said[1:] == ["a ", "b c d ", "e f g"]


async def test_head_comes_before_the_first_token() -> None:
    """As with vLLM: a client that waits for headers alone learns nothing of the queue."""
    async with serving(["ok"]) as (server, client):
        server.hold()
        async with asyncio.timeout(60), client.stream("POST", "/v1/chat/completions", json=STREAM) as answer:
            assert answer.status_code == 200
            server.release()
            assert b"ok" in await answer.aread()


@pytest.mark.parametrize(
    ("fault", "finished", "done"),
    [(closed_early(), False, False), (unfinished(), False, True), (without_done("a b"), True, False)],
    ids=["closed", "unfinished", "no_done"],
)
async def test_torn_stream_looks_like_a_clean_one_to_http(fault: Scripted, finished: bool, done: bool) -> None:
    """Portkey-AI/gateway#1797, vllm-project/semantic-router#3063: status and end of the body prove nothing."""
    found, _ = await streamed(fault)
    reasons = [choice["finish_reason"] for chunk in found if chunk != "[DONE]" for choice in chunk["choices"]]
    assert (any(reasons), found[-1] == "[DONE]") == (finished, done)


async def test_error_comes_inside_a_stream_that_began_with_200_and_then_the_terminator() -> None:
    found, _ = await streamed(error_midway())
    assert found[-2]["error"]["code"] == 500
    assert found[-1] == "[DONE]"


@pytest.mark.parametrize("body", [STREAM, CHAT], ids=["stream", "whole"])
async def test_reset_midway_breaks_the_connection_after_a_part(body: dict[str, Any]) -> None:
    async with (
        serving([reset_midway("one two three")]) as (_, client),
        client.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status_code == 200
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await answer.aread()


async def test_stalled_stream_says_a_part_and_then_nothing() -> None:
    async with (
        serving([stalled("one two three")]) as (_, client),
        client.stream("POST", "/v1/chat/completions", json=STREAM) as answer,
    ):
        parts, got = answer.aiter_bytes(), b""
        while b"two" not in got:
            got += await anext(parts)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                got += await anext(parts)
    assert b"three" not in got


async def test_split_and_commented_streams_say_the_same() -> None:
    plain, _ = await streamed("one zwei 三")
    for odd in (split("one zwei 三", 3), commented("one zwei 三"), split(commented("one zwei 三"), 7, "\r\n")):
        found, raw = await streamed(odd)
        assert found == [chunk if chunk == "[DONE]" else {**chunk, "id": found[0]["id"]} for chunk in plain]
    assert ": keep-alive" in raw


async def test_split_stream_arrives_in_pieces_that_cut_events() -> None:
    async with (
        serving([split("one two", 5)]) as (_, client),
        client.stream("POST", "/v1/chat/completions", json=STREAM) as answer,
    ):
        parts = [part async for part in answer.aiter_raw()]
    assert len(parts) > 20


async def test_usage_may_be_missing_or_bare() -> None:
    assert all("usage" not in chunk for chunk in (await streamed(without_usage("a")))[0][:-1])
    bare = (await streamed(without_details("a")))[0][-2]["usage"]
    assert "prompt_tokens_details" not in bare
    async with serving([without_details("a"), without_usage("a")]) as (_, client):
        answers = [(await client.post("/v1/chat/completions", json=CHAT)).json() for _ in range(2)]
    assert answers[0]["usage"]["prompt_tokens_details"] is None
    assert "usage" not in answers[1]


async def test_torn_call_claims_to_be_whole() -> None:
    """vllm-project/vllm#53269: the arguments are no JSON and the finish reason says tool_calls."""
    async with serving([torn_call("look", path="a")]) as (_, client):
        choice = (await client.post("/v1/chat/completions", json=CHAT)).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])


async def test_wedged_server_is_healthy_by_its_word_and_takes_no_step() -> None:
    """vllm-project/vllm#17972 and others: health stays 200 while the engine hangs."""
    for fields in ({}, {"engine": FAST}):
        async with serving([paced("a b c d e f", 0.01)] if not fields else None, **fields) as (server, client):
            body = {**STREAM, "max_tokens": 200}
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                parts = answer.aiter_raw()
                await anext(parts)
                server.wedge()
                await asyncio.sleep(0.05)
                before = server.numbers().steps
                await asyncio.sleep(0.1)
                assert server.numbers().steps == before
                assert server.numbers().running == 1
                assert (await client.get("/health")).status_code == 200
                server.unwedge()
                rest = [part async for part in parts]
            assert rest[-1].endswith(b"data: [DONE]\n\n")


async def test_comment_lines_keep_a_silent_stream_alive() -> None:
    async with serving([Slow(0.1, "ok")], keep_alive=0.02) as (_, client):
        raw = (await client.post("/v1/chat/completions", json=STREAM)).text
    assert raw.count(": keep-alive") >= 2
    assert events(raw)[-1] == "[DONE]"


async def test_busy_server_answers_its_probes_late() -> None:
    async with serving([Slow(5)], probe_delay=0.1) as (server, client):
        waiting = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        await until(lambda: server.running)
        started = time.monotonic()
        assert (await client.get("/health")).status_code == 200
        assert time.monotonic() - started >= 0.1
        waiting.cancel()


async def test_small_routes_answer_as_vllms() -> None:
    async with serving(window=99) as (_, client):
        told = [(await client.get(path)) for path in ("/version", "/load", "/kv_event_sources", "/is_sleeping")]
        counted = (await client.post("/tokenize", json={"model": "pretend", "prompt": "one two, three"})).json()
        chat = (await client.post("/tokenize", json=CHAT)).json()
    assert [answer.status_code for answer in told] == [200, 200, 200, 404]
    assert told[1].json() == {"server_load": 0}
    assert (counted["count"], len(counted["tokens"]), counted["max_model_len"]) == (4, 4, 99)
    assert chat["count"] > 1


async def test_request_id_becomes_the_answers_id_and_load_is_told_where_asked() -> None:
    async with serving(["a", "b"]) as (_, client):
        headers = {"X-Request-Id": "abc-1", "endpoint-load-metrics-format": "TEXT"}
        one = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
        two = await client.post("/v1/completions", json=TEXT, headers={"X-Request-Id": "abc-2"})
    assert (one.json()["id"], two.json()["id"]) == ("chatcmpl-abc-1", "cmpl-abc-2")
    assert one.headers["endpoint-load-metrics"].startswith("TEXT named_metrics.kv_cache_usage_perc=0.0")
    assert "endpoint-load-metrics" not in two.headers


async def test_completion_logprobs_line_up_with_the_text() -> None:
    said = Choice(content="one two", logprobs=(-0.5, -1.5))
    async with serving([said]) as (_, client):
        answer = (await client.post("/v1/completions", json={**TEXT, "logprobs": 1})).json()["choices"][0]
    assert answer["logprobs"]["token_logprobs"] == [-0.5, -1.5]
    assert answer["logprobs"]["text_offset"] == [0, 4]


async def test_metrics_page_parses_and_has_vllms_names() -> None:
    async with serving(engine=FAST) as (_, client):
        await client.post("/v1/completions", json={**TEXT, "max_tokens": 5})
        page = (await client.get("/metrics")).text
    samples = {s.name: s for family in text_string_to_metric_families(page) for s in family.samples}
    assert samples["vllm:generation_tokens_total"].value == 5
    assert samples["vllm:iteration_tokens_total_count"].value == 5
    assert samples["vllm:cache_config_info"].labels["kv_cache_size_tokens"] == "2048"
    assert samples["vllm:time_to_first_token_seconds_count"].value == 1
    wanted = "num_preemptions_total prefix_cache_hits_total request_success_total admission_rejections_total"
    assert {f"vllm:{name}" for name in wanted.split()} <= samples.keys()


async def test_engine_makes_requests_take_their_time_and_tells_what_was_cached() -> None:
    slow = EngineSettings(
        block_size=16, num_gpu_blocks=512, step_base=0.002, step_per_sequence=0, prefill_per_token=1e-4
    )
    async with serving(engine=slow) as (_, client):
        body = {"model": "pretend", "prompt": "x" * 4000, "max_tokens": 10}
        answers, seconds = [], []
        for _ in range(2):
            started = time.monotonic()
            answers.append((await client.post("/v1/completions", json=body)).json())
            seconds.append(time.monotonic() - started)
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [10, 10]
    assert answers[0]["choices"][0]["finish_reason"] == "length"
    assert [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers] == [0, 992]
    assert seconds[0] >= 10 * 0.002 + 1000 * 1e-4
    assert seconds[1] < seconds[0] - 0.05


async def test_next_turn_of_a_chat_finds_the_answer_of_the_turn_before() -> None:
    async with serving(engine=FAST) as (_, client):
        messages = [{"role": "system", "content": "s" * 200}, {"role": "user", "content": "u" * 100}]
        body = {"model": "pretend", "messages": messages, "vllm_xargs": {"output_tokens": 40}, "max_tokens": 99}
        first = (await client.post("/v1/chat/completions", json=body)).json()
        assert first["choices"][0]["finish_reason"] == "stop"
        body["messages"] = [*messages, first["choices"][0]["message"], {"role": "user", "content": "and?"}]
        second = (await client.post("/v1/chat/completions", json=body)).json()
    known = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
    assert known - 8 <= second["usage"]["prompt_tokens_details"]["cached_tokens"] <= known


async def test_salted_prompts_do_not_share_a_cache() -> None:
    async with serving(engine=FAST) as (_, client):
        cached = []
        for salt in ("a", "a", "b"):
            body = {"model": "pretend", "prompt": "x" * 400, "max_tokens": 1, "cache_salt": salt}
            usage = (await client.post("/v1/completions", json=body)).json()["usage"]
            cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 96, 0]


async def test_full_engine_refuses_with_503_and_no_word_of_when() -> None:
    full = EngineSettings(num_gpu_blocks=512, max_num_queued_reqs=1, step_base=0.01)
    async with serving(engine=full) as (server, client):
        first = asyncio.create_task(client.post("/v1/completions", json={**TEXT, "max_tokens": 20}))
        await until(lambda: server.numbers().running)
        refused = await client.post("/v1/completions", json=TEXT)
        assert (await first).status_code == 200
        page = (await client.get("/metrics")).text
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "ServiceUnavailableError")
    assert "retry-after" not in refused.headers
    assert 'vllm:admission_rejections_total{engine="0",model_name="pretend",reason="max_num_queued_reqs"} 1' in page


async def test_client_that_hangs_up_frees_the_engine() -> None:
    async with serving(engine=FAST) as (server, client):
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/completions", json={**TEXT, "max_tokens": 1500}, timeout=0.1)
        await until(lambda: not server.numbers().running)
        assert server.numbers().kv_usage == 0.0
        assert server.dropped == 1


async def test_cold_restart_forgets_the_cache_and_starts_counting_anew_on_the_same_port() -> None:
    for fields in ({}, {"engine": FAST}):
        async with serving(**fields) as (server, client):
            body = {"model": "pretend", "prompt": "word " * 60, "max_tokens": 1}
            answers = [(await client.post("/v1/completions", json=body)).json() for _ in range(2)]
            url = server.url
            await server.restart_cold()
            assert server.url == url
            assert server.numbers().generated == 0
            answers.append((await client.post("/v1/completions", json=body)).json())
        cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
        assert cached[0] == cached[2] == 0
        assert cached[1] > 0


async def test_stop_ends_engine_requests_too() -> None:
    async with asyncio.timeout(5), serving(engine=FAST) as (server, client):
        asking = asyncio.create_task(client.post("/v1/completions", json={**TEXT, "max_tokens": 1500}))
        await until(lambda: server.running)
        await server.stop()
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await asking


async def test_canaries_are_held_apart_from_all_counts_and_from_the_script() -> None:
    body = {"model": "pretend", "prompt": "word " * 40, "user": CANARY_TOOL, "logprobs": 1}
    async with serving(["scripted"]) as (server, client):
        asked = [(await client.post("/v1/completions", json=body)).json() for _ in range(2)]
        said = (await client.post("/v1/chat/completions", json=CHAT)).json()
        numbers = server.numbers()
    assert said["choices"][0]["message"]["content"] == "scripted"
    assert asked[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert asked[0]["choices"][0]["logprobs"] is not None
    assert (len(server.requests), len(server.probes), server.peak) == (1, 2, 1)
    assert (numbers.steps, numbers.finished, numbers.prompt_tokens) == (1, {"stop": 1}, 1)
