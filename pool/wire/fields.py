"""Turns our requests into each server kind's JSON, and a server's answers into ours; pure.

A field that a server would silently ignore is translated or refused, never sent in hope. No request carries a seed: on
CPU one seeded request whose prompt is prefilled in chunks brings down a whole vLLM server.
"""

from __future__ import annotations

import re
from typing import Any, cast

from pool.errors import PermanentError, TransientError
from pool.types import (
    ChatRequest,
    Choice,
    CompletionRequest,
    FinishReason,
    Message,
    Served,
    ServerKind,
    ToolCall,
    Usage,
)
from pool.wire.logprobs import CHAT, COMPLETION, read_logprobs

JSON = dict[str, Any]
KINDS: dict[str, ServerKind] = {"vllm": "vllm", "llamacpp": "llamacpp"}  # by the owner on a model's card
STRUCTURED_OUTPUTS_SINCE = (0, 12)  # where vLLM dropped the guided_* fields; from then on it ignores them silently


def chat_body(request: ChatRequest, served: Served, count: int) -> JSON:
    """The body of /v1/chat/completions asking for ``count`` samples."""
    body = _common(request, served, count) | {"messages": [_message(message) for message in request.messages]}
    if request.tools:
        body["tools"] = [{"type": "function", "function": tool.model_dump()} for tool in request.tools]
        body["tool_choice"] = "auto"
    if request.json_schema is not None:
        named = {"name": "answer", "schema": request.json_schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    return body | CHAT if request.logprobs else body


def completion_body(request: CompletionRequest, served: Served, count: int) -> JSON:
    """The body of /v1/completions asking for ``count`` samples. Refuses a schema that nobody would heed."""
    body = _common(request, served, count) | {"prompt": request.prompt}
    if request.json_schema is not None:
        body |= _schema_fields(request.json_schema, served)
    return body | COMPLETION if request.logprobs else body


def read_models(where: str, body: object, wanted: str | None) -> Served:
    """What a server serves, from its list of models: the wanted one, else the first.

    Raises PermanentError when the wanted one is not listed, TransientError for a list that cannot be read.
    """
    cards = body.get("data") if isinstance(body, dict) else None
    names = [str(card["id"]) for card in cards or () if isinstance(card, dict) and "id" in card]
    if not names:
        raise TransientError(f"endpoint {where}: it lists no model")
    if wanted is not None and wanted not in names:
        raise PermanentError(
            f"endpoint {where}: it serves {', '.join(names)}, not {wanted}; mend model of this endpoint"
        )
    card = next(card for card in cast("list[JSON]", cards) if card["id"] == (wanted or names[0]))
    meta = card.get("meta") or {}
    return Served(
        kind=KINDS.get(str(card.get("owned_by")), "other"),
        model=str(card["id"]),
        window=card.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None),
    )


def merge(usages: list[Usage]) -> Usage:
    """The usage of several calls that made one reply. Cached tokens are unknown if one call did not tell."""
    cached = [usage.cached_tokens for usage in usages]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=None if None in cached else sum(cast("list[int]", cached)),
    )


def _common(request: ChatRequest | CompletionRequest, served: Served, count: int) -> JSON:
    # vLLM refuses a max_tokens above its window although it is only a ceiling
    most = min(request.max_tokens, served.window) if served.window else request.max_tokens
    body: JSON = {"model": served.model, "max_tokens": most, "temperature": request.temperature, "n": count}
    if request.stop:
        body["stop"] = list(request.stop)
    return body


def _schema_fields(schema: JSON, served: Served) -> JSON:
    if served.kind == "llamacpp":
        # its grammar engine (llguidance) else allows endless white space, on which small models spend all their tokens
        return {"json_schema": {"x-guidance": {"whitespace_flexible": False}} | schema}
    if served.kind == "vllm":
        old = served.version is not None and _version(served.version) < STRUCTURED_OUTPUTS_SINCE
        return {"guided_json": schema} if old else {"structured_outputs": {"json": schema}}
    raise PermanentError(
        "a JSON schema for a raw completion works on vLLM and llama.cpp only; this server might ignore it without a "
        "word: ask through chat, or serve the model with one of these"
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _message(message: Message) -> JSON:
    body: JSON = {"role": message.role, "content": message.content}
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
        prompt_tokens=told.get("prompt_tokens") or 0,
        completion_tokens=told.get("completion_tokens") or 0,
        cached_tokens=details.get("cached_tokens"),
    )
