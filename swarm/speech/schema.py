"""The JSON schema that a model is held to where calls are constrained: a thought, then one call of one tool. Pure.

Kept plain, since what compiles a schema to a grammar (xgrammar, llguidance, llama.cpp's own) knows only a part of JSON
Schema: no lengths, no patterns, no descriptions. The thought comes first, so that the model may think before it is
bound (Tam et al., "Let Me Speak Freely?", 2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pool.types import ToolSpec

_KEPT = frozenset({"type", "enum", "const", "items", "properties", "required", "additionalProperties", "anyOf"})


def schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """An object with a thought, a tool's name and its arguments, of any of the tools."""
    return {"anyOf": [_of(tool.name, _Plain(tool.parameters)) for tool in tools]}


class _Plain(dict[str, Any]):
    """The parameters of a tool; a key of the cache by what it is, since the tools of a conversation stay."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))


@cache
def _of(name: str, parameters: _Plain) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "name": {"const": name},
            "arguments": _plain(parameters),
        },
        "required": ["thought", "name", "arguments"],
        "additionalProperties": False,
    }


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without what grammars stumble over."""
    kept: dict[str, Any] = {}
    for key, item in value.items():
        if key == "properties":
            kept[key] = {name: _plain(inner) for name, inner in item.items()}
        elif key in ("items", "additionalProperties") and isinstance(item, Mapping):
            kept[key] = _plain(item)
        elif key == "anyOf":
            kept[key] = [_plain(one) for one in item]
        elif key in _KEPT:
            kept[key] = item
    return kept
