"""Bad news in OpenAI's shape."""

from __future__ import annotations

import json

import pytest

from pool.errors import (
    ContextOverflowError,
    EndpointDeadError,
    ModelMissingError,
    NoEndpointError,
    OverloadError,
    PermanentError,
    PoolConfigError,
    PoolError,
    TransientError,
)
from pool.gateway.replies import Refusal, refusal_of


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (PermanentError("no", 422), 422, "refused_upstream"),
        (PermanentError("no", 418), 400, "refused_upstream"),
        (PermanentError("key", 401), 502, "upstream_key"),
        (PermanentError("key", 403), 502, "upstream_key"),
        (ModelMissingError("gone", 404), 404, "model_not_found"),
        (PoolConfigError("no such tier"), 404, "model_not_found"),
        (ContextOverflowError("long", 4096), 400, "context_length_exceeded"),
        (OverloadError("full", 2.5), 503, "overloaded"),
        (NoEndpointError("none"), 503, "no_endpoint"),
        (TransientError("torn"), 502, "upstream_failed"),
        (EndpointDeadError("dead"), 502, "upstream_failed"),
        (PoolError("else"), 502, "upstream_failed"),
    ],
)
def test_each_error_of_the_pool_has_its_status(error: PoolError, status: int, code: str) -> None:
    refusal = refusal_of(error)
    assert (refusal.status, refusal.code) == (status, code)
    body = json.loads(refusal.body())["error"]
    assert set(body) == {"message", "type", "param", "code"}


def test_an_overflow_begins_as_agents_expect_and_tells_the_window() -> None:
    """SWE-agent/mini-swe-agent#721: an overflow that is not recognised ends the run."""
    told = refusal_of(ContextOverflowError("endpoint a: too long", 4096)).message
    assert told.startswith("This model's maximum context length is 4096 tokens.")
    already = "endpoint a: 400 This model's maximum context length is 4096 tokens. You asked for more."
    assert refusal_of(ContextOverflowError(already, 4096)).message.count("maximum context") == 1


def test_when_to_come_back_is_whole_seconds_rounded_up() -> None:
    assert dict(refusal_of(OverloadError("full", 2.5)).headers()) == {
        b"retry-after": b"3",
        b"retry-after-ms": b"2500",
    }
    assert dict(refusal_of(NoEndpointError("none")).headers())[b"retry-after"] == b"1"


def test_an_error_inside_a_stream_is_no_clean_end() -> None:
    first, last = Refusal(502, 'torn "here"\n', "upstream_failed").event().decode().split("\n\n")[:2]
    error = json.loads(first.removeprefix("data: "))["error"]
    assert error["code"] == 502
    assert error["message"] == 'torn "here"\n'
    assert last == "data: [DONE]"
