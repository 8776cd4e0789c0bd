"""Facts about a model server that the pool relies on, asked of the pretend vLLM, of llama.cpp and of a real vLLM."""

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
from pool.router import Pool
from pool.testing import Recorded, Scripted, Slow, pretend_vllm
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

    async def until(self, holds: Callable[[Snapshot], bool], seconds: float = 20) -> Snapshot:
        """The first scrape for which something holds."""
        async with asyncio.timeout(seconds):
            while not holds(snapshot := await self.snapshot()):  # noqa: ASYNC110  a server has no event for us
                await asyncio.sleep(0.05)
        return snapshot

    async def raw(self, path: str, **body: Any) -> httpx.Response:
        """What the server itself says to a body that the pool would not send."""
        key = self.config.api_key
        headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
        async with httpx.AsyncClient(base_url=self.config.url, headers=headers, timeout=60) as client:
            return await client.post(path, json={"model": self.status.model, **body})

    def _common(self) -> dict[str, Any]:
        return {"tier": self.config.tier, "session": "contract", "max_tokens": 16, "deadline": 120}


def script(recorded: Recorded) -> Scripted | None:
    """Makes the pretend server as talkative as a model: it counts, and a long answer takes its time."""
    if {"response_format", "structured_outputs"} & recorded.body.keys():
        return None
    counted = ", ".join(map(str, range(5, 100)))
    return Slow(30, counted) if recorded.body["max_tokens"] == LONG else counted


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["pretend", pytest.param("llamacpp", marks=pytest.mark.model), pytest.param("vllm", marks=pytest.mark.vllm)],
)
async def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Subject]:
    """Each of the three servers, up."""
    kind = request.param
    if kind == "pretend":
        async with pretend_vllm(script, window=2048, tools="refused") as server:
            async for found in _joined(EndpointConfig(name="pretend", url=server.url)):
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
    async with Pool(PoolConfig(endpoints=(config,), retries=1, probe_interval=0.5)) as pool:
        await pool.ready(config.tier, 60)
        yield Subject(config, pool)


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
    """None of the three speaks them as set up here; vLLM refuses, llama.cpp answers in text."""
    assert await subject.pool.native_tools(subject.config.tier) is False
    assert subject.status.native_tools is False
    with pytest.raises(PermanentError, match="as text"):
        await subject.ask("look around", tools=(TOOL,))


async def test_model_that_it_does_not_serve_is_named_with_those_it_does(subject: Subject) -> None:
    other = PoolConfig(endpoints=(subject.config.model_copy(update={"model": "nope"}),), retries=0)
    async with Pool(other) as pool:
        with pytest.raises(NoEndpointError, match=f"{subject.status.model}, not nope"):
            await pool.ready(subject.config.tier, 1)
