"""Looks at answers: are they usable, are two the same, how far do they differ, how sure was the model; pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from pool.tiers.beneath import Request
from pool.types import ChatRequest, Choice, ToolCall
from pool.wire.arguments import fault, whole_json

Compare = Literal["text", "number", "last_line"]
Measure = Literal["mean", "margin", "least"]

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
WORD = re.compile(r"\w+")
FENCED = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


def unusable(choice: Choice, request: Request) -> str:
    """Why nobody could use an answer: a call that cannot be run, text out of schema, nothing at all; else empty."""
    tools = {tool.name: tool.parameters for tool in request.tools} if isinstance(request, ChatRequest) else {}
    for call in choice.tool_calls:
        if call.name not in tools:
            return f"it calls {call.name[:80]!r}, which is no tool"
        if not whole_json(call.arguments):
            return f"the arguments of {call.name} are no JSON object"
        if why := fault(call, tools[call.name]):
            return f"the arguments of {call.name} do not fit: {why}"
    if request.json_schema is not None and not choice.tool_calls:
        return _out_of_schema(choice.content, request.json_schema)
    return "" if choice.tool_calls or choice.content.strip() else "it is empty"


def key(choice: Choice, compare: Compare = "text") -> str:
    """What two equal answers share: calls and JSON by value, text without its case, spacing and last full stop."""
    if choice.tool_calls:
        return json.dumps([[call.name, _value(call.arguments)] for call in choice.tool_calls], sort_keys=True)
    text = choice.content.strip()
    if (value := _value(bare(text))) is not None and not isinstance(value, str):
        return json.dumps(value, sort_keys=True)
    if compare == "number" and (found := NUMBER.findall(text)):
        return _number(found[-1])
    if compare == "last_line":
        text = text.rsplit("\n", 1)[-1]
    return " ".join(text.casefold().split()).rstrip(".! ")


def difference(left: Choice, right: Choice) -> float:
    """How far two answers differ, from 0 (the same) to 1 (nothing in common): by the words that they hold, each as
    often as it occurs. An answer that calls tools and one that does not have nothing in common."""
    if bool(left.tool_calls) != bool(right.tool_calls):
        return 1.0
    if key(left) == key(right):
        return 0.0
    one, other = (Counter(WORD.findall(shown(choice).casefold())) for choice in (left, right))
    union = (one | other).total()
    return 1.0 - (one & other).total() / union if union else 1.0


def confidence(choice: Choice, measure: Measure, *, arguments_only: bool = False) -> float | None:
    """How sure the model was, in nats; None where the server did not tell enough.

    With ``arguments_only`` the tokens of tool arguments alone count; an answer without calls is then judged whole.
    """
    values = choice.margins if measure == "margin" else choice.logprobs
    if arguments_only and choice.tool_calls:
        picked = _argument_tokens(choice.tokens, choice.tool_calls)
        if picked is None or len(values) != len(choice.tokens):
            return None
        values = tuple(values[index] for index in picked)
    if not values:
        return None
    return min(values) if measure == "least" else sum(values) / len(values)


def shown(choice: Choice) -> str:
    """An answer as text for a model to read. Calls are shown as JSON; nobody runs them."""
    calls = [{"call": call.name, "arguments": _value(call.arguments)} for call in choice.tool_calls]
    parts = [choice.content.strip(), *(json.dumps(call, sort_keys=True, ensure_ascii=False) for call in calls)]
    return "\n".join(part for part in parts if part)


def bare(text: str) -> str:
    """The text without the code fence that some models put around JSON."""
    fenced = FENCED.match(text.strip())
    return fenced.group(1) if fenced else text


def _out_of_schema(text: str, schema: dict[str, Any]) -> str:
    try:
        value = json.loads(text)
        Draft202012Validator.check_schema(schema)
        valid = Draft202012Validator(schema).is_valid(value)
    except SchemaError:  # a schema that is none can be broken by nobody
        return ""
    except (ValueError, RecursionError):
        return "it is no JSON"
    return "" if valid else "it does not fit the schema"


def _value(text: str) -> Any:
    """The JSON in a text; the text itself where it is none, None for empty text."""
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> str:
    value = float(text.replace(",", ""))
    return str(int(value)) if value.is_integer() else repr(value)


def _argument_tokens(tokens: Sequence[str], calls: Sequence[ToolCall]) -> list[int] | None:
    """Which tokens wrote the arguments of the calls; None when the text of one is not to be found in them."""
    text = "".join(tokens)
    picked: list[int] = []
    start = 0
    for call in calls:
        at = text.find(call.arguments, start)
        if at < 0 or not call.arguments:
            return None
        start = at + len(call.arguments)
        picked += _within(tokens, at, start)
    return picked


def _within(tokens: Sequence[str], start: int, end: int) -> list[int]:
    """The tokens that overlap a span of the text that they make."""
    found: list[int] = []
    at = 0
    for index, token in enumerate(tokens):
        if at < end and at + len(token) > start:
            found.append(index)
        at += len(token)
    return found
