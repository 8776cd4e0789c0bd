"""Errors as OpenAI's clients expect them: status, headers and body for each kind of bad news; pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pool.errors import (
    CapabilityError,
    ContextOverflowError,
    MisconfiguredError,
    ModelMissingError,
    NoEndpointError,
    OverloadError,
    PermanentError,
    PoisonError,
    PoolConfigError,
    PoolError,
)

LATER = 1.0  # seconds after which to come back where nobody told
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}

OUR_SIDE: dict[type[PoolError], str] = {  # no fault of the caller's, and nothing that passes
    MisconfiguredError: "upstream_misconfigured",
    PoisonError: "breaks_servers",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request turned down. ``retry_after`` is in seconds; ``code`` is for programs, ``param`` names the field."""

    status: int
    message: str
    code: str
    param: str | None = None
    retry_after: float | None = None

    def body(self) -> bytes:
        """OpenAI's shape, which is also vLLM's."""
        return dumps({"error": self.error()})

    def error(self) -> dict[str, Any]:
        """The object inside."""
        kind = KINDS.get(self.status, "server_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    def headers(self) -> list[tuple[bytes, bytes]]:
        """When to come back, whole seconds and milliseconds (RFC 9110, 10.2.3; the SDK reads both)."""
        if self.retry_after is None:
            return []
        seconds = max(1, math.ceil(self.retry_after))
        milliseconds = max(1, math.ceil(self.retry_after * 1000))
        return [(b"retry-after", b"%d" % seconds), (b"retry-after-ms", b"%d" % milliseconds)]

    def event(self) -> bytes:
        """The error inside a stream that began well, as vLLM says it; it is no clean end, though [DONE] follows."""
        return b"data: " + dumps({"error": self.error() | {"code": self.status}}) + b"\n\ndata: [DONE]\n\n"


class RefusedError(Exception):
    """Carries a refusal to whoever answers the client."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def wrong(message: str, param: str | None = None, code: str = "invalid_value") -> RefusedError:
    """The request cannot be served as it is."""
    return RefusedError(Refusal(400, message, code, param))


@contextmanager
def well_formed() -> Iterator[None]:
    """While a body is read: what is of quite another shape than the API says is the caller's mistake."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise wrong("a field of the body is of another type than the API gives it") from None


def refusal_of(error: PoolError) -> Refusal:
    """What a client is told of a pool's error. Messages of the pool hold no keys."""
    told = str(error)
    if isinstance(error, OverloadError):
        return Refusal(503, told, "overloaded", retry_after=error.retry_after or LATER)
    if isinstance(error, NoEndpointError):
        return Refusal(503, told, "no_endpoint", retry_after=LATER)
    if isinstance(error, PoolConfigError | PermanentError | ContextOverflowError):
        return _permanent(error, told)
    return Refusal(502, told, "upstream_failed")


def _permanent(error: PoolError, told: str) -> Refusal:
    if isinstance(error, ContextOverflowError):
        # agents look for this code and for this beginning
        start = "This model's maximum context length is"
        head = "" if start in told or error.window is None else f"{start} {error.window} tokens. "
        return Refusal(400, head + told, "context_length_exceeded", "messages")
    if isinstance(error, PoolConfigError | ModelMissingError):
        return Refusal(404, told, "model_not_found", "model")
    status = error.status if isinstance(error, PermanentError) else 400
    if status in (401, 403):
        return Refusal(502, "the model server refused the gateway's own key; see swarm pool status", "upstream_key")
    if isinstance(error, CapabilityError):
        return Refusal(400, told, "unsupported", error.field)
    if code := OUR_SIDE.get(type(error)):
        return Refusal(502, told, code)
    return Refusal(status if status in KINDS else 400, told, "refused_upstream")


def dumps(value: Any) -> bytes:
    """JSON, short."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
