"""Prompts become chains of keys that are shared exactly as far as the bytes are, however they were made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.placement.blocks import GRAIN, Keys, token_chain, token_root
from pool.placement.view import Prompt
from pool.types import ChatRequest, CompletionRequest, Message, ToolCall, ToolSpec

LONG = "the quick brown fox jumps over the lazy dog. " * 40
TOOL = ToolSpec(name="run", description="run it", parameters={"type": "object"})


def chat(*contents: str, session: str = "s", **fields: Any) -> ChatRequest:
    messages = tuple(Message(role="user" if i % 2 == 0 else "assistant", content=c) for i, c in enumerate(contents))
    return ChatRequest(tier="t", session=session, messages=messages, **fields)


def shared(one: Prompt, other: Prompt) -> int:
    """How many keys two chains share; they may not meet again once they parted."""
    pairs = list(zip(one.chain, other.chain, strict=False))
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    assert all(a != b for a, b in pairs[same:])
    return same


def test_next_turn_continues_the_chain_of_the_last() -> None:
    keys = Keys()
    first, second = keys.chat("m", chat(LONG)), keys.chat("m", chat(LONG, "yes " * 100, "and " * 100))
    assert len(first.chain) == len(LONG) // GRAIN
    assert shared(first, second) == len(first.chain) < len(second.chain)


def test_sessions_share_what_they_have_in_common_and_no_more() -> None:
    keys = Keys()
    one, other = (
        keys.chat("m", chat(LONG, "a" * 500, session="s1")),
        keys.chat("m", chat(LONG, "b" * 500, session="s2")),
    )
    assert len(LONG) // GRAIN <= shared(one, other) < len(one.chain)


@pytest.mark.parametrize(
    "other",
    [
        lambda keys: keys.chat("another model", chat(LONG)),
        lambda keys: keys.chat("m", chat(LONG), "an adapter"),
        lambda keys: keys.chat("m", chat(LONG, cache_salt="of a tenant")),
        lambda keys: keys.chat("m", chat(LONG, tools=(TOOL,))),
        lambda keys: keys.chat("m", chat("X" + LONG)),
    ],
    ids=["model", "adapter", "cache_salt", "tools", "first message"],
)
def test_whatever_a_server_keys_its_cache_by_parts_the_chains_from_the_start(other: Any) -> None:
    keys = Keys()
    assert shared(keys.chat("m", chat(LONG)), other(keys)) == 0


def test_text_that_looks_like_framing_is_not_taken_for_it() -> None:
    keys, inner = Keys(), chat(LONG, LONG).messages[1].model_dump_json(exclude_defaults=True)
    one, two = keys.chat("m", chat(LONG, LONG)), keys.chat("m", chat(LONG + inner, session="other"))
    assert shared(one, two) < len(LONG + LONG) // GRAIN


def test_edited_history_is_hashed_anew_from_the_edit_on() -> None:
    keys = Keys()
    before = keys.chat("m", chat(LONG, "first answer " * 50, LONG))
    after = keys.chat("m", chat(LONG, "other answer " * 50, LONG))
    assert len(LONG) // GRAIN <= shared(before, after) < len(before.chain)
    assert after == Keys().chat("m", chat(LONG, "other answer " * 50, LONG))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=400), st.booleans()), max_size=12))
def test_what_is_kept_of_a_session_never_changes_its_keys(turns: list[tuple[str, str, bool]]) -> None:
    keys, histories = Keys(grain=16, most_keys=60), {name: [""] for name in "abc"}
    for session, text, anew in turns:
        histories[session] = [text] if anew else [*histories[session], text]
        request = chat(*histories[session], session=session)
        assert keys.chat("m", request).chain == Keys(grain=16).chat("m", request).chain


def test_prompt_made_before_keeps_its_keys_when_its_session_goes_on() -> None:
    keys = Keys()
    first = keys.chat("m", chat(LONG))
    before = list(first.chain)
    keys.chat("m", chat(LONG, LONG))
    assert list(first.chain) == before


def test_kept_keys_are_bounded() -> None:
    keys = Keys(most_keys=100, most_sessions=5)
    for i in range(50):
        keys.chat("m", chat(LONG, session=f"s{i}"))
        assert keys.kept <= 100
    keys.forget_session("m", "s49")
    keys.forget_session("m", "never seen")
    assert keys.kept <= 4 * (len(LONG) // GRAIN + 1)


def test_body_of_a_client_is_read_without_judging_it() -> None:
    keys = Keys()
    body = {"messages": [{"role": "user", "content": LONG}], "tools": [TOOL.model_dump()], "temperature": 1}
    one = keys.body("m", "s", body)
    more = keys.body("m", "s", body | {"messages": [*body["messages"], {"role": "assistant", "content": None}]})  # type: ignore[misc]
    assert shared(one, more) == len(one.chain) > 10
    assert shared(one, keys.body("m", "s2", body | {"cache_salt": "x"})) == 0
    assert shared(one, keys.body("m", "s3", {"messages": body["messages"]})) == 0
    text, longer = keys.body("m", "s4", {"prompt": LONG}), keys.body("m", "s4", {"prompt": LONG + LONG})
    assert shared(text, longer) == len(text.chain) > 10
    ids = list(range(1000))
    assert shared(keys.body("m", "s5", {"prompt": ids}), keys.body("m", "s5", {"prompt": [*ids, 7]})) > 20
    for odd in ({}, {"messages": "no list"}, {"prompt": None}, {"messages": [1, None, []]}):
        assert keys.body("m", "odd", odd).tokens >= 1


def test_half_a_surrogate_pair_has_keys_like_any_text() -> None:
    assert len(Keys().chat("m", chat("\ud800" * 500)).chain) > 5


def test_raw_prompt_and_tool_calls_count() -> None:
    keys = Keys()
    request = CompletionRequest(tier="t", prompt=LONG, session="s")
    longer = request.model_copy(update={"prompt": LONG + LONG})
    assert shared(keys.text("m", request), keys.text("m", longer)) == len(LONG) // GRAIN
    call = Message(role="assistant", tool_calls=(ToolCall(id="1", name="run", arguments=LONG),))
    assert len(keys.chat("m", ChatRequest(tier="t", session="c", messages=(call,))).chain) > 10


def test_tokens_are_learnt_from_what_answers_tell() -> None:
    keys, request = Keys(), chat(LONG)
    guess = keys.chat("m", request)
    assert guess.tokens == pytest.approx(len(LONG) / 4, rel=0.1)
    keys.learn("m", "s", guess, 900)
    assert keys.chat("m", request).tokens == 900
    assert keys.chat("m", request).block_tokens * len(guess.chain) == pytest.approx(900, rel=0.1)
    assert keys.chat("m", chat(LONG, LONG)).tokens == pytest.approx(1800, rel=0.05)
    assert keys.chat("m", chat(LONG, session="new")).tokens == pytest.approx(900, rel=0.05)
    assert keys.chat("z", request).tokens == guess.tokens


def test_nonsense_of_a_server_bends_the_estimate_only_within_bounds() -> None:
    keys, request = Keys(), chat(LONG, session="x")
    for told in (0, -5, 1, 10**9):
        keys.learn("m", "x", keys.chat("m", request), told)
    assert 0.5 <= keys.bytes_per_token("m") <= 16


def test_token_chains_have_whole_blocks_and_their_root_parts_them() -> None:
    ids = list(range(100))
    assert len(token_chain(ids, 16)) == 6
    assert token_chain(ids, 16)[:3] == token_chain(ids[:50], 16)
    assert token_root(None, None) == 0
    roots = {token_root(None, None), token_root("a", None), token_root(None, "a"), token_root("a", "a")}
    assert len(roots) == 4
    assert not set(token_chain(ids, 16)) & set(token_chain(ids, 16, token_root(None, "tenant")))


def test_a_greeting_tells_little_of_how_long_a_book_is() -> None:
    keys, hello = Keys(), chat("hello", session="h")
    keys.learn("m", "h", keys.chat("m", hello), 8)  # mostly names and braces: ten bytes a token
    assert keys.chat("m", chat(LONG)).tokens == pytest.approx(len(LONG) / 4, rel=0.1)
