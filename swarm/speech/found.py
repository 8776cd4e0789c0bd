"""A call as it stands in a text, before anybody judged it, and the objects that are calls. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from swarm.speech import mending

CUT = "it is not complete: the text ends inside of it"
UNREADABLE = "what stands there is no JSON that can be read in one way"
_NAMES = ("name", "tool_name", "function_name", "recipient_name", "tool", "function", "action", "command_name")
_ARGUMENTS = (
    "arguments", "args", "parameters", "params", "input", "action_input", "tool_input", "kwargs", "tool_args",
    "arguments_json",
)  # fmt: skip
_WRAPPERS = ("tool_calls", "function_call", "tool_call", "calls", "actions")
_BESIDES = {"type", "id", "call_id", "index", "thought", "thoughts", "reasoning", "explanation", "comment"}
_NAMED = re.compile(r"[\"']?(?:name|tool|function)[\"']?\s*:\s*[\"']([\w.-]{1,64})[\"']")


@dataclass(frozen=True)
class Found:
    """One call. ``problem`` says why it cannot be read, ``sure`` that it is meant as a call even then.

    ``shape`` is the way in which it was written, ``closed`` whether its end was marked. ``marked``: it stands behind a
    mark that only a call has. ``plain`` is one without, whose object says that it is a call by its two keys.
    """

    name: str
    arguments: Any
    start: int
    end: int
    shape: str
    mended: tuple[str, ...] = ()
    problem: str = ""
    sure: bool = True
    closed: bool = True
    marked: bool = True
    plain: bool = False


@dataclass(frozen=True)
class Heard:
    """An answer taken apart: the words, the thoughts, the calls and the text that they stand in."""

    words: str
    thought: str
    found: tuple[Found, ...] = ()
    text: str = ""
    where: str = ""
    garbled: bool = False


def in_value(value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The names and arguments of the calls that a JSON value is; none where it is no call."""
    if depth > 4:
        return
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        read = mending.load(value)
        value = read.value if read else None
    if isinstance(value, list):
        for one in value:
            yield from in_value(one, depth + 1)
    elif isinstance(value, dict):
        yield from _in_object(value, depth)


def _in_object(value: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    wrapper = next((key for key in _WRAPPERS if isinstance(value.get(key), dict | list)), None)
    named = next((key for key in _NAMES if isinstance(value.get(key), str | dict)), None)
    if named is None and wrapper is not None:
        yield from in_value(value[wrapper], depth + 1)
    elif named is None and len(value) == 1:
        ((name, arguments),) = value.items()
        if isinstance(arguments, dict) and name not in ("properties", *_ARGUMENTS):
            yield name, arguments
    elif named is not None and isinstance(value[named], dict):  # OpenAI's own nesting
        yield from in_value(value[named], depth + 1)
    elif named is not None:
        rest = {key: item for key, item in value.items() if key != named and key not in _BESIDES}
        holder = next((key for key in _ARGUMENTS if key in rest), None)
        yield str(value[named]), rest if holder is None else rest[holder]


def name_in(text: str) -> str:
    """The name that a call which cannot be read seems to have; empty where it has none."""
    found = _NAMED.search(text[:400])
    return found[1] if found else ""


def is_explicit(value: Any) -> bool:
    """Whether a value has arguments under a name of their own: then it is meant as a call, whomever it calls."""
    if isinstance(value, list):
        return bool(value) and is_explicit(value[0])
    return isinstance(value, dict) and any(key in value for key in (*_ARGUMENTS, *_WRAPPERS))


def is_plain(value: Any) -> bool:
    """Whether a value has the two keys of a call and no other."""
    return isinstance(value, dict) and set(value) in ({"name", "arguments"}, {"name", "parameters"})
