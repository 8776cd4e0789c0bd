"""An answer is gone on with only where that cannot change what it means."""

from __future__ import annotations

from typing import Any

import pytest

from pool.resume import can, continued, safe, spliced

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "count"}], "max_tokens": 100}
RAW: dict[str, Any] = {"prompt": "1, 2,", "max_tokens": 100}


def test_plain_text_of_one_sample_is_safe() -> None:
    assert safe(CHAT, plain=True)
    assert safe(RAW, plain=True)
    assert safe({**CHAT, "tools": [{}], "tool_choice": "auto"}, plain=True)


@pytest.mark.parametrize(
    "more",
    [{"n": 2}, {"response_format": {"type": "json_object"}}, {"structured_outputs": {"json": {}}}, {"logprobs": True},
     {"tools": [{}], "tool_choice": "required"}, {"add_generation_prompt": False}, {"guided_regex": "x"}],
)  # fmt: skip
def test_what_has_a_form_is_not(more: dict[str, Any]) -> None:
    assert not safe({**CHAT, **more}, plain=True)


def test_after_anything_but_text_it_is_not() -> None:
    """livekit agents-js#2477, aden-hive#5923: never past a tool call."""
    assert not safe(CHAT, plain=False)


@pytest.mark.parametrize("prompt", [[1, 2, 3], ["a", "b"], None])
def test_prompts_that_are_no_text_are_not(prompt: object) -> None:
    assert not safe({"prompt": prompt}, plain=True)


def test_only_servers_that_can_are_asked_to() -> None:
    assert can("vllm", CHAT)
    assert not can("llamacpp", CHAT)
    assert can("llamacpp", RAW)
    assert not can("other", CHAT)
    assert not can(None, RAW)


def test_body_goes_on_behind_what_was_said_with_the_room_that_is_left() -> None:
    further = continued(CHAT, "one two ", 30)
    assert further is not None
    assert further["messages"][-1] == {"role": "assistant", "content": "one two"}
    assert (further["continue_final_message"], further["add_generation_prompt"]) == (True, False)
    assert further["max_tokens"] == 70
    raw = continued(RAW, " 3, 4,", 4)
    assert raw is not None
    assert raw["prompt"] == "1, 2, 3, 4,"
    assert len(CHAT["messages"]) == 1


def test_nothing_is_gone_on_with_when_little_is_left_to_say() -> None:
    assert continued(CHAT, "one two", 95) is None
    assert continued(CHAT, "  \n", 2) is None
    assert continued({"prompt": "x"}, "one", 95) is not None


@pytest.mark.parametrize(
    ("partial", "further", "whole"),
    [("one ", " two", "one two"), ("one ", "two", "one two"), ("one", " two", "one two"), ("a\n\n", "\nb", "a\n\nb"),
     ("a \n", "\tb", "a \n\tb"), ("a ", "", "a ")],
)  # fmt: skip
def test_blanks_at_the_joint_come_once(partial: str, further: str, whole: str) -> None:
    assert spliced(partial, further) == whole
