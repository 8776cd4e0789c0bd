"""Facts about a model server that the pool relies on, asked of the pretend vLLM (with a script, and with its engine),
of llama.cpp and of a real vLLM."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from pool.config import EmbeddedConfig, EndpointConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.endpoint import Endpoint
from pool.errors import ContextOverflowError, NoEndpointError, PermanentError
from pool.pretend.minds import FILLER
from pool.router import Pool
from pool.testing import EngineSettings, Recorded, Scripted, Slow, pretend_vllm
from pool.types import ChatRequest, CompletionRequest, EndpointStatus, Message, ToolSpec
from pool.wire.metrics import Snapshot

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800)]

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
TOOL = ToolSpec(name="look", description="look", parameters={"type": "object", "properties": {}})
LONG = 400  # max_tokens of a request that outlives its test


@dataclass(frozen=True)
class Subject:
    """The server under test and a pool that holds it alone."""

    config: EndpointConfig
    pool: Pool

    async def ask(self, words: str, **more: Any) -> Any:
        """One chat turn."""
        said = (Message(role="user", content=words),)
        return await self.pool.chat(ChatRequest.model_validate({**self._common(), "messages": said, **more}))

    async def complete(self, prompt: str, **more: Any) -> Any:
        """One completion."""
        return await self.pool.complete(CompletionRequest.model_validate({**self._common(), "prompt": prompt, **more}))

    @property
    def status(self) -> EndpointStatus:
        return self.pool.status()[0]

    async def snapshot(self) -> Snapshot:
        """A fresh scrape."""
        async with Endpoint(self.config) as endpoint:
            pulse = await endpoint.probe()
        assert pulse.snapshot is not None
        return pulse.snapshot

    async def until(self, holds: Callable[[Snapshot], bool], seconds: float = 60) -> Snapshot:
        """The first scrape for which something holds."""
        async with asyncio.timeout(seconds):
            while not holds(snapshot := await self.snapshot()):  # noqa: ASYNC110  a server has no event for us
                await asyncio.sleep(0.05)
        return snapshot

    def client(self) -> httpx.AsyncClient:
        """A client of the server itself."""
        key = self.config.api_key
        headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
        return httpx.AsyncClient(base_url=self.config.url, headers=headers, timeout=120)

    async def raw(self, path: str, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        """What the server itself says to a body that the pool would not send."""
        async with self.client() as client:
            return await client.post(path, json={"model": self.status.model, **body}, headers=headers)

    async def get(self, path: str) -> httpx.Response:
        """One of its small routes."""
        async with self.client() as client:
            return await client.get(path)

    async def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a stream, the terminator as its own word."""
        answer = await self.raw(path, stream=True, **body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        told = [line[len("data: ") :] for line in answer.text.splitlines() if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in told]

    def _common(self) -> dict[str, Any]:
        return {"tier": self.config.tier, "session": "contract", "max_tokens": 16, "deadline": 120}


def script(recorded: Recorded) -> Scripted | None:
    """Makes the pretend server as talkative as a model: it counts, and a long answer takes its time."""
    if {"response_format", "structured_outputs"} & recorded.body.keys():
        return None
    counted = ", ".join(map(str, range(5, 100)))
    return Slow(30, counted) if recorded.body["max_tokens"] == LONG else counted


def engine_script(recorded: Recorded) -> Scripted | None:
    """The same for the engine, which takes its time by itself."""
    told = script(recorded)
    return FILLER * LONG if isinstance(told, Slow) else told


ENGINE = EngineSettings(num_gpu_blocks=512, max_num_seqs=8, step_base=0.01, prefill_per_token=0.001)


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        "pretend",
        "engine",
        pytest.param("llamacpp", marks=pytest.mark.model),
        pytest.param("vllm", marks=pytest.mark.vllm),
    ],
)
async def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Subject]:
    """Each of the servers, up."""
    kind = request.param
    if kind == "pretend":
        async with pretend_vllm(script, window=2048, tools="refused") as server:
            async for found in _joined(EndpointConfig(name="pretend", url=server.url)):
                yield found
    elif kind == "engine":
        async with pretend_vllm(engine_script, window=2048, tools="refused", engine=ENGINE) as server:
            async for found in _joined(EndpointConfig(name="engine", url=server.url)):
                yield found
    elif kind == "llamacpp":
        log: Path = tmp_path_factory.mktemp("llama") / "log"
        async with serve_embedded(EmbeddedConfig(parallel=4), log=log, environ=os.environ) as config:
            async for found in _joined(config.model_copy(update={"tools": "auto"})):
                yield found
    else:
        async for found in _joined(EndpointConfig(name="vllm", url=request.getfixturevalue("vllm_url"))):
            yield found


async def _joined(config: EndpointConfig) -> AsyncIterator[Subject]:
    # canaries=False: an answer to a question that no test asked would move the counters that the tests watch
    settings = PoolConfig(endpoints=(config,), retries=1, probe_interval=0.5, canaries=False)
    async with Pool(settings) as pool:
        await pool.ready(config.tier, 60)
        yield Subject(config, pool)


@pytest.fixture
def vllm(subject: Subject) -> Subject:
    """Those that are a vLLM or play one."""
    if subject.status.kind != "vllm":
        pytest.skip("a fact about vLLM alone")
    return subject


@pytest.fixture
def engine(vllm: Subject) -> Subject:
    """Those that have an engine: real, or its model."""
    if vllm.config.name == "pretend":
        pytest.skip("a script takes no time and fills no cache")
    return vllm


async def test_it_is_discovered(subject: Subject) -> None:
    seen = subject.status
    assert seen.state == "up"
    assert seen.kind == ("llamacpp" if subject.config.name == "embedded" else "vllm")
    assert seen.model
    assert seen.window is not None
    assert seen.window >= 2048


async def test_it_answers_a_chat_turn_and_counts_tokens(subject: Subject) -> None:
    reply = await subject.ask("Count to ten.", temperature=0.0)
    assert reply.choices[0].content
    assert reply.usage.prompt_tokens > 0
    assert 0 < reply.usage.completion_tokens <= 16
    assert reply.model == subject.status.model


async def test_it_gives_as_many_samples_as_asked_and_counts_them_all(subject: Subject) -> None:
    reply = await subject.complete("1, 2, 3, 4,", n=8, max_tokens=6, temperature=0.9)
    assert len(reply.choices) == 8
    assert 8 * 4 <= reply.usage.completion_tokens <= 8 * 6 + 8


async def test_it_gives_several_chat_samples(subject: Subject) -> None:
    assert len((await subject.ask("Count to ten.", n=3, temperature=0.9)).choices) == 3


async def test_it_stops_at_max_tokens_and_says_so(subject: Subject) -> None:
    reply = await subject.complete("1, 2, 3, 4,", max_tokens=3)
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 3)


async def test_it_stops_before_a_stop_text(subject: Subject) -> None:
    reply = await subject.complete("1, 2, 3, 4,", stop=(",",), temperature=0.0)
    assert reply.choices[0].finish_reason == "stop"
    assert reply.choices[0].content
    assert "," not in reply.choices[0].content


async def test_ceiling_above_the_window_is_only_a_ceiling(subject: Subject) -> None:
    reply = await subject.complete("1, 2, 3, 4,", stop=(",",), max_tokens=10**6, temperature=0.0)
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("way", ["ask", "complete"])
async def test_it_keeps_a_json_schema(subject: Subject, way: str) -> None:
    send = subject.ask if way == "ask" else subject.complete
    reply = await send("The colour as JSON:", json_schema=SCHEMA, n=4, max_tokens=100, temperature=0.9)
    for choice in reply.choices:
        assert json.loads(choice.content)["colour"] in ("red", "green")


async def test_schema_that_is_none_is_refused(subject: Subject) -> None:
    with pytest.raises(PermanentError):
        await subject.ask("hi", json_schema={"type": "nonsense"})


async def test_field_of_another_kind_is_ignored_without_a_word(subject: Subject) -> None:
    """Why the pool translates: such a request succeeds, and its answer follows no schema."""
    foreign = {"structured_outputs": {"json": SCHEMA}} if subject.status.kind == "llamacpp" else {"json_schema": SCHEMA}
    answer = await subject.raw("/v1/completions", prompt="1, 2, 3, 4,", max_tokens=8, temperature=0, **foreign)
    assert answer.status_code == 200
    assert not answer.json()["choices"][0]["text"].lstrip().startswith("{")


@pytest.mark.parametrize("way", ["ask", "complete"])
async def test_prompt_past_the_window_is_an_overflow_that_tells_the_window(subject: Subject, way: str) -> None:
    send = subject.ask if way == "ask" else subject.complete
    with pytest.raises(ContextOverflowError) as caught:
        await send("word " * (2 * (subject.status.window or 0)))
    assert caught.value.window == subject.status.window


async def test_repeated_prompt_is_told_as_cached(subject: Subject) -> None:
    prompt = f"{time.time()} " + "The quick brown fox jumps over the lazy dog. " * 60
    first = await subject.complete(prompt, max_tokens=2)
    second = await subject.complete(prompt, max_tokens=2)
    assert first.usage.cached_tokens is not None
    assert second.usage.cached_tokens > first.usage.cached_tokens
    assert second.usage.cached_tokens <= second.usage.prompt_tokens == first.usage.prompt_tokens


async def test_its_counters_move_with_its_work_and_its_gauges_come_back(subject: Subject) -> None:
    before = await subject.until(lambda s: s.running == 0)
    reply = await subject.complete("1, 2, 3, 4,", max_tokens=8)
    after = await subject.until(lambda s: s.generated_tokens != before.generated_tokens)
    assert after.generated_tokens is not None
    assert before.generated_tokens is not None
    assert after.generated_tokens - before.generated_tokens >= reply.usage.completion_tokens - 1
    assert (after.progress != before.progress) is (subject.status.kind == "vllm")
    assert (await subject.until(lambda s: s.running == 0)).waiting == 0


async def test_cancelled_request_is_dropped_by_the_server_too(subject: Subject) -> None:
    await subject.until(lambda s: s.running == 0)
    task = asyncio.create_task(subject.complete("Once upon a time", max_tokens=LONG, n=2))
    await subject.until(lambda s: bool(s.running))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    started = time.monotonic()
    await subject.until(lambda s: s.running == 0)
    assert time.monotonic() - started < 10
    assert subject.status.in_flight == 0


async def test_more_requests_than_it_decodes_at_once_all_come_back(subject: Subject) -> None:
    replies = await asyncio.gather(*(subject.complete(f"{i}, {i + 1},", max_tokens=4) for i in range(16)))
    assert all(reply.choices[0].content and reply.attempts == 1 for reply in replies)


async def test_tool_calls_that_do_not_work_are_found_out(subject: Subject) -> None:
    """None of them speaks them as set up here; vLLM refuses, llama.cpp answers in text."""
    assert await subject.pool.native_tools(subject.config.tier) is False
    assert subject.status.native_tools is False
    with pytest.raises(PermanentError, match="as text"):
        await subject.ask("look around", tools=(TOOL,))


async def test_forced_tool_call_needs_a_parser_as_well(vllm: Subject) -> None:
    function = TOOL.model_dump()
    for choice in ("required", {"type": "function", "function": {"name": TOOL.name}}):
        asked = {**CHAT, "tools": [{"type": "function", "function": function}], "tool_choice": choice}
        answer = await vllm.raw("/v1/chat/completions", **asked)
        assert answer.status_code == 400
        assert "requires --tool-call-parser to be set" in answer.json()["error"]["message"]


async def test_model_that_it_does_not_serve_is_named_with_those_it_does(subject: Subject) -> None:
    other = PoolConfig(endpoints=(subject.config.model_copy(update={"model": "nope"}),), retries=0)
    async with Pool(other) as pool:
        with pytest.raises(NoEndpointError, match=f"{subject.status.model}, not nope"):
            await pool.ready(subject.config.tier, 1)


CHAT = {"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 6, "temperature": 0}
TEXT = {"prompt": "1, 2, 3, 4,", "max_tokens": 6, "temperature": 0}
USAGE = {"stream_options": {"include_usage": True}}
METRICS = [
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_waiting_by_reason",
    "kv_cache_usage_perc",
    "num_preemptions_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "generation_tokens_total",
    "request_success_total",
    "admission_rejections_total",
    "engine_sleep_state",
    "cache_config_info",
    "iteration_tokens_total_count",
    "time_to_first_token_seconds_count",
]


async def test_chat_stream_begins_with_a_role_and_ends_with_finish_usage_and_terminator(subject: Subject) -> None:
    *found, last = await subject.events("/v1/chat/completions", **CHAT, **USAGE)
    choices = [choice for event in found for choice in event["choices"]]
    assert choices[0]["delta"]["role"] == "assistant"
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    assert "".join(choice["delta"].get("content") or "" for choice in choices)
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["completion_tokens"] == 6
    assert last == "[DONE]"


async def test_completion_stream_tells_each_samples_end_once_and_by_its_index(subject: Subject) -> None:
    *found, last = await subject.events("/v1/completions", **{**TEXT, "n": 2, "temperature": 0.9}, **USAGE)
    ends = [choice["index"] for event in found for choice in event["choices"] if choice["finish_reason"]]
    assert sorted(ends) == [0, 1]
    assert last == "[DONE]"


async def test_stream_that_was_not_asked_for_usage_tells_none(vllm: Subject) -> None:
    *found, _ = await vllm.events("/v1/chat/completions", **CHAT)
    assert not [event for event in found if event.get("usage")]


async def test_streamed_usage_tells_cached_tokens(vllm: Subject) -> None:
    prompt = f"{time.time()} " + "The quick brown fox jumps over the lazy dog. " * 60
    for _ in range(2):
        *found, _ = await vllm.events("/v1/completions", prompt=prompt, max_tokens=2, **USAGE)
    assert found[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_streamed_logprobs_come_with_their_tokens(vllm: Subject) -> None:
    *found, _ = await vllm.events("/v1/chat/completions", **CHAT, logprobs=True, top_logprobs=2)
    told = [one for event in found for c in event["choices"] if c.get("logprobs") for one in c["logprobs"]["content"]]
    assert len(told) == 6
    assert all(one["logprob"] <= 0 and len(one["top_logprobs"]) == 2 for one in told)


async def test_refusal_of_a_stream_is_a_plain_status(subject: Subject) -> None:
    prompt = "word " * (2 * (subject.status.window or 0))
    answer = await subject.raw("/v1/completions", stream=True, prompt=prompt, max_tokens=4)
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("application/json")


async def test_head_of_a_stream_proves_nothing_of_its_first_token(vllm: Subject) -> None:
    prompt = f"{time.time()} " + "The quick brown fox jumps over the lazy dog. " * 80
    if vllm.config.name == "pretend":
        prompt, more = "x", {"max_tokens": LONG}  # which its script answers late
    else:
        more = {"max_tokens": 2}
    body = {"model": vllm.status.model, "prompt": prompt, "stream": True, **more}
    async with vllm.client() as client:
        started = time.monotonic()
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            head = time.monotonic() - started
            if vllm.config.name != "pretend":
                await anext(answer.aiter_bytes())
                assert head < (time.monotonic() - started) / 2


async def test_metrics_have_the_names_that_the_pool_reads(vllm: Subject) -> None:
    await vllm.complete("1, 2, 3, 4,", max_tokens=2)
    page = (await vllm.get("/metrics")).text
    names = {line.split("{")[0].split(" ")[0] for line in page.splitlines() if not line.startswith("#")}
    assert [name for name in METRICS if f"vllm:{name}" not in names] == []
    assert "process_start_time_seconds" in names
    assert "vllm:gpu_cache_usage_perc" not in names


async def test_small_routes_are_there_or_are_not(vllm: Subject) -> None:
    found = [(await vllm.get(path)).status_code for path in ("/health", "/version", "/load", "/is_sleeping")]
    assert found == [200, 200, 200, 404]
    assert (await vllm.get("/load")).json() == {"server_load": 0}


async def test_tokenize_counts_what_usage_counts(vllm: Subject) -> None:
    counted = (await vllm.raw("/tokenize", prompt="one, two, three and four")).json()
    told = (await vllm.complete("one, two, three and four", max_tokens=1)).usage
    assert counted["count"] == len(counted["tokens"]) == told.prompt_tokens
    assert counted["max_model_len"] == vllm.status.window


async def test_request_id_is_in_the_answers_id(vllm: Subject) -> None:
    answer = await vllm.raw("/v1/completions", {"X-Request-Id": "abc-123"}, **TEXT)
    assert answer.json()["id"].startswith("cmpl-abc-123")


async def test_load_is_told_in_a_header_where_asked(vllm: Subject) -> None:
    answer = await vllm.raw("/v1/completions", {"endpoint-load-metrics-format": "TEXT"}, **TEXT)
    assert "named_metrics.kv_cache_usage_perc=" in answer.headers["endpoint-load-metrics"]
    assert "named_metrics.num_requests_waiting=" in answer.headers["endpoint-load-metrics"]


async def test_priority_is_taken_without_a_word_though_nobody_heeds_it(vllm: Subject) -> None:
    """vllm-project/vllm#11361: under the default policy it is ignored."""
    assert (await vllm.raw("/v1/completions", **TEXT, priority=-5)).status_code == 200


async def test_tokens_are_cached_in_whole_blocks_and_never_the_last_one(engine: Subject) -> None:
    snapshot = await engine.until(lambda s: s.running == 0)
    assert snapshot.cache is not None
    block = snapshot.cache.block_tokens
    assert block
    prompt = f"{time.time()} " + "The quick brown fox jumps over the lazy dog. " * 60
    usages = [(await engine.complete(prompt, max_tokens=2)).usage for _ in range(2)]
    cached = usages[1].cached_tokens
    assert cached is not None
    assert cached % block == 0
    assert usages[1].prompt_tokens - block - 1 < cached < usages[1].prompt_tokens


async def test_requests_beyond_its_batch_wait_and_all_leave_when_given_up(engine: Subject) -> None:
    await engine.until(lambda s: s.running == 0)
    asking = [asyncio.create_task(engine.complete(f"{i}: Once upon a time", max_tokens=LONG)) for i in range(12)]
    try:
        busy = await engine.until(lambda s: bool(s.waiting))
        assert busy.running == 8
        assert busy.kv_usage
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    idle = await engine.until(lambda s: s.running == 0 and s.waiting == 0)
    assert idle.kv_usage == pytest.approx(0, abs=1e-6)
