"""What the pretend server of `pool.testing` says: replies, faults, and how a request's limits shape them; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from pool.types import Choice, ToolCall

BLOCK = 16  # tokens of one block of the pretend KV cache; only whole blocks are reused
TOKEN = re.compile(r"\w+|[^\w\s]")
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


Scripted = str | JSON | Choice | Fault | Slow
"""One scripted answer: text, a JSON value to be sent as text, a whole choice, a fault, or any of these, slowly."""

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
        return "\n".join(str(message.get("content") or "") for message in self.body.get("messages", ()))


def refusal(recorded: Recorded, model: str, window: int, tools: str) -> Fault | None:
    """How vLLM turns down what it can see to be wrong at once."""
    body = recorded.body
    if body.get("model") != model:
        message = f"The model `{body.get('model')}` does not exist. Valid aliases: {model}."
        return error(404, message, type_="NotFoundError", param="model")
    if len(tokens(recorded.prompt)) > window:
        return overflow(window)
    if (asked := body.get("max_tokens") or 0) > window:
        message = f"max_tokens={asked} cannot be greater than max_model_len={window}. Please request fewer output"
        return error(400, f"{message} tokens. (parameter=max_tokens, value={asked})", param="max_tokens")
    if (kind := (schema_of(body) or {}).get("type", "object")) not in JSON_TYPES:
        return error(400, f"Grammar error: Invalid type: {kind}")
    if body.get("tools") and tools == "refused" and body.get("tool_choice", "auto") == "auto":
        return error(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    return None


def metrics_page(model: str, running: int, counts: dict[str, int]) -> str:
    """The part of vLLM's metrics that a pool reads."""
    labels = f'{{engine="0",model_name="{model}"}}'
    gauges = {"num_requests_running": running, "num_requests_waiting": 0, "kv_cache_usage_perc": 0.0}
    lines = [f"# TYPE vllm:{name} gauge\nvllm:{name}{labels} {value}" for name, value in gauges.items()]
    totals = [f"vllm:{name}_total" for name in ("prompt_tokens", "generation_tokens")]
    lines += [f"# TYPE {name} counter\n{name}{labels} {counts[name[5:-6]]}" for name in totals]
    steps = "vllm:iteration_tokens_total"
    lines += [f"# TYPE {steps} histogram", f"{steps}_sum{labels} {counts['generation_tokens']}"]
    lines += [f"{steps}_count{labels} {counts['steps']}"]
    return "\n".join(lines) + "\n"


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


def bounded(choice: Choice, body: JSON) -> Choice:
    """The choice as the limits of the request leave it: cut at the first stop text, then at max_tokens."""
    content = choice.content
    for stop in body.get("stop") or ():
        content = content.split(stop, 1)[0]
    whole = list(TOKEN.finditer(content))
    most = body.get("max_tokens") or len(whole)
    if len(whole) > most:
        return choice.model_copy(update={"content": content[: whole[most - 1].end()], "finish_reason": "length"})
    return choice.model_copy(update={"content": content})


def chat_choice(choice: Choice, index: int) -> JSON:
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in choice.tool_calls
    ]
    message = {
        "role": "assistant",
        "content": choice.content or None,
        "tool_calls": calls or None,
        "reasoning": choice.reasoning or None,
    }
    return {"index": index, "message": message, "finish_reason": choice.finish_reason, "logprobs": None}
