"""How a model's words become tool calls: native calls or a fenced block of text, read leniently, judged strictly."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from pool.types import Choice, Message, ToolCall, ToolSpec
from swarm.history import plain
from swarm.speech.calls import Broken, Call, Turn
from swarm.speech.form import Form
from swarm.tools import names

_FENCE = re.compile(r"```(?P<tag>[\w+-]*)[ \t]*\n(?P<body>.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<tool_call>\s*(?P<body>.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_XML = re.compile(r"<function=(?P<name>[\w.-]+)>(?P<body>.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=(?P<key>[\w.-]+)>\n?(?P<value>.*?)\n?</parameter>", re.DOTALL)
_NAME_KEYS = ("name", "tool", "tool_name", "function", "action")
_ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "action_input")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


def read(choice: Choice, specs: Sequence[ToolSpec], form: Form, *, number: int) -> Turn:
    """Read one answer. ``number`` makes call ids unique in a conversation.

    An answer that came only as reasoning counts as content, and calls are recovered from text where an endpoint's own
    parser left them there. An answer cut off by the token limit yields no call: half a file must not be written.
    """
    native = form.native
    text = plain(choice.content if choice.content.strip() or choice.tool_calls else choice.reasoning)
    if native and choice.tool_calls:
        return _native(choice, specs, number)
    found = _from_text(text, specs)
    if found is None:
        return Turn(Message(role="assistant", content=text), ())
    call, end = found
    if choice.finish_reason == "length":
        call = Broken(call.id, call.name, "the answer was cut off by its length limit: do it in smaller steps")
    call = _with_id(call, f"call_{number}_0" if native else "text")
    if not native:
        return Turn(Message(role="assistant", content=text[:end].rstrip()), (call,))
    arguments = json.dumps(call.arguments) if isinstance(call, Call) else "{}"
    kept = Message(
        role="assistant", content="", tool_calls=(ToolCall(id=call.id, name=call.name, arguments=arguments),)
    )
    return Turn(kept, (call,))


def _native(choice: Choice, specs: Sequence[ToolSpec], number: int) -> Turn:
    """The server's own calls. One that cannot be parsed stays in the history with empty arguments, so that no later
    request is refused for it."""
    calls: list[Call | Broken] = []
    kept: list[ToolCall] = []
    for index, asked in enumerate(choice.tool_calls):
        call: Call | Broken = _judge(asked.name, asked.arguments, specs)
        if choice.finish_reason == "length" and index == len(choice.tool_calls) - 1:
            call = Broken("", asked.name, "the call was cut off by the answer's length limit: do it in smaller steps")
        call = _with_id(call, f"call_{number}_{index}")
        calls.append(call)
        arguments = json.dumps(call.arguments) if isinstance(call, Call) else "{}"
        kept.append(ToolCall(id=call.id, name=call.name or "unknown", arguments=arguments))
    return Turn(Message(role="assistant", content=plain(choice.content), tool_calls=tuple(kept)), tuple(calls))


def _with_id(call: Call | Broken, id_: str) -> Call | Broken:
    if isinstance(call, Call):
        return Call(id_, call.name, call.arguments)
    return Broken(id_, call.name, call.reason)


def _judge(name: str, arguments: Any, specs: Sequence[ToolSpec]) -> Call | Broken:
    """A name and its arguments, mended where only one reading is possible."""
    spec = _named(name, specs)
    if spec is None:
        return Broken("", name, f"there is no tool {name!r}; the tools are: {', '.join(spec.name for spec in specs)}")
    value = arguments
    for _ in range(2):  # arguments are now and then encoded twice
        if isinstance(value, str):
            value = load(value) if value.strip() else {}
    if not isinstance(value, dict):
        return Broken("", spec.name, f"the arguments of {spec.name} are not a JSON object")
    known = spec.parameters.get("properties", {})
    return Call("", spec.name, {names.key_of(key, known, value): item for key, item in value.items()})


def _named(name: str, specs: Sequence[ToolSpec]) -> ToolSpec | None:
    by_name = {spec.name: spec for spec in specs}
    if meant := names.tool_of(name, by_name):
        return by_name[meant]
    close = get_close_matches(name.strip().lower(), list(by_name), n=1, cutoff=0.75)
    return by_name[close[0]] if close else None


def load(text: str) -> Any:
    """JSON as models write it: in fences, with trailing commas, raw newlines in strings, Python's literals, or without
    its last brackets. None where it cannot be read in one way."""
    text = text.strip()
    if fenced := _FENCE.fullmatch(text):
        text = fenced["body"].strip()
    for attempt in (text, _TRAILING_COMMA.sub(r"\1", text)):
        with suppress(ValueError, RecursionError):
            return _json(attempt)
    with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _json(json.dumps(ast.literal_eval(text)))
    for missing in ("}", "}}", "]}"):
        with suppress(ValueError, RecursionError):
            return _json(text + missing)
    return None


def _json(text: str) -> Any:
    """Strict about numbers (NaN would make every later request invalid), lenient about newlines in strings."""
    return json.loads(text, strict=False, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _from_text(text: str, specs: Sequence[ToolSpec]) -> tuple[Call | Broken, int] | None:
    """The first call in plain text and where it ends. None where there is none."""
    for block in sorted((*_FENCE.finditer(text), *_TAGGED.finditer(text)), key=lambda found: found.start()):
        call = _block(block["body"], specs, certain=block.groupdict().get("tag", "tool") in ("tool", "tool_call"))
        if call is not None:
            return call, block.end()
    if match := _XML.search(text):
        return _judge(match["name"], _parameters(match["body"]), specs), match.end()
    return _bare(text, specs)


def _block(body: str, specs: Sequence[ToolSpec], *, certain: bool) -> Call | Broken | None:
    """A block's call; None for one that is not meant as a call, such as a snippet of code."""
    if match := _XML.search(body):
        return _judge(match["name"], _parameters(match["body"]), specs)
    value = load(body)
    if isinstance(value, list) and value:
        value = value[0]
    call = _from_object(value, specs)
    if call is None and certain:
        return Broken("", "", 'the block is no call: it holds one JSON object {"name": ..., "arguments": {...}}')
    return call


def _from_object(value: Any, specs: Sequence[ToolSpec]) -> Call | Broken | None:
    if not isinstance(value, dict):
        return None
    name_key = next((key for key in _NAME_KEYS if key in value), None)
    if name_key is None:
        return None
    name = value[name_key]
    if isinstance(name, dict):  # OpenAI's own nesting: {"function": {"name": ..., "arguments": ...}}
        return _from_object(name, specs)
    rest = {key: item for key, item in value.items() if key not in (name_key, "type", "id")}
    argument_key = next((key for key in _ARGUMENT_KEYS if key in rest), None)
    return _judge(str(name), rest[argument_key] if argument_key else rest, specs)


def _parameters(body: str) -> dict[str, Any]:
    """XML-like parameters, all of them text; the tool's own types read numbers out of them."""
    return {match["key"]: match["value"] for match in _PARAMETER.finditer(body)}


def _bare(text: str, specs: Sequence[ToolSpec]) -> tuple[Call | Broken, int] | None:
    """A JSON object outside any fence that names a real tool."""
    decoder = json.JSONDecoder(strict=False)
    for start in (match.start() for match in re.finditer(r"\{\s*\"", text)):
        try:
            value, end = decoder.raw_decode(text, start)
        except ValueError:
            continue
        call = _from_object(value, specs)
        if isinstance(call, Call):
            return call, end
    return None
