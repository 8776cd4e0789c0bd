"""Virtual models to clients who read streams: heard as they are written, alive before that, never whole when torn."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest

from pool.gateway.keys import hashed
from pool.testing import (
    PretendServer,
    Recorded,
    Slow,
    call,
    hang,
    paced,
    pretend_vllm,
    reset_midway,
    server_error,
    torn_call,
)
from pool.types import Choice
from tests.pool.gateway.conftest import HELLO, House, Open

TWO = ("small", "large")
FUSE = {"virtual": {"f": {"kind": "fuse", "tiers": list(TWO), "judge": "large"}}, "retries": 0}
VERIFY = {"virtual": {"f": {"kind": "draft-verify", "tiers": list(TWO)}}, "retries": 0}
CASCADE = {"virtual": {"f": {"kind": "confidence", "tiers": list(TWO), "threshold": -0.1}}, "retries": 0}
LONG = "one two three four five six seven eight nine ten"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


def is_merge(recorded: Recorded) -> bool:
    return "<draft" in str(recorded.body["messages"][-1]["content"])


def large(last: Any, draft: Any = "draft of the large one") -> Any:
    """The script of the large server: a draft, then what it says last."""
    return lambda recorded: last if is_merge(recorded) else draft


def told(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def said(text: str, name: str = "content") -> str:
    return "".join(choice["delta"].get(name) or "" for event in told(text) for choice in event.get("choices") or ())


def end(text: str) -> dict[str, Any]:
    """The event that says how it ended; there is one."""
    (found,) = [e for e in told(text) if e.get("choices") and e["choices"][0]["finish_reason"]]
    return found


async def stream(house: House, **more: Any) -> str:
    answer = await house.chat({"model": "f", "stream": True, "stream_options": {"include_usage": True}, **more})
    assert answer.status_code == 200, answer.text
    return answer.text


async def arrivals(house: House, **more: Any) -> tuple[str, list[float]]:
    """The text of a stream, and when its pieces came."""
    text, at = "", list[float]()
    async with house.client.stream(
        "POST", "/v1/chat/completions", json=HELLO | {"model": "f", "stream": True} | more
    ) as answer:
        async for piece in answer.aiter_text():
            at.append(asyncio.get_running_loop().time())
            text += piece
    return text, at


RULING = '{"ruling": "reject", "why": "wrong"}'


def judging(last: Any) -> Any:
    return lambda recorded: RULING if "Your ruling:" in str(recorded.body["messages"][-1]["content"]) else last


@pytest.mark.parametrize(
    ("settings", "script"),
    [(FUSE, large(paced(LONG, 0.02))), (VERIFY, judging(paced(LONG, 0.02))), (CASCADE, lambda _: paced(LONG, 0.02))],
    ids=["fuse", "draft-verify", "confidence"],
)
async def test_the_last_part_is_heard_while_it_is_written(gateway: Open, settings: Any, script: Any) -> None:
    async with (
        pretend_vllm(lambda _: "draft of the small one") as one,
        pretend_vllm(script) as two,
        gateway(one, two, tiers=TWO, pool=settings) as house,
    ):
        text, at = await arrivals(house)
    assert said(text) == LONG
    assert at[-1] - at[0] > 0.1
    assert len(at) > 5
    assert text.endswith("data: [DONE]\n\n")
    assert len({event["id"] for event in told(text)}) == 1
    report = end(text)["swarm"]["report"]
    assert (report["stopped"], end(text)["swarm"]["tier"]) == ("done", "large")
    assert not any("usage" in event for event in told(text))


async def test_report_and_usage_come_at_the_end_and_agree(gateway: Open) -> None:
    async with (
        pretend_vllm(lambda _: "draft of the small one") as one,
        pretend_vllm(large(LONG)) as two,
        gateway(one, two, tiers=TWO, pool=FUSE) as house,
    ):
        text = await stream(house)
        *_, last, usage = told(text)
        assert usage["choices"] == []
        assert last["swarm"]["report"]["spent"] == usage["usage"]["total_tokens"]
        assert [part["role"] for part in last["swarm"]["report"]["parts"]] == ["draft", "draft", "merge"]
        assert usage["usage"]["completion_tokens"] > len(LONG.split())
        assert await house.metric("swarm_gateway_tokens_total") >= usage["usage"]["total_tokens"]
        whole = (await house.chat({"model": "f"})).json()
        assert whole["choices"][0]["message"]["content"] == LONG
        assert "swarm" not in whole


@pytest.mark.slow
async def test_signs_of_life_come_while_drafts_are_under_way(gateway: Open) -> None:
    """Without a byte for long, clients and proxies give up (vllm-project/vllm#20520 has what follows)."""
    slow = Slow(0.3, "draft of the small one")
    async with (
        pretend_vllm(lambda _: slow) as one,
        pretend_vllm(large(LONG)) as two,
        gateway(one, two, tiers=TWO, pool=FUSE, comment_interval=0.05) as house,
    ):
        text, at = await arrivals(house)
        assert text.startswith(": ")
        assert text.count("\n\n: ") >= 2
        assert at[-1] - at[0] > 0.15
        assert said(text) == LONG
        client = openai.AsyncOpenAI(base_url=f"{house.client.base_url}/v1", api_key="x", max_retries=0)
        chunks = [chunk async for chunk in await client.chat.completions.create(**HELLO | {"model": "f"}, stream=True)]  # type: ignore[call-overload]
        await client.close()
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == LONG


async def test_what_fails_before_the_first_word_has_a_status_of_its_own(gateway: Open) -> None:
    async with (
        pretend_vllm(lambda _: server_error()) as one,
        pretend_vllm(lambda _: server_error()) as two,
        gateway(one, two, tiers=TWO, pool=FUSE) as house,
    ):
        answer = await house.chat({"model": "f", "stream": True})
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "upstream_failed"


async def test_what_fails_after_a_sign_of_life_is_an_error_in_the_stream(gateway: Open) -> None:
    late = Slow(0.15, server_error())
    async with (
        pretend_vllm(lambda _: late) as one,
        pretend_vllm(lambda _: late) as two,
        gateway(one, two, tiers=TWO, pool=FUSE, comment_interval=0.05) as house,
    ):
        text = await stream(house)
        assert [event["error"]["code"] for event in told(text)] == [502]


@pytest.mark.parametrize("settings", [FUSE, VERIFY, CASCADE], ids=["fuse", "draft-verify", "confidence"])
async def test_a_last_part_that_breaks_off_after_a_word_never_looks_whole(gateway: Open, settings: Any) -> None:
    def script(recorded: Recorded) -> Any:
        if settings is VERIFY:
            return judging(reset_midway(LONG))(recorded)
        return reset_midway(LONG) if settings is CASCADE or is_merge(recorded) else "draft of the large one"

    key = {"name": "anna", "sha256": hashed("sk-anna"), "tokens_per_day": 1000}
    async with (
        pretend_vllm(lambda _: "draft of the small one") as one,
        pretend_vllm(script) as two,
        gateway(one, two, tiers=TWO, pool=settings, keys=[key]) as house,
    ):
        body = HELLO | {"model": "f", "stream": True, "tools": []}
        answer = await house.client.post("/v1/chat/completions", json=body, headers={"x-api-key": "sk-anna"})
        assert said(answer.text).startswith("one two")
        assert [event["error"]["code"] for event in told(answer.text) if "error" in event] == [502]
        assert not any(e["choices"][0]["finish_reason"] for e in told(answer.text) if "choices" in e)
        assert house.service.keys.caller(None, "sk-anna").budgets[0][1].wait(1000) > 0, "its parts are paid for"
        await house.quiet()


async def test_drafts_that_were_paid_for_are_charged_although_the_rest_failed(gateway: Open) -> None:
    key = {"name": "anna", "sha256": hashed("sk-anna"), "tokens_per_day": 100_000}
    vote = {"virtual": {"f": {"kind": "vote", "tiers": ["small", "large"], "samples": 3}}, "retries": 0}
    spoilt = call("nothing_of_the_kind")
    async with (
        pretend_vllm(lambda _: hang()) as one,
        pretend_vllm(lambda _: spoilt) as two,
        gateway(one, two, tiers=TWO, pool=vote, keys=[key]) as house,
    ):
        for streamed in (False, True):
            with suppress(httpx.ReadTimeout):
                body = HELLO | {"model": "f", "stream": streamed, "max_tokens": 1000}
                await house.client.post(
                    "/v1/chat/completions", json=body, headers={"x-api-key": "sk-anna"}, timeout=0.3
                )
            await house.quiet()
        budget = house.service.keys.caller(None, "sk-anna").budgets[0][1]
        assert budget.wait(100_000 - 2 * 2 * 1000) > 0, "two samples were under way each time"
        assert budget.wait(100_000 - 2 * 2 * 1000 - 2000) == 0


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_hangs_up_takes_all_drafts_out_of_the_servers(gateway: Open, streamed: bool) -> None:
    async def dropped(server: PretendServer) -> None:
        while not server.dropped:  # noqa: ASYNC110  another process would be asked the same way
            await asyncio.sleep(0.01)

    async with (
        pretend_vllm(lambda _: hang()) as one,
        pretend_vllm(lambda _: hang()) as two,
        gateway(one, two, tiers=TWO, pool=FUSE, comment_interval=0.05) as house,
    ):
        with suppress(httpx.ReadTimeout, TimeoutError):
            async with asyncio.timeout(0.3):
                await house.client.post("/v1/chat/completions", json=HELLO | {"model": "f", "stream": streamed})
        async with asyncio.timeout(2):
            await asyncio.gather(dropped(one), dropped(two))
        await house.quiet()
        assert await house.metric("swarm_gateway_disconnects_total") == 1


async def test_a_client_that_hangs_up_in_the_last_part_aborts_it(gateway: Open) -> None:
    async with (
        pretend_vllm(lambda _: "draft of the small one") as one,
        pretend_vllm(large(paced("w " * 500, 0.01))) as two,
        gateway(one, two, tiers=TWO, pool=FUSE) as house,
    ):
        body = HELLO | {"model": "f", "stream": True}
        async with house.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if '"content":"w' in line:
                    break
        async with asyncio.timeout(2):
            while not two.dropped:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await house.quiet()


async def test_a_draft_stands_in_the_stream_where_the_last_part_said_nothing_of_use(gateway: Open) -> None:
    last: Any = ""
    async with (
        pretend_vllm(lambda _: "draft of the small one") as one,
        pretend_vllm(lambda recorded: last if is_merge(recorded) else "draft of the large one") as two,
        gateway(one, two, tiers=TWO, pool=FUSE) as house,
    ):
        for nothing in ("", " \n ", torn_call("read", path="a"), call("unknown")):
            last = nothing
            text = await stream(house, tools=TOOLS)
            assert said(text) == "draft of the large one"
            assert "draft of large answers" in end(text)["swarm"]["why"]
            assert not any(event["choices"][0]["delta"].get("tool_calls") for event in told(text) if event["choices"])


async def test_text_is_said_at_once_and_what_may_have_to_be_taken_back_once_it_is_judged(gateway: Open) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    last: Any = ""
    async with (
        pretend_vllm(lambda _: "draft of the small one") as one,
        pretend_vllm(lambda recorded: last if is_merge(recorded) else '{"a": 2}') as two,
        gateway(one, two, tiers=TWO, pool=FUSE) as house,
    ):
        last = call("read", path="a.py").model_copy(update={"content": "I look."})
        text = await stream(house, tools=TOOLS)
        pieces = [event["choices"][0]["delta"] for event in told(text) if event["choices"]]
        (calls,) = [piece["tool_calls"] for piece in pieces if piece.get("tool_calls")]
        assert said(text) == "I look."
        assert [(one["index"], one["function"]["name"]) for one in calls] == [(0, "read")]
        assert json.loads(calls[0]["function"]["arguments"]) == {"path": "a.py"}
        assert end(text)["choices"][0]["finish_reason"] == "tool_calls"

        last = call("unknown").model_copy(update={"content": "I look."})
        text = await stream(house, tools=TOOLS)
        assert said(text) == "I look."
        assert "seen after it was said" in end(text)["swarm"]["report"]["gained"]

        last = '{"a": "no number"}'
        assert json.loads(said(await stream(house, response_format=form))) == {"a": 2}

        last = Choice(content="yes", reasoning="let me see")
        text = await stream(house)
        assert (said(text, "reasoning"), said(text)) == ("let me see", "yes")


async def test_a_request_for_several_samples_streams_from_the_plain_tier(gateway: Open) -> None:
    async with (
        pretend_vllm(lambda _: "never") as one,
        pretend_vllm(lambda _: LONG) as two,
        gateway(one, two, tiers=TWO, pool=FUSE) as house,
    ):
        answer = await house.chat({"model": "f", "stream": True, "n": 2})
        assert {e["choices"][0]["index"] for e in told(answer.text) if e.get("choices")} == {0, 1}
        assert answer.headers["x-swarm-why"].startswith("f: 2 samples are wanted")
        assert not one.requests


async def test_the_responses_api_hears_it_too(gateway: Open) -> None:
    async with (
        pretend_vllm(lambda _: Slow(0.2, "draft of the small one")) as one,
        pretend_vllm(large(LONG)) as two,
        gateway(one, two, tiers=TWO, pool=FUSE, comment_interval=0.05) as house,
    ):
        client = openai.AsyncOpenAI(base_url=f"{house.client.base_url}/v1", api_key="x", max_retries=0)
        events = [
            event async for event in await client.responses.create(model="f", input="hi", stream=True, store=False)
        ]
        await client.close()
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == LONG
        assert len(deltas) > 5
        assert events[-1].type == "response.completed"


async def test_no_address_of_a_server_is_in_the_report(gateway: Open) -> None:
    async with (
        pretend_vllm(lambda _: "draft of the small one") as one,
        pretend_vllm(large(LONG)) as two,
        pretend_vllm(["never"]) as three,
        gateway(
            one,
            two,
            three,
            tiers=(*TWO, "gone"),
            pool={
                "virtual": {"f": {"kind": "fuse", "tiers": ["gone", *TWO], "judge": "large"}},
                "retries": 0,
            },
        ) as house,
    ):
        await three.stop()
        report = end(await stream(house))["swarm"]["report"]
        assert [part["tier"] for part in report["parts"] if part["failed"]] == ["gone"]
        assert "127.0.0.1" not in json.dumps(report)
        assert str(three.port) not in json.dumps(report)
