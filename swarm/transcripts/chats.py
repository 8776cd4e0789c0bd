"""A transcript as the messages of a chat, in OpenAI's form, for programs that read nothing else. Pure.

What no model was told (saves, reports, what an agent of others printed) is no message and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from swarm.transcripts.shape import Step, Transcript

_ROLES = {"system", "user", "assistant", "tool"}


def messages(transcript: Transcript) -> list[dict[str, Any]]:
    """The conversation, one message after the other."""
    return [message for step in transcript.steps for message in _messages(step)]


def _messages(step: Step) -> Iterator[dict[str, Any]]:
    if step.source == "agent":
        if step.message or step.reasoning_content or step.tool_calls:
            yield _answer(step)
    elif step.source == "user" or _told(step):
        yield {"role": step.extra.get("role") if _told(step) else "user", "content": step.message}
    for result in step.observation.results if step.observation else ():
        if result.source_call_id is None:
            yield {"role": "user", "content": result.content}
        else:
            yield {"role": "tool", "tool_call_id": result.source_call_id, "content": result.content}


def _told(step: Step) -> bool:
    """Whether a model was told a step that is no person's: the opening words of the system, or a nudge."""
    return step.extra.get("role") in _ROLES


def _answer(step: Step) -> dict[str, Any]:
    thought = {"reasoning_content": step.reasoning_content} if step.reasoning_content else {}
    calls = [
        {
            "id": call.tool_call_id,
            "type": "function",
            "function": {
                "name": call.function_name,
                "arguments": call.extra.get("raw") or json.dumps(call.arguments, ensure_ascii=False),
            },
        }
        for call in step.tool_calls
    ]
    return {"role": "assistant", "content": step.message, **thought, **({"tool_calls": calls} if calls else {})}
