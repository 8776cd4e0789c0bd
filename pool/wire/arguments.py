"""Judges tool calls before anybody runs them: are the arguments whole JSON, and do they fit the tool's schema; pure.

vLLM reports a call that was cut at max_tokens as `tool_calls` (vllm-project/vllm#53269, #47761, #47903, #9053,
#47963); its half JSON, put into the history, then makes every later turn fail. Under a forced choice it (seen in 0.32)
reports `tool_calls` also of an answer that has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match

from pool.types import Choice, ToolCall, ToolSpec

LONGEST = 300  # characters of a fault that we repeat
KEPT = 16_384  # characters of a schema that is checked once and remembered


def whole_json(text: str) -> bool:
    """Whether a call's arguments are one whole JSON object."""
    return _read(text) is not None


def judged(choice: Choice, tools: Iterable[ToolSpec]) -> Choice:
    """The choice with its calls judged.

    A call whose arguments are no whole JSON object goes to ``torn`` and the choice ends by ``length``: it was cut. One
    that does not fit its tool's schema keeps its place and carries the reason in ``fault``: the model may mend that.
    """
    if not choice.tool_calls:
        return choice.model_copy(update={"finish_reason": "stop"}) if choice.finish_reason == "tool_calls" else choice
    schemas = {tool.name: tool.parameters for tool in tools}
    kept = tuple(_with_fault(call, schemas) for call in choice.tool_calls if whole_json(call.arguments))
    torn = tuple(call for call in choice.tool_calls if not whole_json(call.arguments))
    reason = "length" if torn else choice.finish_reason
    return choice.model_copy(update={"tool_calls": kept, "torn": torn, "finish_reason": reason})


def fault(call: ToolCall, schema: Mapping[str, Any]) -> str:
    """Why a call's arguments do not fit the schema of its tool; empty when they do, or when the schema is none."""
    try:
        text = json.dumps(schema)
        validator = _kept_validator(text) if len(text) <= KEPT else _validator(text)
        found = best_match(validator.iter_errors(_read(call.arguments))) if validator else None
    except RecursionError:
        return ""
    if found is None:
        return ""
    where = "/".join(str(part) for part in found.absolute_path)
    return f"{where + ': ' if where else ''}{found.message}"[:LONGEST]


def _validator(schema: str) -> Draft202012Validator | None:
    """What checks arguments against a schema, given as JSON; None where the schema is none."""
    read = json.loads(schema)
    try:
        Draft202012Validator.check_schema(read)
    except SchemaError:
        return None
    return Draft202012Validator(read)


_kept_validator = lru_cache(maxsize=256)(_validator)  # checking a schema takes longer than all the rest of a call


def _with_fault(call: ToolCall, schemas: Mapping[str, Mapping[str, Any]]) -> ToolCall:
    if call.name not in schemas:
        return call.model_copy(update={"fault": f"no tool named {call.name[:80]!r} was offered"})
    told = fault(call, schemas[call.name])
    return call.model_copy(update={"fault": told}) if told else call


def _read(text: str) -> dict[str, Any] | None:
    """The object in a call's arguments. None at all stands for none wanted: some servers send an empty text for it."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
        if isinstance(value, str):  # arguments are now and then encoded twice
            value = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
