"""What is said: streams, tool calls, reasoning, structure and windows; public reports 38 to 50, and 53."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pool.errors import ContextOverflowError, PermanentError, PoolError, TornError, TransientError
from pool.testing import (
    Recorded,
    Scripted,
    closed_early,
    error,
    overflow,
    pretend_vllm,
    reset_midway,
    server_error,
    torn_call,
    unfinished,
    without_details,
    without_done,
)
from pool.types import Choice, CompletionRequest, Message, ToolCall, ToolSpec

TOOL = ToolSpec(
    name="shell",
    description="run",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)


@pytest.mark.parametrize("fault", [closed_early(), unfinished(), without_done()])
async def test_upstream_that_ends_early_is_no_success(world: Any, fault: Scripted) -> None:
    """38: Portkey-AI/gateway#1797: a cut looked like a clean 200; 39: semantic-router#3063, vllm-project/vllm#52852."""
    async with pretend_vllm([fault]) as a, world(a, retries=0) as w:
        with pytest.raises(TornError):
            await w.relayed()


async def test_retry_in_mid_stream_says_no_token_twice(world: Any, turn: Any) -> None:
    """41: livekit agents-js#2477, aden-hive#5923, open-interpreter#291, nuguard#455."""

    def rest(recorded: Recorded) -> Scripted:
        last = recorded.body["messages"][-1]
        return " three four" if last == {"role": "assistant", "content": "one two"} else "one two three four"

    async with pretend_vllm([reset_midway(), reset_midway()]) as a, pretend_vllm(rest) as b, world(a, b) as w:
        reply = await w.pool.chat(turn())
        assert reply.choices[0].content == "one two three four"
        assert "continue_final_message" in b.requests[0].body


async def test_no_answer_goes_on_past_a_tool_call(world: Any, turn: Any) -> None:
    """41, 47: hybridclaw#1337: what may have been acted on is begun anew, whole, and never glued together."""
    whole = Choice(
        tool_calls=(ToolCall(id="c", name="shell", arguments='{"command": "ls"}'),), finish_reason="tool_calls"
    )
    async with (
        pretend_vllm([reset_midway(whole, 1)]) as a,
        pretend_vllm([whole]) as b,
        world(a, b, endpoint={"tools": "native"}) as w,
    ):
        reply = await w.pool.chat(turn(tools=(TOOL,)))
        assert reply.choices[0].tool_calls == whole.tool_calls
        assert "continue_final_message" not in b.requests[0].body


async def test_failover_drops_no_field(world: Any, turn: Any) -> None:
    """42: BerriAI/litellm#41380: the fallback path lost the reasoning, 43 % of the prompt."""
    call = ToolCall(id="c", name="shell", arguments="{}")
    said = (
        Message(role="user", content="look"),
        Message(role="assistant", content="so", reasoning="because", tool_calls=(call,)),
        Message(role="tool", content="out", tool_call_id="c"),
    )
    async with (
        pretend_vllm([server_error()]) as a,
        pretend_vllm() as b,
        world(a, b, endpoint={"tools": "native"}) as w,
    ):
        await w.pool.chat(turn(messages=said, tools=(TOOL,), stop=("END",), cache_salt="x"))
        first, second = a.requests[0].body, b.requests[0].body
        assert first == second
        assert second["messages"][1]["reasoning"] == "because"
        assert second["cache_salt"] == "x"


async def test_tool_call_that_was_cut_never_reaches_the_history(world: Any, turn: Any) -> None:
    """43: vllm-project/vllm#53269, #47761, #47903, #9053, #47963."""
    cut = torn_call("shell", command="rm -rf /tmp/x")
    async with pretend_vllm([cut]) as a, world(a, endpoint={"tools": "native"}) as w:
        reply = await w.pool.chat(turn(tools=(TOOL,)))
    assert (reply.choices[0].tool_calls, reply.choices[0].finish_reason) == ((), "length")


async def test_tool_call_that_does_not_fit_says_why(world: Any, turn: Any) -> None:
    """43: arguments are validated before anyone runs them."""
    odd = Choice(tool_calls=(ToolCall(id="c", name="shell", arguments='{"command": 7}'),), finish_reason="tool_calls")
    async with pretend_vllm([odd]) as a, world(a, endpoint={"tools": "native"}) as w:
        reply = await w.pool.chat(turn(tools=(TOOL,)))
    assert "not of type 'string'" in reply.choices[0].tool_calls[0].fault


async def test_schema_is_asked_for_in_words_that_the_server_heeds(world: Any) -> None:
    """44: vllm-project/vllm#53975: guided_json went through with 200 and constrained nothing."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    async with pretend_vllm() as a, world(a) as w:
        await w.pool.complete(CompletionRequest(tier="small", session="s", prompt="p", json_schema=schema))
        await w.relayed({"guided_json": schema})
        assert a.requests[0].body["structured_outputs"] == {"json": schema}
        assert a.requests[1].body["structured_outputs"] == {"json": schema}
        assert "guided_json" not in a.requests[1].body


async def test_reasoning_comes_back_and_goes_out_again(world: Any, turn: Any) -> None:
    """45: vllm-project/vllm#38488, vllm-project/router#115: the rename lost it."""
    async with pretend_vllm([Choice(content="so", reasoning="because"), "ok"]) as a, world(a) as w:
        reply = await w.pool.chat(turn())
        assert reply.choices[0].reasoning == "because"
        again = (Message(role="assistant", content="so", reasoning=reply.choices[0].reasoning),)
        await w.pool.chat(turn(messages=again))
        assert a.requests[1].body["messages"][0]["reasoning"] == "because"


async def test_untold_cached_tokens_are_unknown(world: Any, turn: Any) -> None:
    """46: vllm-project/vllm#16162, aibrix#1607: null is not zero."""
    async with pretend_vllm([without_details("x"), "y"]) as a, world(a) as w:
        assert (await w.pool.chat(turn())).usage.cached_tokens is None
        assert (await w.pool.chat(turn())).usage.cached_tokens == 0


async def test_overflow_tells_the_window_and_is_sent_once(world: Any, turn: Any) -> None:
    """49: mini-swe-agent#721, hermes-agent#7680: a 400 killed the run, or was repeated for ever."""
    async with pretend_vllm(lambda _: overflow(4096)) as a, world(a) as w:
        with pytest.raises(ContextOverflowError) as caught:
            await w.pool.chat(turn())
        assert (caught.value.window, len(a.requests)) == (4096, 1)


async def test_ceiling_above_the_window_is_lowered(world: Any, turn: Any) -> None:
    """50: vllm-project/vllm#42474."""
    async with pretend_vllm(window=512) as a, world(a) as w:
        await w.pool.chat(turn(max_tokens=100_000))
        await w.relayed({"max_completion_tokens": 100_000, "max_tokens": None})
        assert a.requests[0].body["max_tokens"] == 512
        assert a.requests[1].body["max_completion_tokens"] == 512


async def test_ceiling_above_the_room_that_is_left_is_lowered_to_it(world: Any, turn: Any) -> None:
    """50: vllm-project/vllm#42474: prompt and ceiling together were refused, though the ceiling is only one."""
    told = (
        "'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum context length is 8192 "
        "tokens and your request has 8000 input tokens (1024 > 8192 - 8000)."
    )
    async with pretend_vllm([error(400, told), "fits"]) as a, world(a) as w:
        reply = await w.pool.chat(turn(max_tokens=1024))
        assert (reply.choices[0].content, reply.attempts) == ("fits", 1)
        assert a.requests[1].body["max_tokens"] == 192


async def test_one_budget_holds_for_all_retries_of_a_request(world: Any, turn: Any) -> None:
    """53: openclaw#134281, Vibe-Trading#1208: SDK, gateway and agent each retried, and all of it multiplied."""
    async with (
        pretend_vllm(lambda _: server_error()) as a,
        pretend_vllm(lambda _: reset_midway()) as b,
        world(a, b, retries=3) as w,
    ):
        with pytest.raises(TransientError):
            await w.pool.chat(turn(deadline=8))
        assert len(a.requests) + len(b.requests) == 4


async def test_outage_is_not_multiplied_by_retries(world: Any, turn: Any) -> None:
    """53: Gateway API GEP-3388: retries over the whole pool are bounded by a share of its requests."""
    async with pretend_vllm(lambda _: server_error()) as a, pretend_vllm(lambda _: server_error()) as b:
        async with world(a, b, retries=4) as w:
            w.pool._sender._budget._left = 0.0
            done = await asyncio.gather(
                *(w.pool.chat(turn(f"s{i}", deadline=3)) for i in range(60)), return_exceptions=True
            )
        assert all(isinstance(error, PoolError) for error in done)
        assert len(a.requests) + len(b.requests) < 60 * 2


async def test_refused_feature_names_itself(world: Any) -> None:
    """44: what cannot be translated is refused in words."""
    async with pretend_vllm() as a, world(a) as w:
        with pytest.raises(PermanentError, match="grammar_lazy"):
            await w.relayed({"grammar_lazy": True})
        assert a.requests == []
