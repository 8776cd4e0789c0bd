"""A request of OpenAI's Responses API as the chat that it is, without state; pure.

What a stateless server cannot do, or no chat can say, is refused by name: nothing is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pool.gateway.replies import RefusedError, well_formed, wrong

JSON = dict[str, Any]
COPIED = ("model", "temperature", "top_p", "parallel_tool_calls", "stream", "user", "prompt_cache_key", "session_id")
HANDLED = {
    *COPIED, "input", "instructions", "max_output_tokens", "tools", "tool_choice", "text", "reasoning", "metadata",
    "safety_identifier",
    "client_metadata",
}  # fmt: skip
FIXED: dict[str, tuple[Any, ...]] = {  # fields that may only say what is so anyway
    "store": (None, False),
    "background": (None, False),
    "previous_response_id": (None,),
    "conversation": (None,),
    # Encrypted reasoning is how a client carries thoughts from turn to turn where nothing is kept. Here the answer has
    # them in clear, as its content, and takes them back from there: asking for it changes nothing.
    "include": (None, [], ["reasoning.encrypted_content"]),
    "truncation": (None, "disabled"),
    "service_tier": (None, "auto", "default"),
    "top_logprobs": (None, 0),
    "max_tool_calls": (None,),
    "prompt": (None,),
    "stream_options": (None, {}, {"include_obfuscation": False}),
}


def chat_body(body: Mapping[str, Any]) -> JSON:
    """The body of a chat that says the same. Raises RefusedError (400) that names what cannot be said."""
    with well_formed():
        return _chat_body(body)


def _chat_body(body: Mapping[str, Any]) -> JSON:
    _check(body)
    chat: JSON = {name: body[name] for name in COPIED if body.get(name) is not None}
    chat["messages"] = _messages(body)
    if (most := body.get("max_output_tokens")) is not None:
        chat["max_completion_tokens"] = most
    if body.get("tools"):
        chat["tools"] = [_tool(tool) for tool in body["tools"]]
    if (choice := body.get("tool_choice")) is not None:
        chat["tool_choice"] = _choice(choice)
    if (wanted := _format(body.get("text"))) is not None:
        chat["response_format"] = wanted
    if (effort := _effort(body.get("reasoning"))) is not None:
        chat["reasoning_effort"] = effort
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _check(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        if name in FIXED:
            if value not in FIXED[name]:
                raise _cannot(name, f"{name} = {json.dumps(value)[:80]} is not possible here: nothing is kept")
        elif name not in HANDLED and value is not None:
            raise _cannot(name, f"{name} is not known here")
    _no_more_than_words(body.get("client_metadata"))
    if not isinstance(body.get("input"), str | list) or not body["input"]:
        raise wrong("input is a text or a list of items", "input")


def _no_more_than_words(told: Any) -> None:
    """Codex tells which installation, thread and turn asks: words about the client, which change no answer."""
    if told is not None and not (isinstance(told, dict) and all(isinstance(word, str) for word in told.values())):
        raise wrong("client_metadata is an object of texts", "client_metadata")


def _messages(body: Mapping[str, Any]) -> list[JSON]:
    messages: list[JSON] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    if isinstance(body["input"], str):
        return [*messages, {"role": "user", "content": body["input"]}]
    reasoning = ""
    for number, item in enumerate(body["input"]):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        where = f"input[{number}]"
        if kind == "reasoning":
            reasoning += _thought(item, where)
        elif kind == "message":
            messages.append(_message(item, where))
        elif kind == "function_call":
            _add_call(messages, item)
        elif kind == "function_call_output":
            output = _content(item.get("output"), where)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
        else:
            raise _cannot(where, f"an item of type {kind!r} is not possible here")
        if reasoning and messages and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning"] = messages[-1].get("reasoning", "") + reasoning
            reasoning = ""
    return messages


def _message(item: JSON, where: str) -> JSON:
    role = item.get("role")
    if role not in ("user", "assistant", "system", "developer"):
        raise wrong(f"no such role: {role!r}", where)
    return {"role": "system" if role == "developer" else role, "content": _content(item.get("content"), where)}


def _add_call(messages: list[JSON], item: JSON) -> None:
    """Calls made together belong to one message, with what was said before them."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    function = {"name": item.get("name"), "arguments": item.get("arguments", "")}
    calls = messages[-1].setdefault("tool_calls", [])
    calls.append({"id": item.get("call_id"), "type": "function", "function": function})


def _content(content: Any, where: str) -> Any:
    """Text where it is text alone, else OpenAI's parts."""
    if isinstance(content, str):
        return content
    parts = [_part(part, where) for part in content or ()]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(part: Any, where: str) -> JSON:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": part.get("text", "")}
    if kind == "refusal":
        return {"type": "text", "text": part.get("refusal", "")}
    if kind == "input_image" and part.get("image_url"):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    raise _cannot(where, f"content of type {kind!r} is not possible here")


def _thought(item: JSON, where: str) -> str:
    if item.get("encrypted_content"):
        raise _cannot(where, "encrypted reasoning cannot be read here")
    return "".join(part.get("text", "") for part in item.get("content") or () if isinstance(part, dict))


def _tool(tool: Any) -> JSON:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        kind = tool.get("type") if isinstance(tool, dict) else tool
        raise _cannot("tools", f"a tool of type {kind!r} is not possible here, functions are")
    kept = {name: tool[name] for name in ("name", "description", "parameters", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": kept}


def _choice(choice: Any) -> Any:
    if choice in ("auto", "none", "required"):
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    raise _cannot("tool_choice", f"tool_choice {json.dumps(choice)[:80]} is not possible here")


def _format(text: Any) -> JSON | None:
    if text is None:
        return None
    if set(text) - {"format", "verbosity"} or text.get("verbosity") not in (None, "medium"):
        raise _cannot("text", "of text only format is possible here")
    wanted = text.get("format") or {"type": "text"}
    if wanted.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {k: v for k, v in wanted.items() if k != "type"}}
    if wanted.get("type") in ("text", "json_object"):
        return None if wanted["type"] == "text" else {"type": "json_object"}
    raise _cannot("text.format", f"the format {wanted.get('type')!r} is not possible here")


def _effort(reasoning: Any) -> str | None:
    if reasoning is None:
        return None
    told = {name: value for name, value in reasoning.items() if value is not None}
    if set(told) - {"effort", "summary"} or told.get("summary") not in (None, "auto"):
        raise _cannot("reasoning", "of reasoning only effort is possible here; summaries are not made")
    effort: str | None = told.get("effort")
    return effort


def _cannot(field: str, words: str) -> RefusedError:
    return wrong(f"{words}; this gateway answers /v1/responses without state, by way of a chat", field, "unsupported")
