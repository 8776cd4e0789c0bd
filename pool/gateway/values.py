"""What a request's fields may hold; pure. What no server could honour is refused by the field's name, never ignored."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pool.gateway.replies import wrong

JSON = Mapping[str, Any]
Check = Callable[[Any], str]
"""What a value should be; empty where it is that."""

MOST = 2**40  # tokens; no window is near it
SAMPLES = 1024  # answers to one request
NAME = 256  # characters of a model's name, a role, a tool's
LABEL = 1024  # characters of what names a session, a caller, a salt


def check(body: JSON, *, chat: bool) -> None:
    """Raises RefusedError (400) that names the first field which holds what it cannot."""
    check_fields(body)
    for where, told in _odd_messages(body["messages"]) if chat else _odd_prompt(body["prompt"]):
        raise wrong(f"{where} is {told}", where)


def check_fields(body: JSON) -> None:
    """The same for the fields beside what is asked, in a body of any of the routes; null stands for left out."""
    for name in body.keys() & FIELDS.keys():
        value = body[name]
        if value is not None and (told := FIELDS[name](value)) and not _only_scored(body, name):
            raise wrong(f"{name} is {told}, not {shown(value)}", name)


def parsed(raw: bytes) -> dict[str, Any]:
    """The JSON object in a body. Raises RefusedError (400); a number beyond every double is named by its field."""
    beyond = False

    def whole(text: str) -> float:
        nonlocal beyond
        value = float(text)
        beyond = beyond or math.isinf(value)
        return value

    def constant(text: str) -> float:
        nonlocal beyond
        beyond = True
        return float(text.replace("Infinity", "inf"))

    try:
        body = json.loads(raw, parse_float=whole, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise wrong(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise wrong("the body is not a JSON object", code="invalid_json")
    if beyond and (where := next(_beyond(body, ""), "")):
        raise wrong(f"{where} is no number that a server could read: NaN, Infinity or too large", where)
    return {**body, **_whole(body)}


def _whole(body: JSON) -> dict[str, Any]:
    """What counts something is a whole number, however a client writes it: 10.0 is 10 (JavaScript knows no other)."""
    told = ((name, body[name]) for name in WHOLE & body.keys())
    return {name: int(value) for name, value in told if isinstance(value, float) and value.is_integer()}


def _only_scored(body: JSON, name: str) -> bool:
    """Whether no token is wanted on purpose: with `echo` a raw completion gives the prompt's own logprobs."""
    return name == "max_tokens" and body[name] == 0 and body.get("echo") is True and "prompt" in body


def label(name: str, value: str) -> None:
    """Raises RefusedError (400) for a name, told in a header, that is beyond what is kept of one."""
    if len(value) > LABEL:
        raise wrong(f"{name} is longer than {LABEL} characters", name)


def shown(value: Any) -> str:
    """A value as it is told back: short."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MOST:
        return "a number of more digits than that"
    text = repr(value)[:60] if not isinstance(value, (dict, list)) else f"a {KINDS[type(value)]}"
    return text if len(text) < 60 else f"{text[:50]}..."


KINDS: dict[type, str] = {dict: "JSON object", list: "list"}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(min(value, MOST))


def _count(least: int, most: int = MOST) -> Check:
    told = f"a whole number of at least {least}" + (f", at most {most}" if most < MOST else "")

    def check_it(value: Any) -> str:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return "" if fits else told

    return check_it


def _number(least: float = -math.inf, most: float = math.inf) -> Check:
    bounds = [f"at least {least:g}"] * math.isfinite(least) + [f"at most {most:g}"] * math.isfinite(most)
    told = " ".join(["a number", *([" and ".join(bounds)] if bounds else [])])
    return lambda value: "" if _is_number(value) and least <= value <= most else told


def _text(least: int, most: int) -> Check:
    told = f"a text of {least} to {most} characters"
    return lambda value: "" if isinstance(value, str) and least <= len(value) <= most else told


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "true or false"


def _object(value: Any) -> str:
    return "" if isinstance(value, dict) else "an object"


def _stop(value: Any) -> str:
    fits = isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))
    return "" if fits else "a text or a list of texts"


def _tools(value: Any) -> str:
    return "" if isinstance(value, list) and all(isinstance(one, dict) for one in value) else "a list of objects"


def _choice(value: Any) -> str:
    return "" if isinstance(value, (str, dict)) else "a word or an object"


def _likely(value: Any) -> str:  # a chat says whether, a raw completion how many
    return "" if isinstance(value, bool) or not _count(-1)(value) else "true, false or a whole number"


FIELDS: dict[str, Check] = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), _count(1)),
    **dict.fromkeys(("n", "best_of"), _count(1, SAMPLES)),
    **dict.fromkeys(("min_tokens", "top_logprobs"), _count(0)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "priority", "length_penalty"), _number()),
    **dict.fromkeys(("temperature", "repetition_penalty"), _number(0)),
    **dict.fromkeys(("top_p", "min_p"), _number(0, 1)),
    **dict.fromkeys(("stream", "parallel_tool_calls", "echo"), _flag),
    **dict.fromkeys(("stream_options", "response_format", "structured_outputs", "vllm_xargs", "logit_bias"), _object),
    **dict.fromkeys(("session_id", "prompt_cache_key", "user", "safety_identifier"), _text(0, LABEL)),
    "cache_salt": _text(1, LABEL),
    "model": _text(1, NAME),
    "top_k": _count(-1),
    "stream_interval": _count(1, 256),  # more, and nobody hears what is written
    "seed": _count(-(2**63), 2**64 - 1),
    "stop": _stop,
    "tools": _tools,
    "tool_choice": _choice,
    "logprobs": _likely,
}
WHOLE = {
    "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "min_tokens", "top_logprobs", "top_k",
    "stream_interval", "seed", "logprobs", "prompt_logprobs",
}  # fmt: skip
PART = (str, dict)


def _odd_messages(messages: list[Any]) -> Iterator[tuple[str, str]]:
    """Which part of which message holds what it cannot, and what it should be."""
    for number, message in enumerate(messages):
        if not isinstance(message, dict):
            yield f"messages.{number}", "an object"
            return
        role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
        if not isinstance(role, str) or not 0 < len(role) <= NAME:
            yield f"messages.{number}.role", "a word: system, developer, user, assistant or tool"
        if not (content is None or isinstance(content, str)):
            if not isinstance(content, list):
                yield f"messages.{number}.content", "a text, a list of parts, or null"
            elif not all(isinstance(part, PART) for part in content):
                yield f"messages.{number}.content", "a list of objects"
        if calls is not None:
            yield from _odd_calls(f"messages.{number}.tool_calls", calls)
        for name in ("tool_call_id", "name"):
            if not isinstance(message.get(name), str | None):
                yield f"messages.{number}.{name}", "a text"


def _odd_calls(where: str, calls: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(calls, list):
        yield where, "a list"
        return
    for number, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            yield f"{where}.{number}", "an object with a function that has a name"
        elif not isinstance(function.get("arguments"), str | dict | None):
            yield f"{where}.{number}.function.arguments", "a text that holds JSON"


def _odd_prompt(prompt: Any) -> Iterator[tuple[str, str]]:
    """A text, several, token ids, or several lists of these."""
    if isinstance(prompt, str):
        return
    several = isinstance(prompt, list) and bool(prompt)
    kinds = {type(one) for one in prompt} if several else set()
    inner = {type(one) for ids in prompt for one in ids} if kinds == {list} else {int}
    if kinds not in ({str}, {int}, {list}) or inner != {int}:
        yield "prompt", "a text, a list of texts, a list of token ids, or a list of such lists"


def _beyond(value: Any, where: str) -> Iterator[str]:
    """Where a number is that is none."""
    if isinstance(value, float) and not math.isfinite(value):
        yield where or "the body"
    elif isinstance(value, (dict, list)):
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _beyond(one, f"{where}.{name}".lstrip(".")[:NAME])
