"""Budgets hold whatever is asked and however it goes; a brief really is shorter and keeps task and latest turns."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.config import VirtualConfig
from pool.errors import ContextOverflowError, PoolError, TransientError
from pool.tiers import size
from pool.tiers.brief import SMALLEST, brief, transcript
from pool.tiers.purse import LEAST, Purse
from pool.tiers.virtual import answer
from pool.types import ChatRequest, Choice, CompletionRequest, Message, Reply, ToolCall, Usage
from tests.pool.tiers.below import Below, chat, front

KINDS: dict[str, dict[str, Any]] = {
    "confidence": {"tiers": ("a", "b", "c")},
    "vote": {"tiers": ("a", "b"), "samples": 7, "judge": "c"},
    "fuse": {"tiers": ("a", "b", "c"), "judge": "c"},
    "draft-verify": {"tiers": ("a", "c")},
}


class Tokenizing(Below):
    """Counts tokens at a fixed rate, reads the prompt anew for each sample, writes as much as it may, and now and then
    fails, answers nonsense or what a judge would say."""

    def __init__(self, seed: int, per_token: float) -> None:
        super().__init__([])
        self.dice = random.Random(seed)  # noqa: S311  dice of a test
        self.per_token = per_token

    async def chat(self, request: ChatRequest) -> Reply:
        return await self.play(request)

    async def complete(self, request: CompletionRequest) -> Reply:
        return await self.play(request)

    async def play(self, request: ChatRequest | CompletionRequest) -> Reply:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.dice.random() < 0.15:
            raise TransientError("torn")
        said = ["x", "y", "", '{"best": 1}', '{"ruling": "amend"}', '{"ruling": "reject"}', "long " * 40]
        usage = Usage(
            prompt_tokens=request.n * int(size.chars(request) / self.per_token),
            completion_tokens=request.n * request.max_tokens,
        )
        choices = tuple(Choice(content=self.dice.choice(said)) for _ in range(request.n))
        return Reply(choices=choices, usage=usage, endpoint="e", model="m", seconds=0.0)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(256, 6000),
    st.integers(1, 4000),
    st.integers(1, 40),
    st.integers(0, 10_000),
    st.floats(3.0, 6.0),
)
async def test_no_kind_ever_spends_more_than_its_budget(
    kind: str, budget: int, most: int, messages: int, seed: int, per_token: float
) -> None:
    model = VirtualConfig(kind=kind, budget=budget, **KINDS[kind])  # type: ignore[arg-type]
    request = chat("x", *(f"message {number} " * 8 for number in range(messages)), max_tokens=most)
    below = Tokenizing(seed, per_token)
    try:
        reply = await answer(below, "x", model, request)
    except ContextOverflowError:
        assert not below.requests
        return
    except PoolError:
        return
    report = reply.report
    assert report is not None
    assert report.spent <= budget
    assert report.spent == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert len(report.parts) == len(below.requests)
    assert len(reply.choices) == 1
    assert all(request.max_tokens >= min(most, LEAST) for request in below.requests if request.tools or most >= LEAST)


async def test_what_is_left_ends_a_vote_with_the_best_so_far() -> None:
    model = VirtualConfig(kind="vote", tiers=("a",), samples=9, budget=340)
    below = Below(
        lambda _: Reply(
            choices=(Choice(content=str(len(below.requests) % 3)),),
            usage=Usage(prompt_tokens=10, completion_tokens=100),
            endpoint="e",
            model="m",
            seconds=0.0,
        )
    )
    reply = await answer(below, "x", model, chat("x", max_tokens=100))
    report = reply.report
    assert report is not None
    assert report.stopped == "budget"
    assert len(report.parts) == 3
    assert reply.choices[0].content in {"0", "1", "2"}
    assert "the budget ended it" in report.gained


async def test_an_answer_that_the_budget_cut_off_gets_no_vote() -> None:
    model = VirtualConfig(kind="vote", tiers=("a",), samples=2, budget=256)
    below = Below([Choice(content="half an ans", finish_reason="length"), "42"])
    reply = await answer(below, "x", model, chat("x", max_tokens=4000))
    assert reply.choices[0].content == "42"
    assert below.requests[0].max_tokens < 256


async def test_a_budget_that_pays_no_merge_gives_a_draft_and_says_so() -> None:
    below = Tokenizing(3, 4.0)
    settings = {"f": {"kind": "fuse", "tiers": ("small", "large"), "budget": 260}}
    reply = await front(below, settings).chat(chat("f", "word " * 80, max_tokens=100))
    assert reply.report is not None
    assert reply.report.stopped == "budget"
    assert reply.report.spent <= 260


@given(
    st.integers(256, 10_000),
    st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 9), st.integers(1, 5000)), max_size=8),
)
def test_parts_at_one_time_share_one_purse(budget: int, parts: list[tuple[int, int, int]]) -> None:
    purse = Purse(budget)
    held = []
    for length, samples, most in parts:
        request = chat("x", "a" * length, max_tokens=most)
        if hold := purse.hold(request, samples):
            assert 1 <= hold.samples <= samples
            assert hold.most <= most
            held.append((hold, request))
    assert sum(hold.tokens for hold, _ in held) + purse.left == budget
    for hold, request in held:
        purse.settle(hold, request, None)
    assert purse.left == budget


def test_what_is_kept_for_later_parts_is_not_given_away() -> None:
    purse = Purse(1000)
    hold = purse.hold(chat("x", "a" * 300, max_tokens=5000), keep=600)
    assert hold is not None
    assert hold.tokens <= 400
    assert purse.hold(chat("x", "a" * 300, max_tokens=50), keep=600) is None


def test_a_tokenizer_that_makes_more_of_a_text_is_learnt_from_the_first_reply() -> None:
    purse = Purse(10_000)
    request = chat("x", "a" * 900, max_tokens=10)
    hold = purse.hold(request)
    assert hold is not None
    purse.settle(hold, request, Usage(prompt_tokens=900, completion_tokens=10))
    assert purse.prompt(900) >= 870


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=300)
conversations = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant", "tool"]), content=texts), max_size=30
)


@given(conversations, st.floats(0.05, 0.9))
def test_a_brief_is_really_shorter_or_there_is_none(messages: list[Message], share: float) -> None:
    short = brief(messages, share)
    if short is not None:
        assert len(short) <= share * len(transcript(messages))
        assert len(transcript(messages)) >= SMALLEST


def test_a_brief_keeps_the_task_the_latest_turns_and_what_they_are_about() -> None:
    noise = [
        Message(role="assistant" if number % 2 else "tool", content=f"line of noise {number}\n" * 30)
        for number in range(40)
    ]
    noise[17] = Message(
        role="tool", content="unrelated\n" * 20 + "the flux capacitor needs 1.21 gigawatts\n" + "other\n" * 20
    )
    last = Message(role="user", content="How much does the flux capacitor need?")
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="user", content="Mend the car."),
        *noise,
        last,
    ]
    short = brief(messages, 0.2)
    assert short is not None
    for wanted in ("Be brief.", "Mend the car.", "1.21 gigawatts", last.content):
        assert wanted in short
    assert short.index("Mend the car.") < short.index("1.21") < short.index(last.content)


def test_calls_are_part_of_a_brief() -> None:
    call = ToolCall(id="c", name="read", arguments='{"path": "gate.py"}')
    messages = [
        Message(role="user", content="look " * 300),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="text " * 300, tool_call_id="c"),
        Message(role="user", content="and now?"),
    ]
    short = brief(messages, 0.5)
    assert short is not None
    assert "gate.py" in short


@pytest.mark.parametrize("messages", [[], [Message(role="user", content="short")]])
def test_what_is_short_is_read_whole(messages: list[Message]) -> None:
    assert brief(messages, 0.5) is None
