"""Log-probabilities are read in every shape that servers send, and what is not told stays unknown."""

from __future__ import annotations

import pytest

from pool.types import ChatRequest, CompletionRequest, Message, Served
from pool.wire.assembly import Assembly, whole
from pool.wire.fields import chat_body, completion_body
from pool.wire.logprobs import Likely, joined, read_logprobs

SERVED = Served(kind="vllm", model="m", window=4096)
ENTRIES = [
    {"token": "4", "logprob": -0.1, "top_logprobs": [{"token": "4", "logprob": -0.1}, {"token": "5", "logprob": -2.6}]},
    {"token": "2", "logprob": -0.2, "top_logprobs": [{"token": "2", "logprob": -0.2}, {"token": "3", "logprob": -1.2}]},
]


def test_they_are_asked_for_only_where_the_caller_wants_them() -> None:
    ask = ChatRequest(tier="t", session="s", messages=(Message(role="user", content="x"),))
    assert "logprobs" not in chat_body(ask, SERVED, 1)
    told = chat_body(ask.model_copy(update={"logprobs": True}), SERVED, 1)
    assert (told["logprobs"], told["top_logprobs"]) == (True, 2)
    raw = CompletionRequest(tier="t", session="s", prompt="x", logprobs=True)
    assert completion_body(raw, SERVED, 1)["logprobs"] == 2


def test_chat_entries_give_tokens_and_margins() -> None:
    likely = read_logprobs({"content": ENTRIES})
    assert likely.tokens == ("4", "2")
    assert likely.logprobs == (-0.1, -0.2)
    assert likely.margins == pytest.approx((2.5, 1.0))


def test_parallel_lists_of_completions_are_read_and_a_first_unknown_is_left_out() -> None:
    told = {
        "tokens": ["a", "b", "c"],
        "token_logprobs": [None, -0.5, -0.25],
        "top_logprobs": [None, {"b": -0.5, "x": -1.5}, {"c": -0.25, "y": -3.25}],
    }
    assert read_logprobs(told) == Likely(("b", "c"), (-0.5, -0.25), (1.0, 3.0))


def test_margins_told_for_some_tokens_only_are_not_passed_off_as_all() -> None:
    half = [ENTRIES[0], {**ENTRIES[1], "top_logprobs": []}]
    fields = read_logprobs({"content": half}).fields()
    assert fields["logprobs"] == (-0.1, -0.2)
    assert fields["margins"] == ()


@pytest.mark.parametrize("odd", [{"content": [{"token": "x"}]}, {"tokens": ["a"], "token_logprobs": []}])
def test_odd_shapes_are_errors_and_no_numbers(odd: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        read_logprobs(odd)


def test_silence_is_unknown() -> None:
    assert read_logprobs(None) == Likely()
    assert joined([]) == Likely()


def test_a_whole_answer_and_a_streamed_one_come_to_the_same() -> None:
    message = {"role": "assistant", "content": "42"}
    one = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": ENTRIES, "refusal": None}}
    (from_whole,), _ = whole({"id": "i", "model": "m", "choices": [one]})
    pieces = Assembly()
    for entry, end in zip(ENTRIES, (None, "stop"), strict=True):
        told = {"content": [entry], "refusal": None}
        part = {"index": 0, "delta": {"content": entry["token"]}, "finish_reason": end, "logprobs": told}
        pieces.add({"id": "i", "model": "m", "choices": [part]})
    (from_pieces,), _ = pieces.done()
    assert from_whole == from_pieces
    assert from_whole.logprobs == (-0.1, -0.2)
