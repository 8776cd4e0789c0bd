"""Virtual models: what each kind keeps, merges or asks again, what it costs, and that a draft's call is never run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.errors import ContextOverflowError, NoEndpointError, PermanentError, PoolConfigError, TransientError
from pool.tiers.fuse import cap
from pool.tiers.verify import ruling_in
from pool.tiers.vote import picked, wanted
from pool.types import ChatRequest, Choice, CompletionRequest, Message, Reply
from tests.pool.tiers.below import READ, Below, by_tier, calls, chat, front, priced, sure

CASCADE = {"c": {"kind": "confidence", "tiers": ("small", "large")}}
VOTE = {"v": {"kind": "vote", "tiers": ("small",), "samples": 5}}
FUSE = {"f": {"kind": "fuse", "tiers": ("small", "large"), "judge": "large"}}
VERIFY = {"d": {"kind": "draft-verify", "tiers": ("small", "large")}}
LONG = (
    *(
        Message(role="user" if number % 2 == 0 else "assistant", content=f"part {number}: {f'word{number} ' * 100}")
        for number in range(20)
    ),
    Message(role="user", content="Which port does the server use?"),
)


def told(reply: Reply) -> Any:
    assert reply.report is not None
    return reply.report


def roles(reply: Reply) -> list[tuple[str, str]]:
    return [(part.role, part.tier) for part in told(reply).parts]


def adds_up(reply: Reply) -> None:
    """The usage is the sum of the parts, and the report says the same."""
    parts = told(reply).parts
    assert reply.usage.prompt_tokens == sum(part.usage.prompt_tokens for part in parts)
    assert reply.usage.completion_tokens == sum(part.usage.completion_tokens for part in parts)
    assert told(reply).spent == reply.usage.prompt_tokens + reply.usage.completion_tokens


# --- confidence


async def test_a_sure_answer_of_the_small_tier_is_kept_and_the_large_one_spared() -> None:
    below = Below(by_tier(small=sure("42"), large=PermanentError("not to be asked")))
    reply = await front(below, CASCADE).chat(chat("c"))
    assert (reply.choices[0].content, reply.tier) == ("42", "small")
    assert below.requests[0].logprobs
    assert told(reply).figures == {"confidence:small": -0.01, "spared": 1.0}
    assert reply.why == "c: small answers; large was spared"
    adds_up(reply)


@pytest.mark.parametrize(
    ("small", "words"),
    [
        (sure("41", -3.0), "unsure (-3.00 below -1)"),
        ("42, with no word of how sure", "does not tell how sure"),
        (sure("4", finish_reason="length"), "cut off"),
        (sure(""), "no usable answer"),
        (TransientError("torn"), "small failed"),
    ],
)
async def test_an_answer_that_is_not_sure_goes_on_to_the_next_tier(small: Any, words: str) -> None:
    below = Below(by_tier(small=small, large="42"))
    reply = await front(below, CASCADE).chat(chat("c"))
    assert (reply.choices[0].content, reply.tier) == ("42", "large")
    assert words in told(reply).gained
    assert not below.requests[1].logprobs, "the last tier's word is taken, so its logprobs are not paid for"
    adds_up(reply)


async def test_an_unsure_answer_stands_where_the_next_tier_fails() -> None:
    below = Below(by_tier(small=sure("41", -3.0), large=NoEndpointError("down")))
    reply = await front(below, CASCADE).chat(chat("c"))
    assert (reply.choices[0].content, reply.tier) == ("41", "small")
    assert "large failed" in told(reply).gained
    assert [part.failed for part in told(reply).parts] == ["", "down"]


async def test_all_tiers_failing_is_the_last_one_s_error() -> None:
    below = Below(by_tier(small=TransientError("torn"), large=NoEndpointError("down")))
    with pytest.raises(NoEndpointError):
        await front(below, CASCADE).chat(chat("c"))


async def test_a_call_is_judged_by_the_tokens_of_its_arguments() -> None:
    tokens = ("read", '{"path": "', "x", '"}')
    shaky = calls("read", path="x").model_copy(
        update={"tokens": tokens, "logprobs": (0.0, -0.1, -5.0, -0.1), "margins": (9.0, 9.0, 9.0, 9.0)}
    )
    settings = {"c": {**CASCADE["c"], "arguments_only": True, "threshold": -1.5}}
    below = Below(by_tier(small=shaky, large=calls("read", path="y")))
    reply = await front(below, settings).chat(chat("c", tools=(READ,)))
    assert reply.tier == "large"
    whole = Below(by_tier(small=shaky, large=PermanentError("not to be asked")))
    assert (
        await front(whole, {"c": {**CASCADE["c"], "threshold": -1.5}}).chat(chat("c", tools=(READ,)))
    ).tier == "small"


async def test_raw_completions_cascade_as_well() -> None:
    below = Below(by_tier(small=sure("x", -9.0), large="return low"))
    reply = await front(below, CASCADE).complete(CompletionRequest(tier="c", prompt="def f", session="s"))
    assert (reply.tier, reply.choices[0].content) == ("large", "return low")


# --- vote


@pytest.mark.parametrize(
    ("counts", "drawn", "samples", "more"),
    [
        ({}, 0, 5, 3),
        ({"a": 3}, 3, 5, 0),
        ({"a": 2, "b": 1}, 3, 5, 1),
        ({"a": 2, "b": 2}, 4, 5, 1),
        ({"a": 1, "b": 1, "c": 1}, 3, 5, 2),
        ({"a": 2, "b": 1, "c": 1}, 4, 5, 1),
        ({"a": 2}, 4, 5, 0),
        ({}, 5, 5, 0),
        ({"a": 1, "b": 1}, 2, 2, 0),
    ],
)
def test_no_more_samples_are_drawn_than_could_decide(
    counts: dict[str, int], drawn: int, samples: int, more: int
) -> None:
    assert wanted(counts, drawn, samples) == more


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=15))
def test_stopping_early_never_changes_who_wins_outright(ballots: list[str]) -> None:
    samples = len(ballots)
    drawn: list[str] = []
    while more := wanted({name: drawn.count(name) for name in set(drawn)}, len(drawn), samples):
        drawn += ballots[len(drawn) : len(drawn) + more]
    ranked = sorted(((ballots.count(name), name) for name in set(ballots)), reverse=True)
    if len(ranked) == 1 or ranked[0][0] > ranked[1][0]:
        assert max(set(drawn), key=drawn.count) == ranked[0][1]


async def test_a_clear_vote_ends_early() -> None:
    below = Below(by_tier(small="The answer is 42"))
    reply = await front(below, VOTE).chat(chat("v"))
    report = told(reply)
    assert (report.stopped, report.figures["drawn"], report.figures["agreement"]) == ("early", 3.0, 1.0)
    assert below.requests[0].n == 3
    assert below.requests[0].temperature == 0.7, "samples that are all the same decide nothing"
    assert "2 samples were spared" in report.gained
    adds_up(reply)


async def test_the_majority_outvotes_the_first_sample_and_the_report_says_so() -> None:
    below = Below(
        [
            priced([Choice(content="41"), Choice(content="42"), Choice(content="It is 42.")], 10, 9),
            priced([Choice(content="42!")], 10, 3),
        ]
    )
    settings = {"v": {**VOTE["v"], "compare": "number"}}
    reply = await front(below, settings).chat(chat("v"))
    report = told(reply)
    assert reply.choices[0].content == "42"
    assert report.figures["changed"] == 1.0
    assert "the first sample was outvoted" in report.gained
    assert [part.samples for part in report.parts] == [3, 1]
    assert report.spent == 32
    adds_up(reply)


async def test_tool_calls_are_voted_on_by_value_and_spoiled_ones_do_not_count() -> None:
    below = Below(
        [
            priced([calls("nothing"), calls("read", path="a"), calls("read", path="a")], 10, 9),
            priced([calls("read", path="a")], 10, 3),
        ]
    )
    reply = await front(below, VOTE).chat(chat("v", tools=(READ,)))
    assert reply.choices[0].tool_calls[0].name == "read"
    assert told(reply).figures["agreement"] == 1.0


async def test_a_judge_rules_where_nobody_has_the_majority() -> None:
    settings = {"v": {**VOTE["v"], "samples": 3, "judge": "large"}}
    below = Below(
        by_tier(
            small=[priced([Choice(content=text) for text in "ab"], 10, 2), priced([Choice(content="c")], 10, 1)],
            large='{"best": 3}',
        )
    )
    reply = await front(below, settings).chat(chat("v"))
    assert reply.choices[0].content == "c"
    assert "large ruled" in told(reply).gained
    assert roles(reply)[-1] == ("judge", "large")
    adds_up(reply)


@pytest.mark.parametrize("ruling", ["no idea", '{"best": 9}', NoEndpointError("down")])
async def test_a_judge_that_rules_nothing_leaves_it_to_the_most_votes(ruling: Any) -> None:
    settings = {"v": {**VOTE["v"], "samples": 5, "judge": "large"}}
    spread = [Choice(content=text) for text in ("a", "b", "b", "c", "d")]
    below = Below(
        by_tier(small=[priced(spread[:3], 1, 1), priced(spread[3:4], 1, 1), priced(spread[4:], 1, 1)], large=ruling)
    )
    reply = await front(below, settings).chat(chat("v"))
    assert reply.choices[0].content == "b"


async def test_one_failed_batch_does_not_fail_the_vote() -> None:
    below = Below(by_tier(small=[TransientError("torn"), "42"]))
    reply = await front(below, VOTE).chat(chat("v"))
    assert reply.choices[0].content == "42"
    assert [bool(part.failed) for part in told(reply).parts] == [True, False]


async def test_a_vote_whose_samples_all_fail_ends_with_the_error() -> None:
    below = Below(by_tier(small=TransientError("torn")))
    with pytest.raises(TransientError):
        await front(below, VOTE).chat(chat("v"))
    assert len(below.requests) == 2


@pytest.mark.parametrize(
    ("text", "number"),
    [('{"best": 2}', 2), ("2", 2), ('```json\n{"best": 1}\n```', 1), ("x", 0), ('{"best": "b"}', 0), ("[1]", 0)],
)
def test_a_ruling_is_a_number_or_none(text: str, number: int) -> None:
    assert picked(text) == number


# --- fuse


async def test_drafts_of_several_models_are_merged_by_one() -> None:
    below = Below(by_tier(small="Paris is in France", large=["Paris is a city", "Paris is a city in France"]))
    reply = await front(below, FUSE).chat(chat("f"))
    assert reply.choices[0].content == "Paris is a city in France"
    assert roles(reply) == [("draft", "small"), ("draft", "large"), ("merge", "large")]
    merging = below.requests[-1].messages[-1].content  # type: ignore[union-attr]
    assert "Paris is in France" in merging
    assert "Paris is a city" in merging
    adds_up(reply)


async def test_drafts_that_agree_need_no_merge() -> None:
    below = Below(by_tier(small="42", large="42."))
    reply = await front(below, FUSE).chat(chat("f"))
    assert len(below.requests) == 2
    assert told(reply).stopped == "early"


async def test_calls_in_drafts_are_text_for_the_merger_and_its_own_call_is_the_answer() -> None:
    below = Below(by_tier(small=calls("read", path="a"), large=[calls("read", path="b"), calls("read", path="c")]))
    reply = await front(below, FUSE).chat(chat("f", tools=(READ,)))
    assert [json.loads(call.arguments) for choice in reply.choices for call in choice.tool_calls] == [{"path": "c"}]
    merging = below.requests[-1]
    assert isinstance(merging, ChatRequest)
    assert not any(message.tool_calls for message in merging.messages)
    assert '"path": "a"' in merging.messages[-1].content
    assert merging.tools == (READ,)


async def test_one_failed_draft_does_not_fail_the_whole() -> None:
    below = Below(by_tier(small=NoEndpointError("down"), large=["a draft", "an answer"]))
    reply = await front(below, FUSE).chat(chat("f"))
    assert reply.choices[0].content == "an answer"
    assert told(reply).parts[0].failed == "down"


async def test_no_usable_draft_leaves_the_merger_to_answer_itself() -> None:
    below = Below(by_tier(small=calls("nothing"), large=[calls("nothing"), "an answer"]))
    reply = await front(below, FUSE).chat(chat("f", tools=(READ,)))
    assert reply.choices[0].content == "an answer"
    assert below.requests[-1].messages == chat("f").messages  # type: ignore[union-attr]


@pytest.mark.parametrize("merge", [TransientError("torn"), calls("nothing")], ids=["failed", "unusable"])
async def test_a_merge_that_gives_nothing_leaves_the_best_draft(merge: Any) -> None:
    below = Below(by_tier(small="one", large=["two", merge]))
    reply = await front(below, FUSE).chat(chat("f"))
    assert reply.choices[0].content == "two"
    assert told(reply).stopped == "failed"
    assert "draft of large answers" in told(reply).gained


async def test_nothing_at_all_is_an_error() -> None:
    below = Below(by_tier(small=TransientError("torn"), large=TransientError("torn")))
    with pytest.raises(TransientError):
        await front(below, FUSE).chat(chat("f"))


async def test_drafts_are_written_at_one_time() -> None:
    class Slow(Below):
        running = peak = 0

        async def chat(self, request: ChatRequest) -> Reply:
            self.running += 1
            self.peak = max(self.peak, self.running)
            await asyncio.sleep(0.01)
            self.running -= 1
            return await super().chat(request)

    below = Slow(by_tier(small="a", large=["b", "c"]))
    await front(below, FUSE).chat(chat("f"))
    assert below.peak == 2


@given(st.integers(0, 50_000), st.integers(1, 20_000), st.integers(1, 8), st.integers(1, 5000))
def test_what_drafts_may_write_leaves_enough_to_merge_them(left: int, prompt: int, drafts: int, most: int) -> None:
    each = cap(left, prompt, drafts, most)
    if each > 0:
        assert drafts * (prompt + each) + (prompt + drafts * each + each) <= left


# --- draft-verify


def verified(draft: Any, briefed: Any, *large: Any) -> Below:
    return Below(by_tier(small=[draft, briefed], large=list(large)))


async def test_an_accepted_draft_costs_the_large_model_the_brief_alone() -> None:
    below = verified("port 8080", "port 8080", '{"ruling": "accept"}')
    request = chat("d").model_copy(update={"messages": LONG})
    reply = await front(below, VERIFY).chat(request)
    report = told(reply)
    assert (reply.choices[0].content, reply.tier) == ("port 8080", "small")
    assert roles(reply) == [("draft", "small"), ("draft on the brief", "small"), ("judge", "large")]
    assert report.figures["differ"] == 0.0
    assert report.figures["brief"] <= 0.4
    assert report.figures["read"] == report.figures["brief"]
    judged = sum(len(message.content) for message in below.requests[2].messages)  # type: ignore[union-attr]
    assert judged < 0.5 * sum(len(message.content) for message in LONG)
    adds_up(reply)


async def test_drafts_that_differ_much_make_the_large_model_read_everything() -> None:
    below = verified("port 8080", "no idea what is meant", '{"ruling": "accept"}')
    request = chat("d").model_copy(update={"messages": LONG})
    reply = await front(below, VERIFY).chat(request)
    assert told(reply).figures["differ"] == 1.0
    assert told(reply).figures["read"] == 1.0
    assert all(message.content.strip() in below.requests[2].messages[1].content for message in LONG)  # type: ignore[union-attr]


async def test_an_amended_draft_is_written_anew_from_the_brief() -> None:
    below = verified("port 8080", "port 8080", '{"ruling": "amend", "why": "typo"}', "port 8081")
    request = chat("d", tools=(READ,)).model_copy(update={"messages": LONG})
    reply = await front(below, VERIFY).chat(request)
    assert (reply.choices[0].content, reply.tier) == ("port 8081", "large")
    assert roles(reply)[-1] == ("amend", "large")
    assert "large amends (typo); large answers" in reply.why
    assert below.requests[-1].tools == (READ,)  # type: ignore[union-attr]
    assert told(reply).figures["read"] < 0.5


async def test_a_rejected_draft_is_replaced_by_an_answer_to_the_whole_context() -> None:
    below = verified("port 8080", "port 8080", '{"ruling": "reject"}', "port 443")
    request = chat("d").model_copy(update={"messages": LONG})
    reply = await front(below, VERIFY).chat(request)
    assert reply.choices[0].content == "port 443"
    assert below.requests[-1].messages == LONG  # type: ignore[union-attr]
    assert told(reply).figures["read"] == 1.0


async def test_a_short_context_is_never_called_compressed() -> None:
    below = Below(by_tier(small="42", large='{"ruling": "accept"}'))
    reply = await front(below, VERIFY).chat(chat("d"))
    assert roles(reply) == [("draft", "small"), ("judge", "large")]
    assert (told(reply).figures["brief"], told(reply).figures["read"]) == (1.0, 1.0)


async def test_an_unusable_draft_is_not_put_before_the_judge() -> None:
    below = Below(by_tier(small=calls("nothing"), large="42"))
    reply = await front(below, VERIFY).chat(chat("d"))
    assert (reply.tier, roles(reply)[-1]) == ("large", ("answer", "large"))


@pytest.mark.parametrize("judged", [NoEndpointError("down"), "hm, hard to say"])
async def test_a_draft_without_a_ruling_stands_and_is_called_unverified(judged: Any) -> None:
    below = Below(by_tier(small="42", large=judged))
    reply = await front(below, VERIFY).chat(chat("d"))
    assert reply.choices[0].content == "42"
    assert told(reply).stopped == "failed"
    assert "unverified" in reply.why


async def test_a_failed_draft_leaves_the_large_model_to_answer() -> None:
    below = Below(by_tier(small=NoEndpointError("down"), large="42"))
    reply = await front(below, VERIFY).chat(chat("d"))
    assert (reply.choices[0].content, reply.tier) == ("42", "large")


async def test_a_call_in_a_draft_is_returned_only_once_accepted() -> None:
    below = Below(by_tier(small=calls("read", path="a"), large=['{"ruling": "reject"}', calls("read", path="b")]))
    reply = await front(below, VERIFY).chat(chat("d", tools=(READ,)))
    assert json.loads(reply.choices[0].tool_calls[0].arguments) == {"path": "b"}
    assert not below.requests[1].tools, "the judge is given no tools to call"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"ruling": "accept"}', "accept"),
        ('```json\n{"ruling": "Reject", "why": "x"}\n```', "reject"),
        ("I would amend it.", "amend"),
        ('{"ruling": "maybe"}', "none"),
        ("", "none"),
        ("[]", "none"),
        ('{"ruling": null}', "none"),
    ],
)
def test_rulings_are_read_leniently_and_never_made_up(text: str, found: str) -> None:
    assert ruling_in(text)[0] == found


# --- what is common to all


@pytest.mark.parametrize("settings", [VOTE, FUSE, VERIFY, CASCADE])
async def test_several_samples_go_straight_to_one_tier_and_that_is_told(settings: Any) -> None:
    (name,) = settings
    below = Below(by_tier(small="x", large="y"))
    reply = await front(below, settings).chat(chat(name, n=4))
    assert len(reply.choices) == 4
    assert "4 samples are wanted" in reply.why
    assert len(below.requests) == 1


@pytest.mark.parametrize("settings", [FUSE, VERIFY])
async def test_a_raw_completion_that_cannot_be_merged_goes_to_the_judges_tier(settings: Any) -> None:
    (name,) = settings
    below = Below(by_tier(large="y"))
    reply = await front(below, settings).complete(CompletionRequest(tier=name, prompt="p", session="s"))
    assert (reply.tier, reply.choices[0].content) == ("large", "y")
    assert "raw completion" in reply.why


async def test_a_budget_too_small_for_the_prompt_is_an_overflow_with_the_mend() -> None:
    settings = {"v": {**VOTE["v"], "budget": 256}}
    below = Below(by_tier(small="x"))
    with pytest.raises(ContextOverflowError, match=r"raise pool\.virtual\.v\.budget") as caught:
        await front(below, settings).chat(chat("v", "word " * 1000))
    assert caught.value.window == 256
    assert not below.requests


async def test_the_deadline_covers_all_parts() -> None:
    class Late(Below):
        async def chat(self, request: ChatRequest) -> Reply:
            await asyncio.sleep(0.12)
            return await super().chat(request)

    below = Late(by_tier(small=sure("41", -9.0), large="42"))
    reply = await front(below, CASCADE).chat(chat("c", deadline=0.15))
    assert reply.choices[0].content == "41"
    assert told(reply).stopped == "deadline"
    assert below.requests[0].deadline <= 0.15


async def test_cancelling_reaches_the_drafts() -> None:
    gone = 0

    class Hanging(Below):
        async def chat(self, request: ChatRequest) -> Reply:
            nonlocal gone
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                gone += 1
                raise
            raise AssertionError

    task = asyncio.create_task(front(Hanging([]), FUSE).chat(chat("f")))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone == 2


async def test_the_end_of_a_session_ends_its_side_sessions() -> None:
    below = Below(by_tier(small="42", large='{"ruling": "accept"}'))
    tiers = front(below, VERIFY)
    await tiers.chat(chat("d"))
    tiers.end_session("s")
    used = {request.session for request in below.requests}
    assert used <= set(below.ended)


async def test_native_tools_hold_for_a_virtual_model_only_where_all_its_tiers_have_them() -> None:
    assert await front(Below([], native={"small": True, "large": True}), FUSE).native_tools("f")
    assert not await front(Below([], native={"small": False, "large": True}), FUSE).native_tools("f")


@pytest.mark.parametrize(
    ("name", "model", "words"),
    [
        ("auto", {"kind": "vote", "tiers": ("small",)}, "a policy chooses; give the virtual model another name"),
        ("f", {"kind": "fuse", "tiers": ("small",)}, "nothing to merge in one draft"),
        ("f", {"kind": "fuse", "tiers": ("small",), "judge": "large"}, "nothing to merge in one draft"),
    ],
)
def test_a_virtual_model_that_means_nothing_is_refused_with_the_mend(name: str, model: Any, words: str) -> None:
    with pytest.raises(PoolConfigError, match=words):
        front(Below(by_tier()), {name: model})
