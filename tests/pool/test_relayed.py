"""What a caller of the gateway gets: the server's events, or a typed error; gone on with where that is safe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pool.errors import ContextOverflowError, PermanentError, TornError, TransientError
from pool.router import Need, Pool, Relayed
from pool.testing import (
    PretendServer,
    Recorded,
    Scripted,
    Slow,
    closed_early,
    commented,
    error_midway,
    overflow,
    paced,
    pretend_vllm,
    reset_midway,
    server_error,
    split,
    stalled,
    torn_call,
)
from pool.types import Choice
from pool.wire.stream import Splitter

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]


def body(**more: Any) -> dict[str, Any]:
    return {"model": "x", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 100, **more}


@asynccontextmanager
async def relaying(pool: Pool, path: str = CHAT, **more: Any) -> AsyncIterator[Relayed]:
    told = body(**more)
    if path != CHAT:
        told = {key: value for key, value in told.items() if key != "messages"}
    need = Need(tier="small", session="s", prompt=pool.keys.body("small", "s", told), request="r-1", deadline=30)
    async with pool.relay(need, path, told, {"Authorization": "Bearer theirs", "Cookie": "x"}) as relayed:
        yield relayed


def read(data: bytes) -> tuple[str, list[str | None], bool]:
    """The text, the finish reasons and whether the terminator came."""
    events = Splitter().feed(data)
    parts = [part for event in events if event.sort == "piece" for part in event.json().get("choices") or ()]
    text = "".join(part["delta"].get("content") or "" if "delta" in part else part["text"] for part in parts)
    finishes = [part["finish_reason"] for part in parts if part.get("finish_reason")]
    return text, finishes, bool(events) and events[-1].sort == "done"


async def collect(relayed: Relayed, got: list[bytes]) -> None:
    async for event in relayed:
        got.append(event)  # noqa: PERF401  what came before an error is wanted too


async def whole(relayed: Relayed) -> bytes:
    return b"".join([event async for event in relayed])


@asynccontextmanager
async def pool_over(settings: Any, *servers: PretendServer, **more: Any) -> AsyncIterator[Pool]:
    async with Pool(settings(*servers, canaries=False, **more)) as pool:
        await pool.ready("small", 5)
        async with asyncio.timeout(5):
            while any(status.state != "up" for status in pool.status()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield pool


async def test_stream_comes_through_as_the_server_sent_it(settings: Any) -> None:
    async with pretend_vllm(["one two three"]) as a, pool_over(settings, a) as pool:
        async with relaying(pool, temperature=0.5) as relayed:
            data = await whole(relayed)
            assert (relayed.status, relayed.streamed, relayed.endpoint, relayed.model) == (200, True, "a", "pretend")
            assert relayed.usage is not None
            assert relayed.usage.completion_tokens == 3
        assert read(data) == ("one two three", ["stop"], True)
        assert b"usage" not in data
        (got,) = a.requests
        assert (got.body["model"], got.body["temperature"]) == ("pretend", 0.5)
        assert got.body["stream_options"] == {"include_usage": True}
        assert (got.headers["x-request-id"], got.headers["x-session-id"]) == ("r-1-1", "s")
        assert "authorization" not in got.headers
        assert "cookie" not in got.headers
        assert pool.status()[0].in_flight == 0


async def test_caller_who_wants_usage_gets_it(settings: Any) -> None:
    usage = {"include_usage": True}
    async with (
        pretend_vllm(["one two three"]) as a,
        pool_over(settings, a) as pool,
        relaying(pool, stream_options=usage) as relayed,
    ):
        events = Splitter().feed(await whole(relayed))
    assert events[-2].json()["usage"]["completion_tokens"] == 3


async def test_whole_body_comes_through(settings: Any) -> None:
    async with (
        pretend_vllm(["one two three"]) as a,
        pool_over(settings, a) as pool,
        relaying(pool, stream=False) as relayed,
    ):
        answer = json.loads(await relayed.body())
        assert not relayed.streamed
    assert answer["choices"][0]["message"]["content"] == "one two three"


@pytest.mark.parametrize("twist", [split("one two", 7), split("one two", 9, "\r\n"), commented("one two")])
async def test_odd_framing_changes_nothing(settings: Any, twist: Scripted) -> None:
    async with pretend_vllm([twist]) as a, pool_over(settings, a) as pool, relaying(pool) as relayed:
        assert read(await whole(relayed)) == ("one two", ["stop"], True)


async def test_fault_before_anything_was_said_is_hidden(settings: Any) -> None:
    async with (
        pretend_vllm([closed_early(after=0)]) as a,
        pretend_vllm(["whole"]) as b,
        pool_over(settings, a, b) as pool,
        relaying(pool) as relayed,
    ):
        assert read(await whole(relayed)) == ("whole", ["stop"], True)
        assert (relayed.endpoint, relayed.attempts) == ("b", 2)


async def test_refusal_before_the_answer_is_the_servers_own(settings: Any) -> None:
    async with pretend_vllm([overflow(4096)]) as a, pool_over(settings, a) as pool:
        with pytest.raises(ContextOverflowError) as caught:
            async with relaying(pool):
                pass
        assert caught.value.window == 4096


def goes_on(recorded: Recorded) -> Scripted:
    """Says the rest of a count, wherever it is asked to go on."""
    words = ["one", "two", "three", "four", "five"]
    said = recorded.body["messages"][-1]
    before = said["content"].split() if said["role"] == "assistant" else []
    return (" " if before else "") + " ".join(words[len(before) :])


@pytest.mark.parametrize("fault", [reset_midway, closed_early, error_midway])
async def test_text_that_broke_off_is_gone_on_with_elsewhere(settings: Any, fault: Any) -> None:
    """livekit agents-js#2477, open-interpreter#291, nuguard#455: a retry in mid-stream said everything twice."""
    async with pretend_vllm([fault("one two three four five", 3)]) as a, pretend_vllm(goes_on) as b:
        async with pool_over(settings, a, b) as pool, relaying(pool) as relayed:
            assert read(await whole(relayed)) == ("one two three four five", ["stop"], True)
            assert (relayed.endpoint, relayed.attempts) == ("b", 2)
        (further,) = b.requests
        assert further.body["messages"][-1] == {"role": "assistant", "content": "one two three"}
        assert further.body["continue_final_message"] is True
        assert further.body["add_generation_prompt"] is False
        assert further.body["max_tokens"] < 100


async def test_completion_goes_on_behind_its_prompt(settings: Any) -> None:
    def rest(recorded: Recorded) -> Scripted:
        return " four five" if recorded.body["prompt"] == "count: one two three" else "wrong"

    async with (
        pretend_vllm([reset_midway("one two three four", 3)]) as a,
        pretend_vllm(rest) as b,
        pool_over(settings, a, b) as pool,
        relaying(pool, "/v1/completions", prompt="count: ") as relayed,
    ):
        assert read(await whole(relayed))[0] == "one two three four five"


async def test_stalled_stream_is_gone_on_with_and_ended_at_the_server(settings: Any) -> None:
    """maximhq/bifrost#5504."""
    async with pretend_vllm([stalled("one two three four five", 3)]) as a, pretend_vllm(goes_on) as b:
        async with pool_over(settings, a, b, idle_timeout=0.3) as pool, relaying(pool) as relayed:
            assert read(await whole(relayed))[0] == "one two three four five"
        async with asyncio.timeout(5):
            while not a.dropped:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


CALLING = Choice.model_validate(
    {
        "tool_calls": [{"id": "c", "name": "shell", "arguments": '{"command": "make all"}'}],
        "finish_reason": "tool_calls",
    }
)


@pytest.mark.parametrize(
    ("said", "more"),
    [
        (CALLING, {"tools": TOOLS}),
        (Choice(reasoning="let me think of it", content="x"), {}),
        ("one two three four", {"n": 2}),
        ("one two three four", {"response_format": {"type": "json_object"}}),
    ],
    ids=["tool call", "reasoning", "two samples", "structure"],
)
async def test_what_cannot_be_gone_on_with_safely_is_a_typed_error(settings: Any, said: Any, more: Any) -> None:
    """aden-hive#5923, hybridclaw#1337: never past a tool call."""
    async with pretend_vllm([reset_midway(said, 2)]) as a, pretend_vllm(["wrong"] * 9) as b:
        async with pool_over(settings, a, b) as pool, relaying(pool, **more) as relayed:
            with pytest.raises(TornError):
                await whole(relayed)
        assert len(a.requests) + len(b.requests) == 1


async def test_torn_answer_tells_what_was_said(settings: Any) -> None:
    async with pretend_vllm([reset_midway("one two three four", 2), *[server_error()] * 9]) as a:
        async with pool_over(settings, a, retries=2) as pool, relaying(pool) as relayed:
            got: list[bytes] = []
            with pytest.raises(TornError) as caught:
                await collect(relayed, got)
        assert caught.value.partial == "one two "
        assert read(b"".join(got)) == ("one two ", [], False)
        assert len(a.requests) == 3


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_tool_call_says_length(settings: Any, stream: bool) -> None:
    """vllm-project/vllm#53269, #47761, #47903, #9053, #47963."""
    async with (
        pretend_vllm([torn_call("shell", command="rm -rf build")]) as a,
        pool_over(settings, a) as pool,
        relaying(pool, tools=TOOLS, stream=stream) as relayed,
    ):
        if stream:
            assert read(await whole(relayed))[1] == ["length"]
        else:
            assert json.loads(await relayed.body())["choices"][0]["finish_reason"] == "length"


async def test_caller_that_leaves_ends_it_at_the_server_and_gives_the_place_back(settings: Any) -> None:
    """vllm-project/router#215: the counter of requests leaked at each client that hung up."""
    async with pretend_vllm(lambda _: paced("one two three four five", 0.2)) as a, pool_over(settings, a) as pool:
        for _ in range(3):
            async with relaying(pool) as relayed:
                async for _event in relayed:
                    break
        assert pool.status()[0].in_flight == 0
        async with asyncio.timeout(5):
            while a.running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert a.dropped == 3


async def test_cancelled_caller_gives_the_place_back(settings: Any) -> None:
    async with pretend_vllm(lambda _: Slow(5)) as a, pool_over(settings, a) as pool:

        async def call() -> None:
            async with relaying(pool) as relayed:
                await whole(relayed)

        task = asyncio.create_task(call())
        async with asyncio.timeout(5):
            while not a.running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert pool.status()[0].in_flight == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pool.status()[0].in_flight == 0


async def test_deadline_holds_for_a_stream_that_goes_on(settings: Any) -> None:
    async with pretend_vllm(lambda _: paced(" ".join(["x"] * 99), 0.1)) as a, pool_over(settings, a) as pool:
        told = body()
        need = Need(tier="small", session="s", prompt=pool.keys.body("small", "s", told), deadline=0.5)
        async with pool.relay(need, CHAT, told, {}) as relayed:
            with pytest.raises(TransientError, match="deadline"):
                await whole(relayed)
        assert len(a.requests) == 1


async def test_model_that_nobody_serves_is_a_refusal(settings: Any) -> None:
    async with pretend_vllm() as a, pool_over(settings, a) as pool:
        told = body()
        need = Need(tier="", session="s", prompt=pool.keys.body("", "s", told), model="nope")
        with pytest.raises(PermanentError, match="nope"):
            async with pool.relay(need, CHAT, told, {}):
                pass
        need = Need(tier="", session="s", prompt=pool.keys.body("", "s", told), model="pretend")
        async with pool.relay(need, CHAT, told, {}) as relayed:
            assert read(await whole(relayed)) == ("ok", ["stop"], True)


async def test_field_that_would_be_ignored_is_refused(settings: Any) -> None:
    """vllm-project/vllm#53975."""
    async with pretend_vllm() as a, pool_over(settings, a) as pool:
        async with relaying(pool, guided_json={"type": "object"}) as relayed:
            await whole(relayed)
        assert a.requests[0].body["structured_outputs"] == {"json": {"type": "object"}}
        with pytest.raises(PermanentError, match="mirostat"):
            async with relaying(pool, mirostat=2):
                pass
