"""Classes a server's refusal by what can be done about it; pure.

Bodies: vLLM and OpenAI nest ``error``, older vLLM puts the fields on top, an API key's 401 has a bare string, FastAPI
says ``detail``. Only the start of a message is matched, since servers may echo the prompt further on.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

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
from pool.types import Frozen

OVERFLOWS = tuple(
    re.compile(pattern)
    for pattern in (
        r"This model's maximum context length is (?P<window>\d+) tokens",  # vLLM, llama-cpp-python, OpenAI
        r"'?max_(?:completion_)?tokens'?[^.]{0,80}too large: \d+\. This model's maximum[^\d]{1,40}(?P<window>\d+)",
        r"max_(?:completion_)?tokens=\d+ cannot be greater than max_model_len=(?P<window>\d+)",  # vLLM
        r"The (?:decoder )?prompt \([^)]*\) is (?:too long|longer than)[^\d]*(?P<window>\d+)",  # older vLLM
        r"request \(\d+ tokens\) exceeds the available context size \((?P<window>\d+) tokens\)",  # llama.cpp
    )
)
PROMPTS = re.compile(r"(?:your request has|prompt contains|\() ?(?P<prompt>\d+) (?:input tokens|in the messages)")
OVERFLOW_NAMES = {"context_length_exceeded", "exceed_context_size_error"}
ENGINE_DEAD = ("EngineCore encountered an issue", "EngineDeadError")
ENGINE_GONE = "The server had an error while processing your request."  # vLLM since 0.33; OpenAI's own 500 goes on
BUSY = {429, 503, 529}
QUOTA = 60.0  # seconds that a server is left alone whose quota is used up (402)
PASSING = {408, 409, 425}
KEY_MEND = "set api_key of this endpoint to the key that the server was started with"
PAGE = re.compile(r"\s*<(?:!doctype html|html)\b(?:.*?<title>(?P<title>[^<]*))?", re.IGNORECASE | re.DOTALL)
LONGEST = 400  # characters of a server's message that we repeat


class Refusal(Frozen):
    """A server's error, whatever shape it came in."""

    message: str
    kind: str = ""
    code: str = ""
    window: int | None = None
    prompt: int | None = None


def read_refusal(text: str) -> Refusal:
    """The refusal in an error body; text that is no JSON is the message itself."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return Refusal(message=_clean(text))
    inner = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return Refusal(message=_clean(str(inner)))
    window = inner.get("n_ctx")
    return Refusal(
        message=_clean(str(inner.get("message") or inner.get("detail") or text)),
        kind=str(inner.get("type") or ""),
        code=str(inner.get("code") or ""),
        window=window if isinstance(window, int) else None,
    )


def classify(where: str, status: int, text: str, headers: Mapping[str, str]) -> PoolError:
    """The error to raise for a status outside 2xx. ``where`` names the endpoint, ``headers`` have small letters."""
    refusal = read_refusal(text) if status >= 200 else Refusal(message="is no answer to a request")
    message = f"endpoint {where}: {status} {refusal.kind} {refusal.message}".replace("  ", " ").rstrip()
    if status in BUSY or status == 402:
        return OverloadError(message, retry_after(headers) or (QUOTA if status == 402 else None))
    if status in (400, 413, 422) and (overflow := _overflow(refusal)):
        return ContextOverflowError(message, overflow.window, overflow.prompt)
    if status == 404 and "does not exist" in refusal.message and "model" in refusal.message:
        return ModelMissingError(message, status)
    if status in (401, 403, 407) or 300 <= status < 400:
        mend = f"; {KEY_MEND}" if status >= 400 else f" {_elsewhere(headers)}"
        return MisconfiguredError((message if status >= 400 else f"endpoint {where}: {status}") + mend, status)
    if status >= 500 and status != 501:
        return EndpointDeadError(message) if _engine_dead(refusal) else TransientError(message)
    return TransientError(message) if status < 200 or status in PASSING else PermanentError(message, status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as told by `retry-after-ms` or `retry-after` (RFC 9110, 10.2.3), None where not told."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    told = headers.get("retry-after")
    seconds = _number(told)
    if seconds is None and told:
        try:
            seconds = max(0.0, (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError):
            return None
    return seconds


def _elsewhere(headers: Mapping[str, str]) -> str:
    """What is wrong with a server that sends requests on: they, and our key, go to no address but the configured."""
    try:
        there = urlsplit(_clean(headers.get("location", "")))
        told = f" to {there.scheme}://{there.hostname}{':' + str(there.port) if there.port else ''}"[:200]
    except ValueError:
        told = ""
    if not told.isprintable() or "None" in told:
        told = ""
    return f"it sends requests elsewhere{told}, which is not followed; set url of this endpoint to where it answers"


def _engine_dead(refusal: Refusal) -> bool:
    told = refusal.message.startswith(ENGINE_DEAD) or refusal.message == ENGINE_GONE
    return told or refusal.kind == "EngineDeadError"


def _overflow(refusal: Refusal) -> Refusal | None:
    for pattern in OVERFLOWS:
        if found := pattern.match(refusal.message):
            prompt = PROMPTS.search(refusal.message)
            told = {"window": int(found["window"]), "prompt": int(prompt["prompt"]) if prompt else None}
            return refusal.model_copy(update=told)
    return refusal if {refusal.kind, refusal.code} & OVERFLOW_NAMES else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _clean(text: str) -> str:
    """One line without control characters, of bounded length: it ends up in logs. Of a web page its title alone."""
    if page := PAGE.match(text[: LONGEST * 4]):
        text = f"a web page: {page['title']}" if page["title"] else "a web page"
    return "".join(c if c.isprintable() else " " for c in " ".join(text[: LONGEST * 4].split()))[:LONGEST]
