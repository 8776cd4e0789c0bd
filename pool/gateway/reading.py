"""Reads a request: its JSON, how long it may take, its class, and roughly how many tokens it asks for; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pool.gateway.replies import wrong
from pool.gateway.values import LABEL, check, label, parsed
from pool.wire.constraint import calls

Path = Literal["/v1/chat/completions", "/v1/completions"]
CHAT: Path = "/v1/chat/completions"
TEXT: Path = "/v1/completions"
CLASSES = ("interactive", "default", "bulk")
CLASS_HEADERS = ("x-request-class", "x-smg-priority")
DEADLINE_HEADERS = ("x-request-deadline", "x-stainless-read-timeout")  # the latter by OpenAI's SDK
SUGGESTED = frozenset({"chat_template_kwargs", "reasoning_effort"})  # how much to think, told in another API's words
BYTES_A_TOKEN = 4
MOST = 2**40  # tokens; more than that is not counted with
GUESS = 256  # tokens of an answer whose length nobody bounded


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's body with what the gateway itself must know of it. ``tokens`` are a guess, prompt and answer,
    ``prompt`` the part of it that is sent; ``ceiling`` bounds the answer, in tokens. ``hints`` are fields that only
    suggest how to answer, told in another API's words."""

    path: Path
    body: dict[str, Any]
    model: str
    stream: bool
    usage: bool
    needs: frozenset[str]
    ceiling: int | None
    tokens: int
    prompt: int = 0
    hints: frozenset[str] = frozenset()

    def with_body(self, body: dict[str, Any]) -> Asked:
        """The same with another body."""
        return replace(self, body=body)


def read(path: Path, raw: bytes) -> Asked:
    """The request in a body. Raises RefusedError (400) for one that no server could answer."""
    return asked_of(path, parsed(raw), len(raw))


def asked_of(path: Path, body: dict[str, Any], size: int, hints: frozenset[str] = frozenset()) -> Asked:
    """The same from a body that was read already; ``size`` is its length in bytes. Raises as `read` does."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise wrong("say which model: a tier, a virtual model or a real one; GET /v1/models lists them", "model")
    if path == CHAT and not (isinstance(body.get("messages"), list) and body["messages"]):
        raise wrong("messages is a list of at least one message", "messages")
    if path == TEXT and "prompt" not in body:
        raise wrong("there is no prompt", "prompt")
    check(body, chat=path == CHAT)
    most = _count(body, "max_completion_tokens") or _count(body, "max_tokens")
    options = body.get("stream_options")
    return Asked(
        path=path,
        body=body,
        model=model,
        stream=bool(body.get("stream")),
        usage=isinstance(options, dict) and bool(options.get("include_usage")),
        needs=_needs(body),
        ceiling=most,
        prompt=size // BYTES_A_TOKEN,
        hints=hints,
        tokens=size // BYTES_A_TOKEN + (most or GUESS) * (_count(body, "n") or 1) * _prompts(body),
    )


def class_of(headers: Mapping[str, str]) -> str | None:
    """The class that a request asks for in a header. Raises RefusedError (400) for one of our own that is none."""
    ours, theirs = (headers.get(name, "").strip().lower() for name in CLASS_HEADERS)
    if ours and ours not in CLASSES:
        raise wrong(f"X-Request-Class is {', '.join(CLASSES)}, not {ours[:60]!r}", "X-Request-Class")
    return ours or theirs or None


def check_labels(headers: Mapping[str, str], names: Iterable[str]) -> None:
    """Raises RefusedError (400) for a header that names a session or a caller at greater length than is kept."""
    for name in names:
        if len(headers.get(name, "")) > LABEL:
            label(name, headers[name])


def deadline_of(headers: Mapping[str, str], most: float, *, stream: bool) -> float:
    """Seconds that a request may take: what it says, or how long its client waits, and never more than ``most``.

    A client that gives up and sends again doubles the load (vllm-project/vllm#20520), so its patience is a deadline.
    The SDK's patience is between two bytes: on a stream it says nothing of the whole, nor where it says none. Raises
    RefusedError (400) for a deadline that is none.
    """
    ours, theirs = DEADLINE_HEADERS
    if told := headers.get(ours):
        if not (seconds := _seconds(told)):
            raise wrong(f"X-Request-Deadline is a number of seconds above 0, not {told[:60]!r}", "X-Request-Deadline")
        return min(seconds, most)
    return most if stream else min(_seconds(headers.get(theirs, "")) or most, most)


def _seconds(told: str) -> float:
    """A number of seconds; 0 for what is none."""
    try:
        seconds = float(told)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _needs(body: Mapping[str, Any]) -> frozenset[str]:
    need = calls(body)
    return frozenset() if need is None else frozenset((need,))


def _count(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    return min(value, MOST) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _prompts(body: Mapping[str, Any]) -> int:
    """How many prompts a raw completion has; token ids are one."""
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
