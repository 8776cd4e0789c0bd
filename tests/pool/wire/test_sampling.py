"""How tokens are to be drawn, as each kind of server is told."""

from __future__ import annotations

import pytest

from pool.types import ChatRequest, Message, Sampling, Served, ServerKind
from pool.wire.fields import chat_body

SAMPLING = Sampling(top_p=0.8, top_k=20, min_p=0.0, repetition_penalty=1.05, presence_penalty=1.5)


def body(kind: ServerKind, **more: object) -> dict[str, object]:
    asked = ChatRequest.model_validate(
        {"tier": "t", "session": "s", "messages": (Message(role="user", content="hi"),), **more}
    )
    return chat_body(asked, Served(kind=kind, model="m"), 1)


def test_a_request_without_wishes_says_nothing_of_them() -> None:
    for kind in ("vllm", "llamacpp", "other"):
        assert set(body(kind)) == {"model", "max_tokens", "temperature", "n", "messages"}


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("vllm", {"top_p": 0.8, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.05, "presence_penalty": 1.5}),
        ("llamacpp", {"top_p": 0.8, "top_k": 20, "min_p": 0.0, "repeat_penalty": 1.05, "presence_penalty": 1.5}),
        ("other", {"top_p": 0.8, "presence_penalty": 1.5}),
    ],
)
def test_each_server_is_told_in_its_own_words_and_nothing_that_it_would_ignore(
    kind: ServerKind, told: dict[str, object]
) -> None:
    sent = body(kind, sampling=SAMPLING)
    assert {name: sent[name] for name in sent if name not in body(kind)} == told


def test_switches_of_a_template_go_where_there_is_a_template_that_reads_them() -> None:
    switched = {"template": {"enable_thinking": False}}
    assert body("vllm", **switched)["chat_template_kwargs"] == {"enable_thinking": False}
    assert body("llamacpp", **switched)["chat_template_kwargs"] == {"enable_thinking": False}
    assert "chat_template_kwargs" not in body("other", **switched)


def test_effort_is_a_field_of_its_own_but_for_llamacpp_whose_templates_read_it() -> None:
    assert body("vllm", effort="high")["reasoning_effort"] == "high"
    assert body("other", effort="high")["reasoning_effort"] == "high"
    sent = body("llamacpp", effort="high")
    assert "reasoning_effort" not in sent
    assert sent["chat_template_kwargs"] == {"reasoning_effort": "high"}
