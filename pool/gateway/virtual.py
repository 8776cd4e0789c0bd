"""Between OpenAI's chat JSON and the pool's own words, for models that the pool makes itself; pure.

A field that these cannot honour is refused by name, never dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pool.gateway.replies import dumps, well_formed, wrong
from pool.types import ChatRequest, Choice, Message, Reply, RequestClass, ToolCall, ToolSpec, Usage

SILENT = {  # who asks and how it is answered: nothing that a model would have to honour
    "model", "messages", "stream", "stream_options", "user", "session_id", "prompt_cache_key", "metadata", "store",
    "parallel_tool_calls", "safety_identifier",
}  # fmt: skip
HONOURED = {
    "tools", "tool_choice", "max_tokens", "max_completion_tokens", "temperature", "n", "stop", "response_format",
    "cache_salt", "logprobs",
}  # fmt: skip
ROLES = {"developer": "system"}


@dataclass(frozen=True, slots=True)
class Frame:
    """What a request says besides its body. ``deadline`` is in seconds from now."""

    tier: str
    session: str
    program: str
    request_class: RequestClass
    deadline: float


def chat_request(body: Mapping[str, Any], frame: Frame, *, strict: bool) -> ChatRequest:
    """The request in the pool's words. Raises RefusedError (400) that names the field.

    With ``strict`` unknown fields are refused as well; without it they are left out, where only the choice of a tier
    depends on the result and the body itself goes to the server.
    """
    with well_formed():
        return _chat_request(body, frame, strict=strict)


def _chat_request(body: Mapping[str, Any], frame: Frame, *, strict: bool) -> ChatRequest:
    if strict:
        _refuse_unknown(body)
    told: dict[str, Any] = {
        "messages": tuple(_message(message, strict=strict) for message in body["messages"]),
        "tools": _tools(body),
        "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
        "temperature": body.get("temperature"),
        "n": body.get("n"),
        "stop": _stop(body.get("stop")),
        "json_schema": _schema(body.get("response_format"), strict=strict),
        "cache_salt": body.get("cache_salt"),
        "logprobs": body.get("logprobs"),
    }
    fields = {name: getattr(frame, name) for name in ("tier", "session", "program", "request_class", "deadline")}
    try:
        return ChatRequest(**fields, **{name: value for name, value in told.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise wrong(first["msg"], ".".join(str(part) for part in first["loc"])) from None


def put_messages(body: Mapping[str, Any], request: ChatRequest) -> dict[str, Any]:
    """The body with the texts of a request whose old tool results were left out; all else stays as it was sent."""
    pairs = zip(body["messages"], request.messages, strict=True)
    return {
        **body,
        "messages": [
            raw if _text(raw.get("content"), strict=False) == message.content else raw | {"content": message.content}
            for raw, message in pairs
        ],
    }


def chat_object(reply: Reply, number: str, created: int) -> dict[str, Any]:
    """The reply as a chat completion."""
    choices = [
        {"index": index, "message": _told(choice), "finish_reason": choice.finish_reason, "logprobs": _logprobs(choice)}
        for index, choice in enumerate(reply.choices)
    ]
    return {
        "id": number,
        "object": "chat.completion",
        "created": created,
        "model": reply.model,
        "choices": choices,
        "usage": usage_object(reply.usage),
    }


@dataclass(frozen=True, slots=True)
class Chunks:
    """Writes one streamed answer's events. ``usage`` tells whether its client asked for that."""

    number: str
    created: int
    usage: bool

    def piece(self, model: str, delta: Mapping[str, Any], logprobs: Any = None) -> bytes:
        """Something that is said."""
        return self._event(model, {"index": 0, "delta": delta, "finish_reason": None, "logprobs": logprobs})

    def ending(self, reply: Reply, said: Collection[str], swarm: Mapping[str, Any]) -> Iterator[bytes]:
        """The rest of a reply of which the parts ``said`` were told before, how it ended, and how it was made."""
        choice = reply.choices[0]
        delta = _told(choice)
        for position, call in enumerate(delta.get("tool_calls") or ()):
            call["index"] = position
        if delta := {name: value for name, value in delta.items() if value is not None and name not in said}:
            yield self.piece(reply.model, delta, None if "content" in said else _logprobs(choice))
        end = {"index": 0, "delta": {}, "finish_reason": choice.finish_reason, "logprobs": None}
        yield self._event(reply.model, end, swarm=swarm)
        if self.usage:
            yield event(self._head(reply.model) | {"choices": [], "usage": usage_object(reply.usage)})
        yield b"data: [DONE]\n\n"

    def _event(self, model: str, choice: Mapping[str, Any], **more: Any) -> bytes:
        return event(self._head(model) | {"choices": [choice]} | ({"usage": None} if self.usage else {}) | more)

    def _head(self, model: str) -> dict[str, Any]:
        return {"id": self.number, "object": "chat.completion.chunk", "created": self.created, "model": model}


def usage_object(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage. Details are null where a server does not tell, which is not zero."""
    cached = usage.cached_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
    }


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + dumps(body) + b"\n\n"


def _refuse_unknown(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        if name not in SILENT | HONOURED and value is not None:
            raise wrong(f"a virtual model cannot honour {name}; leave it out, or ask a tier", name, "unsupported")
    if body.get("tool_choice") not in (None, "auto", "none"):
        raise wrong("a virtual model takes tool_choice auto or none only", "tool_choice", "unsupported")


def _message(raw: Any, *, strict: bool) -> Message:
    if not isinstance(raw, dict):
        raise wrong("each message is an object", "messages")
    calls = []
    for call in raw.get("tool_calls") or ():
        function = (call.get("function") if isinstance(call, dict) else None) or {}
        calls.append(
            ToolCall(id=str(call.get("id", "")), name=str(function.get("name", "")), arguments=_args(function))
        )
    role = raw.get("role")
    try:
        return Message(
            role=ROLES.get(str(role), role),
            content=_text(raw.get("content"), strict=strict),
            tool_calls=tuple(calls),
            tool_call_id=raw.get("tool_call_id"),
        )
    except ValidationError:
        raise wrong(f"no such role: {role!r}", "messages") from None


def _args(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments", "")
    return arguments if isinstance(arguments, str) else dumps(arguments).decode()


def _text(content: Any, *, strict: bool) -> str:
    """The text of a content, which may come in parts."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif strict:
            raise wrong("a virtual model reads text only; ask a tier for other kinds of content", "messages")
    return "\n".join(texts)


def _tools(body: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    if body.get("tool_choice") == "none":
        return ()
    found = []
    for tool in body.get("tools") or ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise wrong("each tool is a function with a name", "tools")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        description = function.get("description") or ""
        found.append(ToolSpec(name=function["name"], description=description, parameters=parameters))
    return tuple(found)


def _stop(stop: Any) -> Any:
    return (stop,) if isinstance(stop, str) else stop if stop is None else tuple(stop)


def _schema(wanted: Any, *, strict: bool) -> dict[str, Any] | None:
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "json_schema":
        schema = (wanted.get("json_schema") or {}).get("schema")
        return schema if isinstance(schema, dict) else None
    if strict and kind not in (None, "text"):
        raise wrong("a virtual model takes response_format json_schema or text", "response_format", "unsupported")
    return None


def _told(choice: Choice) -> dict[str, Any]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in choice.tool_calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": choice.content or (None if calls else "")}
    if choice.reasoning:
        message["reasoning"] = choice.reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def _logprobs(choice: Choice) -> dict[str, Any] | None:
    if not choice.logprobs or len(choice.tokens) != len(choice.logprobs):
        return None
    pairs = zip(choice.tokens, choice.logprobs, strict=True)
    return {"content": [{"token": text, "logprob": value, "bytes": None, "top_logprobs": []} for text, value in pairs]}
