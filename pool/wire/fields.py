"""Turns our requests into each server kind's JSON, and what servers say in answers into ours; pure.

A field that a server would silently ignore is translated or refused, never sent in hope. No request carries a seed: on
CPU one seeded request whose prompt is prefilled in chunks brings down a whole vLLM server.
"""

from __future__ import annotations

from typing import Any, cast

from pool.errors import PermanentError, TransientError
from pool.types import ChatRequest, CompletionRequest, FinishReason, Message, Served, ServerKind, Usage
from pool.wire.capability import Record
from pool.wire.gate import gated
from pool.wire.logprobs import CHAT, COMPLETION
from pool.wire.sampling import drawn

JSON = dict[str, Any]
Seen = Served | Record
MOST = 2**40  # tokens that one answer can have been counted to take
KINDS: dict[str, ServerKind] = {"vllm": "vllm", "llamacpp": "llamacpp"}  # by the owner on a model's card


def chat_body(request: ChatRequest, seen: Seen, count: int, prompt: int = 0) -> JSON:
    """The body of /v1/chat/completions asking for ``count`` samples; ``prompt`` is its size in tokens where known.

    Raises PermanentError for what this server would ignore without a word.
    """
    body = _common(request, seen, count, prompt) | {"messages": [_message(message) for message in request.messages]}
    body |= drawn(request, record_of(seen).kind)
    if request.tools:
        body["tools"] = [{"type": "function", "function": tool.model_dump()} for tool in request.tools]
        body["tool_choice"] = request.tool_choice
    if request.json_schema is not None:
        named = {"name": "answer", "schema": request.json_schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    if request.logprobs:
        body |= CHAT
    return gated(body, record_of(seen))


def completion_body(request: CompletionRequest, seen: Seen, count: int, prompt: int = 0) -> JSON:
    """The body of /v1/completions asking for ``count`` samples. Raises as `chat_body` does."""
    body = _common(request, seen, count, prompt) | {"prompt": request.prompt}
    if request.json_schema is not None:
        body["structured_outputs"] = {"json": request.json_schema}
    if request.logprobs:
        body |= COMPLETION
    return gated(body, record_of(seen))


def record_of(seen: Seen) -> Record:
    """What is known of a server as a record, also where nothing was tried yet."""
    return seen if isinstance(seen, Record) else Record.of(seen)


def ceiling(asked: int, window: int | None, prompt: int = 0) -> int:
    """Tokens to ask for at most: vLLM refuses a ceiling above the room that is left (vllm-project/vllm#42474).

    None at all stays so: with `echo` it asks for the prompt's own logprobs.
    """
    return asked if window is None or asked < 1 else max(1, min(asked, window - min(prompt, window - 1)))


def read_models(where: str, body: object, wanted: str | None) -> Served:
    """What a server serves, from its list of models: the wanted one, else the first.

    Raises PermanentError when the wanted one is not listed, TransientError for a list that cannot be read.
    """
    cards = body.get("data") if isinstance(body, dict) else None
    listed = [card for card in cards if isinstance(card, dict) and "id" in card] if isinstance(cards, list) else []
    names = [str(card["id"]) for card in listed]
    if not names:
        raise TransientError(f"endpoint {where}: it lists no model")
    if wanted is not None and wanted not in names:
        raise PermanentError(
            f"endpoint {where}: it serves {', '.join(names)}, not {wanted}; mend model of this endpoint"
        )
    card = listed[names.index(wanted or names[0])]
    meta = card.get("meta") or {}
    window = card.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
    return Served(
        kind=KINDS.get(str(card.get("owned_by")), "other"),
        model=str(card["id"]),
        window=window if isinstance(window, int) and window > 0 else None,
    )


def merge(usages: list[Usage]) -> Usage:
    """The usage of several calls that made one reply. Cached tokens are unknown if one call did not tell."""
    cached = [usage.cached_tokens for usage in usages]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=None if None in cached else sum(cast("list[int]", cached)),
    )


def _common(request: ChatRequest | CompletionRequest, seen: Seen, count: int, prompt: int) -> JSON:
    most = ceiling(request.max_tokens, seen.window, prompt)
    body: JSON = {"model": seen.model, "max_tokens": most, "temperature": request.temperature, "n": count}
    if request.stop:
        body["stop"] = list(request.stop)
    if request.cache_salt is not None:
        body["cache_salt"] = request.cache_salt
    return body


def _message(message: Message) -> JSON:
    body: JSON = {"role": message.role, "content": message.content}
    if message.reasoning:
        body["reasoning"] = message.reasoning  # sent under the name that the server's version reads
    if message.tool_calls:
        body["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    return body


def read_finish(reason: str | None) -> FinishReason:
    """Raises TransientError for an answer that the server gave up, or that does not say how it ended."""
    if reason is None:
        raise TransientError("the answer does not say how it ended: it is torn")
    if reason in ("error", "abort"):
        raise TransientError(f"the server broke off the answer: {reason}")
    return cast("FinishReason", reason) if reason in ("stop", "length", "tool_calls") else "other"


def read_usage(told: JSON) -> Usage:
    """Our usage. A server that tells no details tells nothing of its cache, which is not zero."""
    details = told.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=_count(told.get("prompt_tokens")) or 0,
        completion_tokens=_count(told.get("completion_tokens")) or 0,
        cached_tokens=_count(details.get("cached_tokens")),
    )


def _count(told: Any) -> int | None:
    """A number of tokens. None for what cannot be one: less than nothing would be credited to a caller's budget."""
    return int(told) if isinstance(told, int | float) and 0 <= told <= MOST else None
