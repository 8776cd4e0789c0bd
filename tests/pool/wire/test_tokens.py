"""Questions about tokens, between vLLM's words and llama.cpp's."""

from __future__ import annotations

from typing import Any

import pytest

from pool.errors import PermanentError, TransientError
from pool.wire.tokens import asked_of_llamacpp, prompt_of_template, template_of, told_by_llamacpp, told_by_vllm

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"


def test_a_text_is_asked_about_with_the_special_tokens_that_vllm_would_add() -> None:
    asked = asked_of_llamacpp(TOKENIZE, {"model": "m", "prompt": "hi", "return_token_strs": True})
    assert asked == {"content": "hi", "add_special": True, "parse_special": True, "with_pieces": True}
    assert asked_of_llamacpp(TOKENIZE, {"prompt": "hi", "add_special_tokens": False})["add_special"] is False


def test_a_chat_is_asked_about_by_way_of_its_prompt() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": True}
    assert template_of(TOKENIZE, body) == {"messages": body["messages"]}
    asked = asked_of_llamacpp(TOKENIZE, prompt_of_template(body, {"prompt": "<user>hi"}))
    assert asked["content"] == "<user>hi"
    assert template_of(TOKENIZE, {"prompt": "hi"}) is None
    with pytest.raises(TransientError):
        prompt_of_template(body, {})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TOKENIZE, {"prompt": "x", "mm_processor_kwargs": {"a": 1}}),
        (TOKENIZE, {"prompt": "x", "add_generation_prompt": False}),
        (TOKENIZE, {"prompt": 7}),
        (TOKENIZE, {}),
        (DETOKENIZE, {"tokens": [1], "prompt": "x"}),
    ],
)
def test_what_llamacpp_would_ignore_is_refused_by_name(path: str, body: dict[str, Any]) -> None:
    with pytest.raises(PermanentError):
        asked_of_llamacpp(path, body)


def test_its_answers_are_told_as_vllm_tells_them() -> None:
    told = told_by_llamacpp(TOKENIZE, {"tokens": [1, 2]}, 4096)
    assert told == {"count": 2, "max_model_len": 4096, "tokens": [1, 2], "token_strs": None}
    pieces = {"tokens": [{"id": 1, "piece": "hi"}, {"id": 2, "piece": [195]}]}
    assert told_by_llamacpp(TOKENIZE, pieces, None)["token_strs"] == ["hi", "\N{REPLACEMENT CHARACTER}"]
    assert told_by_llamacpp(DETOKENIZE, {"content": "hi"}, None) == {"prompt": "hi"}
    assert told_by_llamacpp(TOKENIZE, {"tokens": []}, 8)["count"] == 0


@pytest.mark.parametrize(
    ("path", "answer"), [(TOKENIZE, {}), (TOKENIZE, {"tokens": "x"}), (DETOKENIZE, {"content": 1})]
)
def test_an_answer_without_what_was_asked_for_is_no_answer(path: str, answer: dict[str, Any]) -> None:
    with pytest.raises(TransientError):
        told_by_llamacpp(path, answer, None)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (TOKENIZE, {}),
        (TOKENIZE, {"count": "http://10.0.0.1"}),
        (TOKENIZE, {"count": True}),
        (TOKENIZE, {"count": -1}),
        (DETOKENIZE, {"count": 3}),
        (DETOKENIZE, {"prompt": None}),
    ],
)
def test_an_answer_of_vllms_that_says_nothing_of_the_kind_is_a_passing_fault(path: str, answer: dict[str, Any]) -> None:
    with pytest.raises(TransientError, match="holds no"):
        told_by_vllm(path, answer)
    assert told_by_vllm(TOKENIZE, {"count": 0, "tokens": [], "more": 1}) == {"count": 0, "tokens": [], "more": 1}
