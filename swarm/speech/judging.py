"""Judges a call that was found: which tool and arguments it means, mended where only one reading is possible. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from pool.types import ToolSpec
from swarm.speech import mending
from swarm.speech.calls import Broken, Call
from swarm.speech.found import CUT, Found, in_value
from swarm.tools import names
from swarm.tools.specs import specs as all_specs

_WRAPPERS = ("arguments", "parameters", "args", "params", "input", "kwargs", "properties", "tool_input")
_TALK = frozenset({
    "thought", "thoughts", "reason", "reasoning", "explanation", "comment", "rationale", "purpose", "security_risk",
    "task_progress", "requires_approval", "tool_call_id", "intent",
})  # fmt: skip
"""Arguments by which models tell why they call: of no use to a tool that does not know them."""
_EXACT = frozenset({"content", "search", "replace", "expect", "patch"})
"""Arguments that become what stands in a file, or must equal it: whatever is not given as text is not made text."""
_NO_OBJECT = (
    "are no JSON object that can be read in one way, or are not complete; no key stands there twice, and a long text "
    "goes into several smaller calls"
)
_SHORTENED = "the answer's length limit cut it off: do it in smaller steps"


def judge(found: Found, specs: Sequence[ToolSpec]) -> tuple[Call | Broken, tuple[str, ...]]:
    """The call, without an id, and what was mended for it."""
    if found.problem:
        return Broken("", found.name, _problem(found, specs)), ()
    given, mended = _object(found, specs)
    name, given = names.meant(found.name, given) if given is not None else (found.name, given)
    spec = _named(name, specs)
    if spec is None:
        told = ", ".join(spec.name for spec in specs)
        return Broken("", found.name, f"there is no tool {found.name[:80]!r}; the tools are: {told}"), ()
    if given is None:
        return Broken("", spec.name, f"the arguments of {spec.name} {_NO_OBJECT}. {right(spec)}"), ()
    if spec.name != found.name:
        mended = (*mended, f"{found.name[:40]} for {spec.name}")
    return _fitting(spec, given, mended)


def too_long(name: str) -> Broken:
    """A call in an answer that its length limit cut off: half a file must not be written."""
    return Broken("", name, f"the call was cut off: {_SHORTENED}")


def right(spec: ToolSpec) -> str:
    """The right form of a call, in words for a model."""
    properties, needed = spec.parameters.get("properties", {}), spec.parameters.get("required", ())
    shown = {name: f"<{properties.get(name, {}).get('type', 'text')}>" for name in needed}
    rest = [name for name in properties if name not in needed]
    more = f"; it may also have: {', '.join(rest)}" if rest else ""
    return f"The right form: {json.dumps({'name': spec.name, 'arguments': shown})}{more}"


def _problem(found: Found, specs: Sequence[ToolSpec]) -> str:
    spec = _named(found.name, specs) if found.name else None
    form = right(spec) if spec else 'A call is one JSON object: {"name": "<tool>", "arguments": {...}}'
    advice = "; a long text goes into several smaller calls" if found.problem == CUT else ""
    return f"the call cannot be read: {found.problem}{advice}. {form}"


def _object(found: Found, specs: Sequence[ToolSpec]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The arguments as an object, out of however many wrappings; None where they are none."""
    value, mended = found.arguments, found.mended
    for _ in range(3):
        if isinstance(value, str):
            value, mended = _decoded(value, found, specs, mended)
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            value, mended = value[0], (*mended, "a list around the arguments")
        if not isinstance(value, dict):
            return (None, mended) if value is not None else ({}, mended)
        inner = _unwrapped(value, found, specs)
        if inner is value:
            return value, mended
        value, mended = inner, (*mended, "arguments at the wrong depth")
    return (value if isinstance(value, dict) else None), mended


def _decoded(
    text: str, found: Found, specs: Sequence[ToolSpec], mended: tuple[str, ...]
) -> tuple[Any, tuple[str, ...]]:
    """Arguments that came as text: JSON, nothing, or the one argument that the tool needs."""
    if not text.strip():
        return {}, mended
    read = mending.load(text)
    if read is not None:
        return read.value, (*mended, *read.mended)
    spec = _named(found.name, specs)
    needed: Sequence[str] = spec.parameters.get("required", ()) if spec else ()
    if len(needed) == 1 and text.lstrip()[:1] not in ("{", "[", '"'):
        return {needed[0]: text}, (*mended, "the argument without its name")
    return text, mended


def _unwrapped(value: dict[str, Any], found: Found, specs: Sequence[ToolSpec]) -> Any:
    """What one wrapping holds; the value itself where it is none."""
    spec = _named(found.name, specs)
    known = spec.parameters.get("properties", {}) if spec else {}
    if len(value) == 1:
        ((key, inner),) = value.items()
        around = key in _WRAPPERS or names.tool_of(key, [found.name]) == found.name
        if key not in known and around and (isinstance(inner, dict) or str(inner).lstrip().startswith("{")):
            return inner
    if "name" in value and "name" not in known:
        inner_calls = list(in_value(value))
        if len(inner_calls) == 1 and _named(inner_calls[0][0], specs) is spec:
            return inner_calls[0][1]
    return value


def _named(name: str, specs: Sequence[ToolSpec]) -> ToolSpec | None:
    by_name = {spec.name: spec for spec in specs}
    if meant := names.tool_of(name, by_name):
        return by_name[meant]
    close = get_close_matches(name.strip().lower().rpartition(".")[2], list(by_name), n=2, cutoff=0.75)
    return by_name[close[0]] if len(close) == 1 else None


def _fitting(spec: ToolSpec, given: dict[str, Any], mended: tuple[str, ...]) -> tuple[Call | Broken, tuple[str, ...]]:
    """The call with its arguments named and typed as the tool has them."""
    known = {**_untold(spec.name), **spec.parameters.get("properties", {})}
    fitted: dict[str, Any] = {}
    changed = list(mended)
    for key, value in given.items():
        name = key if key in known else _key(key, known, given)
        if name not in known and (key in _TALK or value in (None, "", [], {})):
            continue
        if name != key:
            changed.append(f"{key[:40]} for {name}")
        fitted[name] = _typed(value, known.get(name, {}), name)
        if fitted[name] is not value:
            changed.append(f"the type of {name}")
    needed = [str(name) for name in spec.parameters.get("required", ())]
    if torn := next((name for name in fitted if name in known and _no_text(fitted[name], known[name])), None):
        told = f"{torn} must be one text, exactly as it is meant; a {_kind(fitted[torn])} was given. {right(spec)}"
        return Broken("", spec.name, f"{spec.name} was not run: {told}"), ()
    fitted = {name: value for name, value in fitted.items() if value is not None or name in needed}
    strange = [name for name in fitted if name not in known]
    missing = [name for name in needed if name not in fitted]
    if missing or (strange and spec.parameters.get("additionalProperties") is False):
        faults = [f"it needs {', '.join(missing)}"] if missing else []
        faults += [f"it has no {', '.join(name[:80] for name in strange)}"] if strange else []
        return Broken("", spec.name, f"{spec.name} was not run: {' and '.join(faults)}. {right(spec)}"), ()
    return Call("", spec.name, fitted), tuple(dict.fromkeys(changed))


@cache
def _untold(name: str) -> Mapping[str, Any]:
    """All that a tool takes, also what a small model is not told of."""
    return next((spec.parameters["properties"] for spec in all_specs(testable=True) if spec.name == name), {})


def _key(key: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    meant = names.key_of(key, known, given)
    if meant in known:
        return meant
    free = [name for name in known if name not in given]
    close = get_close_matches(key.lower(), free, n=2, cutoff=0.8)
    return close[0] if len(close) == 1 else key


def _no_text(value: Any, schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" and value is not None and not isinstance(value, str)


def _kind(value: Any) -> str:
    kinds = {dict: "JSON object", list: "list", bool: "truth value"}
    return kinds.get(type(value), "number")


def _typed(value: Any, schema: Mapping[str, Any], name: str) -> Any:
    """A value as its schema wants it, where it can mean only that; else as it is."""
    wanted = schema.get("type")
    if name in _EXACT and not isinstance(value, str):
        return value
    if isinstance(value, dict) and wanted != "object" and "value" in value and set(value) <= {"type", "value"}:
        return _typed(value["value"], schema, name)
    if isinstance(value, str):
        return _of_text(value, wanted)
    if wanted == "string":
        return _as_text(value, name)
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return [value] if wanted == "array" and isinstance(value, str | int | float | dict) else value


def _of_text(value: str, wanted: Any) -> Any:
    plain = value.strip()
    if wanted in ("integer", "number", "boolean", "array", "object"):
        if plain.lower() in ("null", "none", ""):
            return None
        read = mending.load(plain.lower() if wanted == "boolean" else plain)
        kinds = {"integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict}
        fits = read is not None and isinstance(read.value, kinds[wanted])
        if read is not None and fits and (wanted == "boolean") == isinstance(read.value, bool):
            return read.value
    return value


def _as_text(value: Any, name: str) -> Any:
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        if name == "command":
            shell = value[0].rpartition("/")[2] in ("bash", "sh", "zsh") and value[1:2] in (["-c"], ["-lc"])
            return value[2] if shell and len(value) == 3 else shlex.join(value)
        return value
    return str(value) if type(value) is int else value
