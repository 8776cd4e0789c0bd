"""What is read in a request before the pool is asked."""

from __future__ import annotations

import json

import pytest

from pool.gateway.reading import CHAT, TEXT, asked_of, deadline_of, read
from pool.gateway.replies import RefusedError

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[1]", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
        (b'{"messages": [1]}', "model"),
        (b'{"model": 5, "messages": [1]}', "model"),
        (b'{"model": "m"}', "messages"),
        (b'{"model": "m", "messages": []}', "messages"),
        (b'{"model": "m", "messages": "hi"}', "messages"),
    ],
)
def test_what_no_server_could_answer_is_refused_with_400(raw: bytes, param: str | None) -> None:
    with pytest.raises(RefusedError) as caught:
        read(CHAT, raw)
    assert caught.value.refusal.status == 400
    assert caught.value.refusal.param == param


def test_unknown_fields_stay_as_they_were() -> None:
    odd = HELLO | {"top_k": 5, "chat_template_kwargs": {"deep": [1, {"x": None}]}, "weird": 1e-30}
    assert read(CHAT, json.dumps(odd).encode()).body == odd


def test_tools_are_needed_only_where_they_may_be_called() -> None:
    tools = HELLO | {"tools": [{"type": "function", "function": {"name": "f"}}]}
    assert read(CHAT, json.dumps(tools).encode()).needs == {"tools"}
    assert not read(CHAT, json.dumps(tools | {"tool_choice": "none"}).encode()).needs
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        assert read(CHAT, json.dumps(tools | {"tool_choice": choice}).encode()).needs == {"forced_tools"}
    assert not read(CHAT, json.dumps(HELLO | {"tools": []}).encode()).needs


def test_no_limit_bounds_nothing() -> None:
    assert read(TEXT, json.dumps({"model": "m", "prompt": "p", "max_tokens": None}).encode()).ceiling is None


@pytest.mark.parametrize(
    ("headers", "stream", "seconds"),
    [
        ({}, False, 600.0),
        ({"x-request-deadline": "5"}, False, 5.0),
        ({"x-request-deadline": "5"}, True, 5.0),
        ({"x-request-deadline": "9999"}, False, 600.0),
        ({"x-request-deadline": ""}, False, 600.0),
        ({"x-stainless-read-timeout": "None"}, False, 600.0),
        ({"x-stainless-read-timeout": "nan"}, False, 600.0),
        ({"x-stainless-read-timeout": "30"}, False, 30.0),
        ({"x-stainless-read-timeout": "30"}, True, 600.0),
        ({"x-request-deadline": "7", "x-stainless-read-timeout": "30"}, False, 7.0),
    ],
)
def test_a_clients_patience_is_the_deadline(headers: dict[str, str], stream: bool, seconds: float) -> None:
    """vllm-project/vllm#20520: a client gave up after 15 minutes and sent again, while the first request went on."""
    assert deadline_of(headers, 600.0, stream=stream) == seconds


def test_every_sample_and_every_prompt_counts_against_the_budget() -> None:
    chat = {"model": "m", "messages": [{"role": "user"}], "max_tokens": 1000}
    assert asked_of(CHAT, chat | {"n": 50}, 0).tokens == 50_000
    text = {"model": "m", "prompt": ["a", "b", "c"], "max_tokens": 10}
    assert asked_of(TEXT, text, 0).tokens == 30
    assert asked_of(TEXT, text | {"prompt": [1, 2, 3]}, 0).tokens == 10
    assert 0 < asked_of(CHAT, chat | {"max_tokens": 2**40}, 0).tokens < 2**41
