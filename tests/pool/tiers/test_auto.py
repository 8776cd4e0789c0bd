"""The tier `auto` from end to end: sticky by session, it climbs and steps down on what answers showed, in the open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pool.config import AutoConfig
from pool.errors import ContextOverflowError, NoEndpointError, PermanentError, PoolConfigError, TransientError
from pool.tiers.evidence import Book
from pool.tiers.front import Tiers
from pool.tiers.size import LEFT_OUT, compacted
from pool.types import ChatRequest, CompletionRequest, Message, ToolCall, Traits
from tests.pool.tiers.below import READ, Below, by_tier, calls, chat, config, front, sure

GOOD = "a good answer"
WINDOWS = {"small": 4000, "large": 4000}


def asked(**more: Any) -> ChatRequest:
    return chat("auto", tools=(READ,), **more)


def looping(*cycle: str, times: int) -> tuple[Message, ...]:
    """A conversation in which the model reads the same files again and again."""
    messages = [Message(role="user", content="find it")]
    for path in cycle * times:
        call = ToolCall(id="c", name="read", arguments=json.dumps({"path": path}))
        messages.append(Message(role="assistant", tool_calls=(call,)))
        messages.append(Message(role="tool", content=f"text of {path}", tool_call_id="c"))
    return tuple(messages)


async def test_a_plain_tier_passes_straight_through() -> None:
    below = Below(by_tier(small=GOOD))
    request = chat("small")
    reply = await front(below).chat(request)
    assert below.requests == [request]
    assert below.requests[0] is request
    assert (reply.why, reply.report) == ("", None)


async def test_a_name_that_is_none_is_told_by_the_pool() -> None:
    below = Below(lambda request: PoolConfigError(f"no endpoint serves the tier {request.tier!r}"))
    with pytest.raises(PoolConfigError, match="nonsense"):
        await front(below).chat(chat("nonsense"))


async def test_the_reply_tells_the_tier_and_why() -> None:
    below = Below(by_tier(small=GOOD), windows=WINDOWS)
    tiers = front(below)
    first, second = await tiers.chat(asked()), await tiers.chat(asked())
    assert (first.tier, second.tier) == ("small", "small")
    assert first.why == "auto: a session begins on the weakest tier"
    assert "stays" in second.why


@pytest.mark.parametrize("bad", [calls("nothing"), calls("read", paht="x")], ids=["unknown tool", "wrong arguments"])
async def test_two_calls_that_nobody_can_run_climb(bad: Any) -> None:
    below = Below(by_tier(small=bad, large=GOOD), windows=WINDOWS)
    tiers = front(below)
    replies = [await tiers.chat(asked()) for _ in range(3)]
    assert [reply.tier for reply in replies] == ["small", "small", "large"]
    assert "climbs: 2 of the last answers could not be used" in replies[2].why


async def test_answers_out_of_schema_climb() -> None:
    schema = {"type": "object", "required": ["x"]}
    below = Below(by_tier(small="{}", large='{"x": 1}'), windows=WINDOWS)
    tiers = front(below)
    assert [(await tiers.chat(asked(json_schema=schema))).tier for _ in range(3)] == ["small", "small", "large"]


async def test_a_cyclic_tool_loop_climbs() -> None:
    """weave-os/router#337: a cycle of several different calls, which no count of equal neighbours sees."""
    below = Below(by_tier(small=GOOD, large=GOOD), windows=WINDOWS)
    tiers = front(below, auto=AutoConfig(settle=1))
    await tiers.chat(asked(messages=looping("a", "b", times=2)))
    reply = await tiers.chat(asked(messages=looping("a", "b", times=3)))
    assert reply.tier == "large"
    assert "3 rounds of the same calls" in reply.why


async def test_one_call_repeated_climbs_and_is_not_held_against_the_tier_above() -> None:
    """BerriAI/litellm#39809: repeated identical tool calls raise the tier; there it could only ever go up."""
    below = Below(by_tier(small=GOOD, large=GOOD, huge=GOOD), windows=WINDOWS)
    tiers = front(below, tiers="small large huge", auto=AutoConfig(settle=1))
    await tiers.chat(asked(messages=looping("a", times=2)))
    climbed = [await tiers.chat(asked(messages=looping("a", times=3))) for _ in range(3)]
    assert [reply.tier for reply in climbed] == ["large", "large", "large"]


async def test_failed_checks_told_by_the_caller_climb_and_a_passed_one_clears_them() -> None:
    below = Below(by_tier(small=GOOD, large=GOOD), windows=WINDOWS)
    tiers = front(below)
    for failed in (True, False, True):
        await tiers.chat(asked())
        tiers.note("s", failed_check=failed)
    assert (await tiers.chat(asked())).tier == "small"
    tiers.note("s", failed_check=True)
    reply = await tiers.chat(asked())
    assert reply.tier == "large"
    assert "2 failed checks" in reply.why


async def test_unsure_answers_climb_and_logprobs_are_asked_for_only_where_configured() -> None:
    below = Below(by_tier(small=sure("hm", -3.0), large=sure("yes")), windows=WINDOWS)
    tiers = front(below, auto=AutoConfig(ask_logprobs=True))
    assert [(await tiers.chat(asked())).tier for _ in range(3)] == ["small", "small", "large"]
    assert all(request.logprobs for request in below.requests)
    plain = Below(by_tier(small=GOOD))
    await front(plain).chat(asked())
    assert not plain.requests[0].logprobs


async def test_calm_steps_down_and_flapping_costs_more_calm_each_time() -> None:
    below = Below(by_tier(small=calls("nothing"), large=GOOD), windows=WINDOWS)
    tiers = front(below, auto=AutoConfig(calm=3))
    seen = [(await tiers.chat(asked())).tier for _ in range(24)]
    runs = "".join(tier[0] for tier in seen)
    assert runs == "ss" + "lll" + "ss" + "llllll" + "ss" + "l" * 9


async def test_a_step_down_is_recorded_in_the_reply() -> None:
    below = Below(by_tier(small=[calls("nothing"), calls("nothing"), GOOD], large=GOOD), windows=WINDOWS)
    tiers = front(below, auto=AutoConfig(calm=2))
    replies = [await tiers.chat(asked()) for _ in range(5)]
    assert [reply.tier for reply in replies] == ["small", "small", "large", "large", "small"]
    assert replies[4].why == "auto steps down: 2 good answers in a row on large"


async def test_sessions_do_not_share_their_trouble() -> None:
    below = Below(by_tier(small=calls("nothing"), large=GOOD), windows=WINDOWS)
    tiers = front(below)
    for _ in range(3):
        await tiers.chat(asked(session="troubled"))
    assert (await tiers.chat(asked(session="fresh"))).tier == "small"
    assert (await tiers.chat(asked(session="troubled"))).tier == "large"


async def test_an_overflow_climbs_to_the_longer_window_within_the_same_request() -> None:
    """SWE-agent/mini-swe-agent#721: there an overflow ended the whole run."""
    below = Below(by_tier(small=ContextOverflowError("too long", 4000), large=GOOD))
    tiers = front(below)
    reply = await tiers.chat(asked())
    assert below.asked == ["small", "large"]
    assert reply.tier == "large"
    assert "do not fit small" in reply.why
    assert (await tiers.chat(asked())).tier == "large"
    assert below.asked == ["small", "large", "large"], "what a tier refused once is not sent there again"


async def test_an_overflow_everywhere_compacts_once_and_says_so() -> None:
    messages = looping(*"abcdefgh", times=1)
    long = tuple(
        message.model_copy(update={"content": "word " * 400}) if message.role == "tool" else message
        for message in messages
    )

    def fits(request: ChatRequest | CompletionRequest) -> Any:
        whole = sum(len(message.content) for message in request.messages)  # type: ignore[union-attr]
        return GOOD if whole < 8000 else ContextOverflowError("too long", 4000)

    below = Below(fits, windows={"small": None, "large": None})
    reply = await front(below).chat(asked(messages=long))
    assert below.asked == ["small", "large", "large"]
    assert reply.why.endswith("old tool results were left out")
    sent = below.requests[-1].messages  # type: ignore[union-attr]
    assert [message.role for message in sent] == [message.role for message in long]
    assert [message.content for message in sent if message.role == "tool"][-3:] == ["word " * 400] * 3
    assert sum(message.content == LEFT_OUT for message in sent) == 5


async def test_an_overflow_that_nothing_mends_is_raised_typed_and_ends() -> None:
    below = Below(by_tier(small=ContextOverflowError("too long", 4000), large=ContextOverflowError("too long", 9000)))
    with pytest.raises(ContextOverflowError) as caught:
        await front(below).chat(asked(messages=looping("a", times=1)))
    assert caught.value.window == 9000
    assert below.asked == ["small", "large"]


async def test_compaction_can_be_switched_off() -> None:
    below = Below(by_tier(small=ContextOverflowError("x"), large=ContextOverflowError("x")))
    long = looping(*"abcdefgh", times=1)
    with pytest.raises(ContextOverflowError):
        await front(below, auto=AutoConfig(compact=False)).chat(asked(messages=long))
    assert len(below.requests) == 2


def test_compacting_keeps_every_call_answered_and_short_results() -> None:
    messages = looping(*"abcdef", times=1)
    assert compacted(messages) == messages, "results shorter than the words that stand for them stay"


async def test_a_tier_that_nobody_serves_any_more_is_left_upwards() -> None:
    below = Below(by_tier(small=NoEndpointError("all down"), large=GOOD), windows=WINDOWS)
    reply = await front(below).chat(asked())
    assert reply.tier == "large"
    assert "no endpoint of small is up" in reply.why


async def test_the_strongest_tier_going_away_never_lowers_a_session() -> None:
    below = Below(by_tier(small=calls("nothing"), large=[GOOD, NoEndpointError("all down")]), windows=WINDOWS)
    tiers = front(below)
    for _ in range(3):
        await tiers.chat(asked())
    with pytest.raises(NoEndpointError):
        await tiers.chat(asked())
    assert below.asked == ["small", "small", "large", "large"]


@pytest.mark.parametrize("error", [PermanentError("no"), TransientError("torn")])
async def test_other_errors_are_the_callers_and_move_nobody(error: Exception) -> None:
    below = Below(by_tier(small=[error, GOOD]), windows=WINDOWS)
    tiers = front(below)
    with pytest.raises(type(error)):
        await tiers.chat(asked())
    assert (await tiers.chat(asked())).tier == "small"


async def test_a_dear_climb_is_priced_by_the_pool() -> None:
    below = Below(by_tier(small=calls("nothing"), large=GOOD), windows=WINDOWS)
    below.prices = {"large": 45.0}
    tiers = front(below)
    replies = [await tiers.chat(asked()) for _ in range(5)]
    assert [reply.tier for reply in replies] == ["small"] * 4 + ["large"]
    assert "not yet worth 45 s" in replies[2].why
    assert "(45.0 s to its first token)" in replies[4].why


async def test_raw_completions_are_chosen_for_as_well() -> None:
    below = Below(by_tier(small=["", "", "x"], large=GOOD), windows=WINDOWS)
    tiers = front(below)
    request = CompletionRequest(tier="auto", prompt="def f(", session="s")
    assert [(await tiers.complete(request)).tier for _ in range(3)] == ["small", "small", "large"]


async def test_configured_order_and_choice_of_tiers_win() -> None:
    below = Below(by_tier(large=GOOD, small=GOOD))
    assert (await front(below, tier_order=("large", "small")).chat(asked())).tier == "large"
    assert (await front(below, auto=AutoConfig(tiers=("large",))).chat(asked())).tier == "large"


async def test_streaming_callers_settle_and_learn_themselves() -> None:
    below = Below(by_tier(small=calls("nothing"), large=GOOD), windows=WINDOWS)
    tiers = front(below)
    for expected in ("small", "small", "large"):
        settled = tiers.settle(asked())
        assert settled.request.tier == expected
        tiers.learn(settled, await below.chat(settled.request))  # type: ignore[arg-type]
    assert settled.why.startswith("auto climbs")


async def test_the_end_of_a_session_is_forgotten_here_and_told_below() -> None:
    below = Below(by_tier(small=calls("nothing"), large=GOOD), windows=WINDOWS)
    tiers = front(below)
    for _ in range(3):
        await tiers.chat(asked())
    tiers.end_session("s")
    assert below.ended == ["s"]
    assert (await tiers.chat(asked())).tier == "small"


def test_sessions_remembered_are_bounded_and_the_longest_idle_goes_first() -> None:
    book = Book(AutoConfig(sessions=3))
    for name in "abc":
        book.note(name, failed_check=True)
    book.of("a")
    book.note("d", failed_check=True)
    assert len(book) == 3
    assert book.of("a").failed_checks == 1
    assert book.of("b").failed_checks == 0


async def test_signs_of_one_session_are_bounded_however_long_it_lasts() -> None:
    below = Below(by_tier(small=GOOD), windows=WINDOWS)
    tiers = front(below, tiers="small")
    for _ in range(300):
        await tiers.chat(asked())
    assert len(tiers._auto.book.of("s").signs) <= 16


@pytest.mark.parametrize(
    ("natives", "told"),
    [
        ({"small": True, "large": True}, True),
        ({"small": True, "large": False}, False),
        ({"small": True, "large": NoEndpointError("down")}, True),
    ],
)
async def test_native_tools_hold_for_auto_only_where_every_living_tier_has_them(natives: Any, told: bool) -> None:
    assert await front(Below([], native=natives)).native_tools("auto") is told


async def test_traits_of_auto_are_the_least_of_what_is_up() -> None:
    tiers = front(Below([], native={"small": True, "large": False}, windows={"small": 4000, "large": 9000}))
    assert await tiers.traits("small") == Traits(model="m-small", window=4000, longest=4000, native=True)
    assert await tiers.traits("auto") == Traits(window=4000, longest=9000)
    gone = Below([], native={"small": NoEndpointError("down"), "large": True}, windows={"large": 9000})
    assert await front(gone).traits("auto") == Traits(model="m-large", window=9000, longest=9000, native=True)


async def test_native_tools_of_auto_with_nobody_up_are_unknown() -> None:
    gone = NoEndpointError("down")
    with pytest.raises(NoEndpointError, match="auto"):
        await front(Below([], native={"small": gone, "large": gone})).native_tools("auto")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (config("small", "auto"), "another name"),
        (config("small", virtual={"small": {"kind": "vote", "tiers": ("small",)}}), "name of a tier"),
        (config("small", virtual={"v": {"kind": "vote", "tiers": ("smal",)}}), "no endpoint serves"),
        (config("small", virtual={"v": {"kind": "vote", "tiers": ("small",), "judge": "x"}}), "no endpoint serves"),
        (config("small", virtual={"v": {"kind": "confidence", "tiers": ("small",)}}), "two tiers"),
        (config("small", virtual={"v": {"kind": "draft-verify", "tiers": ("small",)}}), "another tier"),
        (config("small", "large", tier_order=("large",)), "leaves out"),
        (config("small", "large", tier_order=("large", "small", "large")), "twice"),
        (config("small", tier_order=("small", "x")), "no endpoint serves"),
        (config("small", auto=AutoConfig(tiers=("x",))), "no endpoint serves"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_mend(settings: Any, words: str) -> None:
    with pytest.raises(PoolConfigError, match=words):
        Tiers(Below([]), settings)


async def test_a_tier_whose_last_endpoint_was_removed_is_no_tier_to_begin_on() -> None:
    below = Below(by_tier(small=PoolConfigError("no endpoint serves the tier 'small'"), large=GOOD), windows=WINDOWS)
    tiers = front(below)
    below.windows = {"large": 4000}
    reply = await tiers.chat(asked())
    assert (reply.tier, below.asked) == ("large", ["large"])
    assert await tiers.native_tools("auto")


async def test_a_session_whose_tier_was_removed_begins_anew_on_the_weakest_that_is_left() -> None:
    below = Below(by_tier(small=GOOD, large=GOOD), windows={"large": 4000})
    tiers = front(below)
    await tiers.chat(asked())
    below.windows = {"small": 4000}
    assert (await tiers.chat(asked())).tier == "small"


@pytest.mark.parametrize("gone", ["small", "large"])
async def test_a_tier_that_is_removed_just_before_it_is_asked_leaves_the_request_to_another(gone: str) -> None:
    def play(request: ChatRequest | CompletionRequest) -> Any:
        if request.tier == gone:
            below.windows = {tier: 4000 for tier in WINDOWS if tier != gone}
            return PoolConfigError(f"no endpoint serves the tier {gone!r}")
        return GOOD

    below = Below(play, windows={gone: 4000, **WINDOWS} if gone == "small" else {"large": 4000})
    reply = await front(below).chat(asked())
    assert (reply.tier, below.asked) == (({"small", "large"} - {gone}).pop(), [gone, reply.tier])


async def test_a_pool_without_any_endpoint_says_so_once() -> None:
    below = Below(lambda request: PoolConfigError(f"no endpoint serves the tier {request.tier!r}"))
    with pytest.raises(PoolConfigError, match="no endpoint serves"):
        await front(below).chat(asked())
    assert len(below.asked) <= 2
