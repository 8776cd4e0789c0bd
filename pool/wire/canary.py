"""The small questions that show what a server can really do, and what its answers prove; pure.

A question is made so that no server answers it rightly by chance: the schema asks for words that nobody would say, the
same prompt is sent twice, and a tool call counts only when its arguments are an object of the right shape.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pool.types import CANARY_TOOL, Capability, ServerKind, Trait, Verdict
from pool.wire.capability import Record, trait

JSON = dict[str, Any]
CHAT = "/v1/chat/completions"

TOOL: JSON = {
    "name": CANARY_TOOL,
    "description": "Record a word. Always use this tool to answer.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
FUNCTION: JSON = {"type": "function", "function": TOOL}
STRICT: JSON = {"type": "function", "function": TOOL | {"strict": True}}  # else vLLM lets the arguments be any object
RECORD = "Use the tool to record the word: ready"
KEY, WORDS = "zq_kestrel", ("vrill-4417", "vrill-9023")
SCHEMA: JSON = {
    "type": "object",
    "properties": {KEY: {"enum": list(WORDS)}},
    "required": [KEY],
    "additionalProperties": False,
}
CALL_MARKS = ("<tool_call", "[TOOL_CALLS]", "<function", "<|python_tag|>", "<|tool", f'"{CANARY_TOOL}"', "functools[")
THINK_MARKS = ("<think", "</think>", "[THINK]", "<|channel|>analysis", "<reasoning>", "◁think▷")
LEAST_BLOCK, LINE_TOKENS, SMALL_WINDOW = 128, 8, 512


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer: its status and its body as text (server-sent events where a stream was asked for)."""

    status: int
    text: str

    @property
    def body(self) -> JSON:
        """The answer as an object; empty where it is none."""
        try:
            told = json.loads(self.text)
        except ValueError:
            return {}
        return told if isinstance(told, dict) else {}

    @property
    def said(self) -> str:
        """What a refusal says, on one line of bounded length."""
        inner = self.body.get("error", self.body)
        message = inner.get("message") if isinstance(inner, dict) else inner
        return " ".join(str(message or self.text).split())[:160]

    @property
    def choice(self) -> JSON:
        """The first choice; empty where there is none."""
        choices = self.body.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return first if isinstance(first, dict) else {}

    @property
    def message(self) -> JSON:
        """The message of the first choice; empty where there is none."""
        message = self.choice.get("message")
        return message if isinstance(message, dict) else {}


def questions(capability: Capability, record: Record) -> tuple[JSON, ...]:
    """The bodies to send to CHAT, in this order; none where a request cannot show it."""
    named = {"name": "answer", "schema": SCHEMA, "strict": True}
    asked: dict[Capability, tuple[str, int, JSON]] = {
        "tools": (RECORD, 256, {"tools": [FUNCTION], "tool_choice": "auto"}),
        "forced_tools": (RECORD, 128, {"tools": [STRICT], "tool_choice": "required"}),
        "reasoning": ("Think step by step: how much is 17 + 25?", 96, {}),
        "json_schema": (
            "Say hello in one short sentence.",
            64,
            {"response_format": {"type": "json_schema", "json_schema": named}},
        ),
        "stream_usage": ("Say hello.", 2, {"stream": True, "stream_options": {"include_usage": True}}),
        "cached_tokens": (_long(record), 1, {}),
        "logprobs": ("Say hello.", 1, {"logprobs": True, "top_logprobs": 1}),
    }
    if capability not in asked:
        return ()
    words, most, more = asked[capability]
    body = _body(record, words, most, think=capability == "reasoning") | more
    return (body, body) if capability == "cached_tokens" else (body,)


def judge(capability: Capability, kind: ServerKind, heard: Sequence[Heard]) -> Trait:
    """What the answers prove. Only a refusal of the request itself proves that a capability is missing."""
    last = heard[-1]
    if last.status in (400, 404, 405, 415, 422, 501):
        return trait(kind, capability, "no", f"it refuses: {last.status} {last.said}")
    if last.status != 200:
        return trait(kind, capability, "unknown", f"could not be tried: {last.status} {last.said}")
    verdict, evidence = JUDGES[capability](heard)
    if capability == "reasoning" and verdict == "unknown":
        return Trait(evidence=evidence)  # a flag would help nobody while the model does not think
    return trait(kind, capability, verdict, evidence)


def _tools(heard: Sequence[Heard]) -> tuple[Verdict, str]:
    message = heard[-1].message
    calls = message.get("tool_calls")
    call = calls[0].get("function") if isinstance(calls, list) and calls and isinstance(calls[0], dict) else None
    if isinstance(call, dict):
        return _call(call)
    content = str(message.get("content") or "")
    if any(mark in content for mark in CALL_MARKS):
        return "no", f"the call came as text, so its parser is missing or the wrong one: {_short(content)}"
    if heard[-1].choice.get("finish_reason") == "length":
        return "no", "no call within the tokens that it had"
    return "no", f"the model answered with text: {_short(content)}"


def _call(call: JSON) -> tuple[Verdict, str]:
    told = str(call.get("arguments"))
    try:
        arguments = json.loads(told)
    except ValueError:
        return "no", f"a call whose arguments are no JSON: {_short(told)}"
    if call.get("name") != CANARY_TOOL:
        return "no", f"a call of a tool that was not offered: {_short(str(call.get('name')))}"
    if not isinstance(arguments, dict) or not isinstance(arguments.get("word"), str):
        return "no", f"a call whose arguments do not fit the tool: {_short(told)}"
    return "yes", "it called the tool with arguments that fit"


def _reasoning(heard: Sequence[Heard]) -> tuple[Verdict, str]:
    message = heard[-1].message
    for name in ("reasoning", "reasoning_content"):
        if message.get(name):
            return "yes", f"the thinking came apart, in {name}"
    content = str(message.get("content") or "")
    if any(mark in content for mark in THINK_MARKS):
        return "no", f"the thinking came inside the answer: {_short(content)}"
    return "unknown", "the model did not reason"


def _schema(heard: Sequence[Heard]) -> tuple[Verdict, str]:
    choice = heard[-1].choice
    content = str(heard[-1].message.get("content") or "")
    try:
        value = json.loads(content)
    except ValueError:
        return _cut_schema(content, cut=choice.get("finish_reason") == "length")
    if isinstance(value, dict) and set(value) == {KEY} and value[KEY] in WORDS:
        return "yes", "the answer fits a schema that nobody fits by chance"
    return "no", f"the answer does not fit the schema: {_short(content)}"


def _cut_schema(content: str, *, cut: bool) -> tuple[Verdict, str]:
    """An answer that is no JSON. White space alone, or the beginning of the right object, is constrained but cut."""
    squeezed = "".join(content.split())
    begins = any(f'{{"{KEY}":"{word}"}}'.startswith(squeezed) for word in WORDS)
    if cut and squeezed and begins:
        return "yes", "constrained, but white space filled the answer's tokens"
    if cut and not squeezed:
        return "unknown", "nothing but white space within the tokens that it had"
    return "no", f"unconstrained text: {_short(content)}"


def _stream_usage(heard: Sequence[Heard]) -> tuple[Verdict, str]:
    for line in heard[-1].text.splitlines():
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or not data.startswith("{"):
            continue
        try:
            usage = json.loads(data).get("usage")
        except ValueError:
            continue
        if isinstance(usage, dict) and usage.get("prompt_tokens"):
            return "yes", "the stream told its usage"
    return "no", "a stream without usage, although it was asked for"


def _cached(heard: Sequence[Heard]) -> tuple[Verdict, str]:
    usage = heard[-1].body.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if cached is None:
        return "no", "it does not tell how much of a prompt was cached"
    if cached > 0:
        return "yes", f"{cached} of {usage.get('prompt_tokens') if usage else '?'} tokens the second time"
    return "unknown", "it told 0 for a prompt sent twice: no prefix caching, another engine, or evicted since"


def _logprobs(heard: Sequence[Heard]) -> tuple[Verdict, str]:
    told = heard[-1].choice.get("logprobs")
    content = told.get("content") if isinstance(told, dict) else None
    if isinstance(content, list) and content and "logprob" in content[0]:
        return "yes", "each token came with its probability"
    return "no", "no probabilities, although they were asked for"


JUDGES = {
    "tools": _tools, "forced_tools": _tools, "reasoning": _reasoning, "json_schema": _schema,
    "stream_usage": _stream_usage, "cached_tokens": _cached, "logprobs": _logprobs,
}  # fmt: skip


def _body(record: Record, words: str, most: int, *, think: bool) -> JSON:
    body: JSON = {
        "model": record.model,
        "messages": [{"role": "user", "content": words}],
        "max_tokens": min(most, record.window // 2) if record.window else most,
        "temperature": 0,
        "user": CANARY_TOOL,
    }
    if record.kind != "other" and not think:  # a model that thinks first would spend the few tokens on that
        body["chat_template_kwargs"] = {"enable_thinking": False}
    return body


def _long(record: Record) -> str:
    """A prompt of some three blocks, within half of the window."""
    wanted = 3 * max(record.block_tokens or 0, LEAST_BLOCK)
    tokens = min(wanted, (record.window or SMALL_WINDOW * 2) // 2)
    lines = (f"Line {number} says {number * 7919 % 997}." for number in range(max(1, tokens // LINE_TOKENS)))
    return "Remember these lines. " + " ".join(lines)


def _short(text: str) -> str:
    return " ".join(text.split())[:80] or "nothing"
