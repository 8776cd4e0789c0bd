"""What the pretend server of `pool.testing` says: replies, faults, and how a request's limits shape them; pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pool.pretend.tokens import TOKEN, Tokenizer, text_of
from pool.types import Choice, ToolCall

BLOCK = 16  # tokens of one block of the pretend KV cache; only whole blocks are reused
JSON_TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}
JSON = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong instead of a reply. Made by the functions below."""

    kind: Literal["status", "reset", "cut", "hang"]
    status: int = 500
    body: JSON = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Slow:
    """A reply (or fault) that takes its time, in seconds."""

    seconds: float
    then: Scripted = "ok"


End = Literal["whole", "closed", "unfinished", "no_done", "reset", "stalled", "error"]


@dataclass(frozen=True)
class Twist:
    """A reply whose way to the client is odd or goes wrong. Made by the functions below, which can be nested.

    ``end`` happens after ``after`` tokens (None: after all of them). ``pace`` are seconds before each token, ``split``
    the most bytes that are sent at a time, ``newline`` what ends a line of a stream.
    """

    then: Scripted = "ok"
    end: End = "whole"
    after: int | None = None
    pace: float = 0.0
    split: int | None = None
    comments: bool = False
    usage: Literal["told", "missing", "bare"] = "told"
    newline: str = "\n"
    role: bool = True


Scripted = str | JSON | Choice | Fault | Slow | Twist
"""One scripted answer: text, a JSON value to be sent as text, a whole choice, a fault, or any of these, oddly."""

Script = Iterable[Scripted] | Callable[["Recorded"], Scripted | None] | None
"""What the server says: a list played in order, a function of the request (None: what it would say unscripted)."""


def error(status: int, message: str, *, type_: str = "BadRequestError", param: str | None = None) -> Fault:
    """An error in vLLM's shape."""
    body = {"error": {"message": message, "type": type_, "param": param, "code": status}}
    return Fault("status", status, body)


def overload(retry_after: float | None = None, status: int = 429) -> Fault:
    """The server is full; ``retry_after`` is told in the header, in seconds."""
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    body = error(status, "too many requests", type_="ServiceUnavailableError").body
    return Fault("status", status, body, headers)


def server_error() -> Fault:
    """A plain 500."""
    return error(500, "Internal server error", type_="InternalServerError")


def engine_dead() -> Fault:
    """What vLLM says when its engine has died; the process leaves soon after."""
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return error(500, message, type_="InternalServerError")


def overflow(window: int = 4096) -> Fault:
    """vLLM's refusal of a prompt that is too long."""
    return error(
        400,
        f"This model's maximum context length is {window} tokens. However, your prompt contains at least {window + 1} "
        "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
        f"prompt. (parameter=input_tokens, value={window + 1})",
        param="input_tokens",
    )


def reset() -> Fault:
    """The connection is reset before the first byte of an answer."""
    return Fault("reset")


def cut() -> Fault:
    """The connection is reset after the headers and a part of the body."""
    return Fault("cut")


def hang() -> Fault:
    """No answer, ever."""
    return Fault("hang")


def _twisted(then: Scripted, **changes: Any) -> Twist:
    return replace(then if isinstance(then, Twist) else Twist(then), **changes)


def closed_early(then: Scripted = "one two three four", after: int = 2) -> Twist:
    """The answer ends in the middle, and the connection as if all were well: no finish reason, no terminator."""
    return _twisted(then, end="closed", after=after)


def unfinished(then: Scripted = "one two three four", after: int = 2) -> Twist:
    """The stream has its terminator, but nobody said how the answer ended."""
    return _twisted(then, end="unfinished", after=after)


def without_done(then: Scripted = "ok") -> Twist:
    """The stream says how the answer ended and then ends without its terminator."""
    return _twisted(then, end="no_done")


def reset_midway(then: Scripted = "one two three four", after: int = 2) -> Twist:
    """The connection is reset in the middle of the answer."""
    return _twisted(then, end="reset", after=after)


def stalled(then: Scripted = "one two three four", after: int = 2) -> Twist:
    """The answer stands still in the middle, for ever, on an open connection."""
    return _twisted(then, end="stalled", after=after)


def error_midway(then: Scripted = "one two three four", after: int = 2) -> Twist:
    """An error inside the stream, which began with 200, and then its terminator."""
    return _twisted(then, end="error", after=after)


def paced(then: Scripted, seconds: float) -> Twist:
    """A stream that takes ``seconds`` before each token."""
    return _twisted(then, pace=seconds)


def split(then: Scripted, size: int = 5, newline: str = "\n") -> Twist:
    """An answer sent in pieces of ``size`` bytes, cut wherever that falls."""
    return _twisted(then, split=size, newline=newline)


def commented(then: Scripted = "ok") -> Twist:
    """A stream with comment lines between its events, as with vLLM's --sse-keep-alive-interval."""
    return _twisted(then, comments=True)


def without_usage(then: Scripted = "ok") -> Twist:
    """An answer that tells no usage, although it was asked to."""
    return _twisted(then, usage="missing")


def without_details(then: Scripted = "ok") -> Twist:
    """Usage whose `prompt_tokens_details` are null, as without vLLM's --enable-prompt-tokens-details."""
    return _twisted(then, usage="bare")


def without_role(then: Scripted = "ok") -> Twist:
    """A stream without its opening chunk that names the role."""
    return _twisted(then, role=False)


def torn_call(name: str, /, keep: int = -2, **arguments: Any) -> Choice:
    """A tool call whose arguments are cut off after ``keep`` characters, and which says it is whole all the same."""
    whole = json.dumps(arguments)
    return Choice(
        tool_calls=(ToolCall(id=f"call-{name}", name=name, arguments=whole[:keep]),), finish_reason="tool_calls"
    )


def queue_full() -> Fault:
    """vLLM's refusal under --max-num-queued-reqs: 503, and no word of when to come back."""
    message = "The engine is currently busy and cannot accept new requests."
    return error(503, f"{message} Please try again later or on a different instance.", type_="ServiceUnavailableError")


def call(name: str, /, **arguments: Any) -> Choice:
    """A choice that calls one tool."""
    return Choice(
        tool_calls=(ToolCall(id=f"call-{name}", name=name, arguments=json.dumps(arguments)),),
        finish_reason="tool_calls",
    )


def example(schema: JSON) -> Any:
    """A smallest value that fits a JSON schema (of the plain kind: no references)."""
    fixed = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if fixed:
        return fixed[0]
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return example(branches[0])
    kind = schema.get("type", "string")
    if kind == "object":
        return {name: example(inner) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [example(schema.get("items", {}))] * schema.get("minItems", 0)
    plain = {"boolean": True, "null": None, "string": "x" * schema.get("minLength", 2)}
    return plain.get(kind, schema.get("minimum", 0))


@dataclass(frozen=True)
class Recorded:
    """One request as the server got it."""

    path: str
    body: JSON
    headers: dict[str, str]

    @property
    def prompt(self) -> str:
        """The text that a model would see."""
        if "prompt" in self.body:
            return str(self.body["prompt"])
        return "\n".join(text_of(message.get("content")) for message in self.body.get("messages", ()))


def refusal(recorded: Recorded, model: str, window: int, tools: str, length: int) -> Fault | None:
    """How vLLM turns down what it can see to be wrong at once; the prompt has ``length`` tokens."""
    body = recorded.body
    if body.get("model") != model:
        message = f"The model `{body.get('model')}` does not exist. Valid aliases: {model}."
        return error(404, message, type_="NotFoundError", param="model")
    if length > window:
        return overflow(window)
    if (asked := body.get("max_tokens") or 0) > window:
        message = f"max_tokens={asked} cannot be greater than max_model_len={window}. Please request fewer output"
        return error(400, f"{message} tokens. (parameter=max_tokens, value={asked})", param="max_tokens")
    if (kind := (schema_of(body) or {}).get("type", "object")) not in JSON_TYPES:
        return error(400, f"Grammar error: Invalid type: {kind}")
    return _no_tools(body) if tools == "refused" and body.get("tools") else None


def _no_tools(body: dict[str, Any]) -> Fault | None:
    """What a vLLM without a tool call parser says to a request with tools."""
    choice = body.get("tool_choice", "auto")
    if choice == "none":
        return None
    if choice == "auto":
        return error(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    named = choice if isinstance(choice, str) else f'function "{choice["function"]["name"]}"'
    told = f'"{named}"' if named == choice else named
    return error(400, f"tool_choice={told} requires --tool-call-parser to be set")


def tokens(text: str) -> list[str]:
    """The pretend tokenizer: words and marks."""
    return TOKEN.findall(text)


def common(left: list[str], right: list[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def as_choice(scripted: str | JSON | Choice) -> Choice:
    if isinstance(scripted, Choice):
        return scripted
    return Choice(content=scripted if isinstance(scripted, str) else json.dumps(scripted))


def schema_of(body: JSON) -> JSON | None:
    """The schema asked for in vLLM's own fields; any other field is not looked at, as with the real one."""
    if body.get("response_format", {}).get("type") == "json_schema":
        schema: JSON = body["response_format"]["json_schema"]["schema"]
        return schema
    plain: JSON | None = body.get("structured_outputs", {}).get("json")
    return plain


def bounded(choice: Choice, body: JSON, tokenizer: Tokenizer, room: int) -> Choice:
    """The choice as the limits leave it: cut at the first stop text, then at max_tokens or at the window's end."""
    content = choice.content
    stops = body.get("stop") or ()
    for stop in [stops] if isinstance(stops, str) else stops:
        content = content.split(stop, 1)[0]
    most = max(1, min(room, most_tokens(body) or room))
    pieces = tokenizer.pieces(content) if len(content) > most else []
    if len(pieces) > most:
        return choice.model_copy(update={"content": "".join(pieces[:most]), "finish_reason": "length"})
    return choice.model_copy(update={"content": content})


def most_tokens(body: JSON) -> int | None:
    """The ceiling of the output that a request sets, under its new name or its old one."""
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    return int(most) if most else None
