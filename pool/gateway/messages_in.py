"""A request of Anthropic's Messages API as the chat that it is; pure.

Source: docs.claude.com, API reference, Messages. What no chat can say is refused by name. Left out are only hints that
change nothing of an answer: `cache_control` and `context_management` (caches here need no marks, and nothing is cut),
the budget of `thinking`, thoughts that only Anthropic could read, and the line for its billing, which is another in
each request and would make every prefix a new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pool.gateway.replies import RefusedError, well_formed, wrong

JSON = dict[str, Any]
COPIED = ("model", "max_tokens", "temperature", "top_p", "top_k", "stream", "session_id")
HINTS = {"service_tier", "context_management", "cache_control", "inference_geo", "betas", "speed"}
HANDLED = {
    *COPIED, *HINTS, "messages", "system", "stop_sequences", "tools", "tool_choice", "metadata", "thinking",
    "output_config", "output_format", "container", "mcp_servers",
}  # fmt: skip
EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
BILLING = "x-anthropic-billing-header:"
REMINDER = "<system-reminder>\n{}\n</system-reminder>"
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_body(body: Mapping[str, Any]) -> JSON:
    """The body of a chat that says the same. Raises RefusedError (400) that names what cannot be said."""
    with well_formed():
        return _chat_body(body)


def _chat_body(body: Mapping[str, Any]) -> JSON:
    _check(body)
    chat: JSON = {name: body[name] for name in COPIED if body.get(name) is not None}
    said = (*_system(body.get("system"), "system"), *_messages(body["messages"]))
    chat["messages"] = _joined(said)
    if body.get("stop_sequences"):
        chat["stop"] = body["stop_sequences"]
    if body.get("tools"):
        chat["tools"] = [_tool(tool, f"tools.{number}") for number, tool in enumerate(body["tools"])]
    if (choice := body.get("tool_choice")) is not None and "tools" in chat:
        chat |= _choice(choice)
    if isinstance(user := (body.get("metadata") or {}).get("user_id"), str):
        chat["user"] = user
    if (body.get("thinking") or {}).get("type") == "disabled":
        chat["chat_template_kwargs"] = {"enable_thinking": False}
    chat |= _output(body)
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _check(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        if name not in HANDLED and value is not None:
            raise _cannot(name, f"{name} is not known here")
    for name in ("container", "mcp_servers"):
        if body.get(name):
            raise _cannot(name, f"{name} is not possible here: the servers behind this gateway run nothing")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise wrong("messages is a list of at least one message", "messages")
    if body.get("max_tokens") is None:
        raise wrong("max_tokens: Field required", "max_tokens")


def _system(system: Any, where: str) -> Iterator[JSON]:
    if not system:
        return
    texts = [system] if isinstance(system, str) else [_text(block, where) for block in system]
    if kept := [text for text in texts if not text.startswith(BILLING)]:
        yield {"role": "system", "content": "\n".join(kept)}


def _joined(messages: Iterable[JSON]) -> list[JSON]:
    """Turns of one role become one, as this API has it. A word of the system between turns is marked in a person's:
    most chat templates know one at the beginning alone."""
    out: list[JSON] = []
    for told in messages:
        late = told["role"] == "system" and out and out[-1]["role"] != "system"
        message = {"role": "user", "content": REMINDER.format(told["content"])} if late else told
        if out and message["role"] == out[-1]["role"] != "tool":
            out[-1] = _both(out[-1], message)
        else:
            out.append(message)
    return out


def _both(one: JSON, two: JSON) -> JSON:
    texts = [message["content"] for message in (one, two) if message["content"]]
    if all(isinstance(text, str) for text in texts):
        content: Any = "\n".join(texts) or two["content"]
    else:
        content = [part for text in texts for part in _as_parts(text)]
    both = one | two | {"content": content}
    if calls := [*one.get("tool_calls", ()), *two.get("tool_calls", ())]:
        both["tool_calls"] = calls
    if thoughts := [message["reasoning"] for message in (one, two) if message.get("reasoning")]:
        both["reasoning"] = "\n".join(thoughts)
    return both


def _as_parts(content: Any) -> list[JSON]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _messages(messages: list[Any]) -> Iterator[JSON]:
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        role, content = message.get("role"), message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role == "system":
            yield from _system(blocks, where)
        elif role == "user":
            yield from _user(blocks, where)
        elif role == "assistant":
            yield _assistant(blocks, where)
        else:
            raise wrong(f"no such role: {role!r:.80}", where)


def _user(blocks: list[JSON], where: str) -> Iterator[JSON]:
    """Results of tools are messages of their own and go first, since they answer the calls before; images in them
    follow as a person's, for a tool cannot show any in a chat."""
    said: list[JSON] = []
    for block in blocks:
        if block["type"] == "tool_result":
            text, shown = _result(block, where)
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}
            said += shown
        else:
            said.append(_part(block, where))
    if said:
        plain = all(part["type"] == "text" for part in said)
        yield {"role": "user", "content": "\n".join(part["text"] for part in said) if plain else said}


def _result(block: JSON, where: str) -> tuple[str, list[JSON]]:
    content = block.get("content")
    parts = [_part(part, where) for part in content or ()] if not isinstance(content, str) else []
    texts = [part["text"] for part in parts if part["type"] == "text"] if parts else [content or ""]
    text = "\n".join(texts)
    if block.get("is_error") and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return text, [part for part in parts if part["type"] != "text"]


def _assistant(blocks: list[JSON], where: str) -> JSON:
    texts, thoughts, calls = list[str](), list[str](), list[JSON]()
    for block in blocks:
        match block["type"]:
            case "tool_use":
                function = {"name": block["name"], "arguments": json.dumps(block.get("input") or {})}
                calls.append({"id": block["id"], "type": "function", "function": function})
            case "thinking":
                thoughts.append(block.get("thinking") or "")
            case "redacted_thinking":
                continue
            case _:
                texts.append(_text(block, where))
    message: JSON = {"role": "assistant", "content": "\n".join(texts) or (None if calls else "")}
    if any(thoughts):
        message["reasoning"] = "\n".join(thoughts)
    return message | ({"tool_calls": calls} if calls else {})


def _part(block: Any, where: str) -> JSON:
    """A block that a person shows, as a part of a chat's content."""
    kind, source = block["type"], block.get("source") or {}
    if kind == "image" and source.get("type") == "base64":
        return {"type": "image_url", "image_url": {"url": f"data:{source['media_type']};base64,{source['data']}"}}
    if kind == "image" and source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source["url"]}}
    if kind == "document" and source.get("type") == "text":
        return {"type": "text", "text": source["data"]}
    return {"type": "text", "text": _text(block, where)}


def _text(block: Any, where: str) -> str:
    if block["type"] != "text" or not isinstance(block["text"], str):
        raise _cannot(where, f"content of type {block['type']!r:.80} is not possible here")
    return block["text"]


def _tool(tool: Any, where: str) -> JSON:
    if tool.get("type") not in (None, "custom"):
        raise _cannot(
            where, f"a tool of type {tool['type']!r:.80} runs at Anthropic's; only tools of your own are possible"
        )
    kept = {name: tool[name] for name in ("name", "description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": kept | {"parameters": tool["input_schema"]}}


def _choice(choice: Any) -> JSON:
    kind = choice["type"]
    if kind not in (*CHOICES, "tool"):
        raise _cannot("tool_choice", f"tool_choice {kind!r:.80} is not possible here")
    named = {"type": "function", "function": {"name": choice.get("name")}}
    told: JSON = {"tool_choice": named if kind == "tool" else CHOICES[kind]}
    return told | ({"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else {})


def _output(body: Mapping[str, Any]) -> JSON:
    """Effort and form of the answer."""
    config = body.get("output_config") or {}
    wanted, effort, told = config.get("format") or body.get("output_format"), config.get("effort"), JSON()
    if effort is not None:
        if effort not in EFFORTS:
            raise _cannot("output_config.effort", f"the effort {effort!r:.80} is not possible here")
        told["reasoning_effort"] = EFFORTS[effort]
    if wanted is not None:
        if wanted.get("type") != "json_schema":
            raise _cannot("output_config.format", f"the format {wanted.get('type')!r:.80} is not possible here")
        told["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted["schema"]}}
    return told


def _cannot(field: str, words: str) -> RefusedError:
    return wrong(f"{field}: {words}; this gateway answers /v1/messages by way of a chat", field, "unsupported")
