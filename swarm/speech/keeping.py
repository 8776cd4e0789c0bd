"""What of an answer stays in the history: a message that every server takes back, in the right form. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pool.types import Message, ToolCall
from swarm.speech import mending
from swarm.speech.calls import Broken, Call
from swarm.speech.form import Form
from swarm.speech.found import Heard

EMPTY = "[an empty answer]"
"""Stands for an answer of which nothing is left: servers refuse an assistant's message without content and calls."""
_TAIL = 1_500  # characters of thoughts that stand for an answer which was nothing else
_BROKEN = 1_500  # characters of a call that cannot be read, which stay for the model to see
_TOKENS = re.compile(
    r"<\|(?:im_start|im_end|endoftext|end_of_text|begin_of_text|eot_id|eom_id|start_header_id|end_header_id|end|return|"
    r"call|start|channel|message|constrain|python_tag|tool_call|tool_calls_section_begin|tool_calls_section_end|"
    r"tool_call_begin|tool_call_end|tool_call_argument_begin|user|assistant|system|observation|START_ACTION|END_ACTION|"
    r"eot|eom|header_start|header_end|tool_response|im_sep)\|>"
    r"|<\uff5c[^\uff5c<>]{1,40}\uff5c>|</?s>|\[/?INST\]|\[/?TOOL_CALLS\]|\[/?TOOL_RESULTS\]|<(?:start|end)_of_turn>|<[be]os>"
    r"|</?think(?:ing)?>|\[/?THINK\]|<pad>|<unk>"
)
"""Special tokens of the known families: in a history they are at best noise, at worst taken for the real ones."""
_TURN = re.compile(
    r"(?:(?:<\|im_end\|>|<\|eot_id\|>|<\|end\|>|<end_of_turn>|</s>)\s*)?"
    r"(?:<\|im_start\|>|<\|start_header_id\|>|<\|start\|>|<start_of_turn>|<\|)(?:user|tool|system|observation)\b"
)
_SPEAKER = re.compile(r"(?:<\|im_start\|>|<\|start\|>|<\|start_header_id\|>)\s*assistant\b(?:<\|end_header_id\|>)?")
_NAME = re.compile(r"[^A-Za-z0-9_-]")


def kept(heard: Heard, calls: Sequence[Call | Broken], form: Form, *, mended: bool = False) -> Message:
    """The message of an answer that was heard with these calls."""
    reasoning = heard.thought.strip() if form.keeps_reasoning else ""
    in_words = bool(heard.found) and heard.text == heard.words
    before = clean(heard.words[: heard.found[0].start] if in_words else heard.words)
    if form.native and calls:
        asked = tuple(ToolCall(id=call.id, name=_named(call), arguments=_arguments(call)) for call in calls)
        return Message(role="assistant", content=before, reasoning=reasoning, tool_calls=asked)
    if calls:
        content = _as_text(before, heard, calls, form, as_written=in_words and not mended)
        return Message(role="assistant", content=content, reasoning=reasoning)
    content = before or clean(heard.thought.strip()[-_TAIL:]) or EMPTY
    return Message(role="assistant", content=content, reasoning=reasoning if before else "")


def made_up(text: str) -> int | None:
    """Where a next turn begins that the model wrote itself, as another speaker; None where it did not."""
    found = _TURN.search(text)
    return found.start() if found else None


def clean(text: str) -> str:
    """Words without special tokens, and without a next turn that the model made up."""
    text = text[: made_up(text)]
    return _TOKENS.sub("", _SPEAKER.sub("", text)).strip()


def block(name: str, arguments: object, form: Form) -> str:
    """A call in the conversation's own text form."""
    told = mending.dumps({"name": name, "arguments": arguments})
    return told if form.way == "constrained" or form.shape == "object" else f"```tool\n{told}\n```"


def _as_text(before: str, heard: Heard, calls: Sequence[Call | Broken], form: Form, *, as_written: bool) -> str:
    """Calls in the words: as they were written where that is the right form, else written anew in it.

    A wrong form that stays in the history is what the next answer imitates.
    """
    text, found = heard.text, heard.found
    shapes = {one.shape for one in found}
    proper = shapes <= ({"constrained", "bare"} if form.shape == "object" else {"fenced"})
    if as_written and proper and all(isinstance(call, Call) for call in calls):
        written = text[: found[-1].end].rstrip()
        if not _TOKENS.search(written[: found[0].start]):
            return written
    parts = [before] if before else []
    for one, call in zip(found, calls, strict=True):
        if isinstance(call, Call):
            parts.append(block(call.name, call.arguments, form))
        else:
            excerpt = clean(text[one.start : one.end] or str(one.arguments))
            parts.append(excerpt if len(excerpt) <= _BROKEN else f"{excerpt[:_BROKEN]} [...]")
    return "\n\n".join(part for part in parts if part) or EMPTY


def _named(call: Call | Broken) -> str:
    """A name that servers take: some refuse a whole conversation for one letter."""
    return _NAME.sub("_", call.name)[:64] or "unknown"


def _arguments(call: Call | Broken) -> str:
    return json.dumps(call.arguments) if isinstance(call, Call) else "{}"
