"""Every refusal seen in the wild lands in the class that says what can be done about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.errors import (
    ContextOverflowError,
    EndpointDeadError,
    MisconfiguredError,
    ModelMissingError,
    OverloadError,
    PermanentError,
    PoolError,
    TransientError,
)
from pool.wire.faults import classify, retry_after

NESTED, TOP = "nested", "top"


def told(message: str, shape: str = NESTED, **more: object) -> str:
    fields = {"message": message, "type": "BadRequestError", "param": None, "code": 400, **more}
    return json.dumps({"error": fields} if shape == NESTED else {"object": "error", **fields})


OVERFLOWS = {
    "vllm, chat": (
        "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens, "
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
        "(parameter=input_tokens, value=4097)"
    ),
    "vllm, ceiling": (
        "max_tokens=9000 cannot be greater than max_model_len=4096. Please request fewer output tokens. "
        "(parameter=max_tokens, value=9000)"
    ),
    "vllm, older ceiling": (
        "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length is 4096 "
        "tokens and your request has 12 input tokens (9000 > 4096 - 12)."
    ),
    "vllm, older": "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that",
    "llama-cpp-python": "This model's maximum context length is 4096 tokens. However, you requested 5035 tokens",
    "llama.cpp": "request (20031 tokens) exceeds the available context size (4096 tokens), try increasing it",
}


@pytest.mark.parametrize("message", OVERFLOWS.values(), ids=OVERFLOWS.keys())
@pytest.mark.parametrize("shape", [NESTED, TOP])
def test_overflow_is_recognised_and_its_window_read(message: str, shape: str) -> None:
    error = classify("a", 400, told(message, shape), {})
    assert isinstance(error, ContextOverflowError)
    assert error.window == 4096


def test_overflow_by_its_type_alone_takes_the_window_from_the_body() -> None:
    body = (
        '{"error":{"code":400,"message":"reworded","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":7}}'
    )
    error = classify("a", 400, body, {})
    assert isinstance(error, ContextOverflowError)
    assert error.window == 7
    assert isinstance(classify("a", 400, told("reworded", code="context_length_exceeded"), {}), ContextOverflowError)


def test_prompt_that_quotes_an_overflow_is_none() -> None:
    """Servers echo bad input; text from a repository must not decide what the pool does."""
    for quote in OVERFLOWS.values():
        error = classify("a", 400, told(f"invalid value for messages: {quote}"), {})
        assert type(error) is PermanentError


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, told('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'), PermanentError),
        (400, told("Grammar error: Invalid type: nonsense"), PermanentError),
        (401, '{"error":"Unauthorized"}', MisconfiguredError),
        (403, "", MisconfiguredError),
        (404, told("The model `nope` does not exist. Valid aliases: smollm2.", code=404), ModelMissingError),
        (404, '{"detail":"Not Found"}', PermanentError),
        (422, '{"detail":[{"loc":["body"],"msg":"field required"}]}', PermanentError),
        (501, told("not implemented"), PermanentError),
        (307, "", MisconfiguredError),
        (408, "", TransientError),
        (429, told("slow down"), OverloadError),
        (503, told("queue is full", type="ServiceUnavailableError"), OverloadError),
        (503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', OverloadError),
        (500, told("Internal server error"), TransientError),
        (500, told("Context size has been exceeded.", type="server_error"), TransientError),
        (500, told("EngineCore encountered an issue. See stack trace (above) for the root cause."), EndpointDeadError),
        (500, told("The server had an error while processing your request."), EndpointDeadError),  # vLLM 0.33
        (500, told("The server had an error while processing your request. Sorry about that!"), TransientError),
        (502, "<html>Bad Gateway</html>", TransientError),
        (599, "\x00\xff", TransientError),
    ],
)  # fmt: skip
def test_status_and_words_make_the_class(status: int, body: str, kind: type[PoolError]) -> None:
    error = classify("a", status, body, {})
    assert type(error) is kind
    assert "endpoint a" in str(error)


def test_key_that_is_wanted_is_said_to_be_missing() -> None:
    assert "api_key" in str(classify("a", 401, '{"error":"Unauthorized"}', {}))


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (
            "<!DOCTYPE HTML>\n<html><head><title>404 Not\nFound</title></head><body>...</body></html>",
            "a web page: 404 Not Found",
        ),
        ("<html>Bad Gateway</html>", "a web page"),
        ("<htmlish> is a word", "<htmlish> is a word"),
    ],
)
def test_of_a_web_page_its_title_is_told(page: str, told: str) -> None:
    assert str(classify("a", 404, page, {})).endswith(told)


@given(st.text(max_size=3000), st.integers(100, 599))
def test_no_body_breaks_it_and_no_message_breaks_a_log(text: str, status: int) -> None:
    for body in (text, json.dumps({"error": text}), json.dumps({"error": {"message": text}}), json.dumps([text])):
        message = str(classify("a", status, body, {}))
        assert message.isprintable()
        assert len(message) < 600


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({}, None),
    ],
)
def test_retry_after_is_read_or_unknown(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_may_be_a_date() -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < (retry_after({"retry-after": when}) or 0) <= 60
