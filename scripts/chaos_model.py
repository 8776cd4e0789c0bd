"""A pretend model server as a process that may be killed: python chaos_model.py PORT LOG.

It mends the chaos repository in three turns, by what the conversation says alone, so that it needs no memory of its
own. Each answer is a line of LOG before it is sent: which task, which turn, and a digest of the question.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

from pool.pretend.script import Recorded, Scripted, Slow
from pool.testing import pretend_vllm
from pool.types import Choice, ToolCall

MENDED = "def clamp(x, low, high):\n    return max(low, min(x, high))  # mended by {task}\n"
_TASK = re.compile(r"chaos task ([a-z0-9-]+)")


def answer(recorded: Recorded) -> tuple[str, Choice] | None:
    """Which task asks, and what a model says that knows the fault; None for whoever is no agent of ours."""
    messages: list[dict[str, Any]] = recorded.body.get("messages", [])
    found = _TASK.search(json.dumps(messages))
    if found is None:
        return None
    task = found.group(1)
    turn = sum(1 for message in messages if message.get("role") == "assistant")
    wrote = _written(messages)
    if turn == 0:
        return task, _call(turn, "shell", command="python3 -m unittest -q; true")
    if not wrote:
        return task, _call(turn, "write", path="clamp.py", content=MENDED.format(task=task))
    return task, _call(turn, "finish", title="Respect the upper bound", summary="It returned the lower one.")


def _written(messages: list[dict[str, Any]]) -> bool:
    """Whether the last writing call came back with a result of its own, and not with word of a restart."""
    wrote = False
    calls: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            calls[call["id"]] = call["function"]["name"]
        if message.get("role") == "tool" and calls.get(message.get("tool_call_id", "")) == "write":
            wrote = "interrupted by a restart" not in json.dumps(message)
    return wrote


def _call(turn: int, name: str, **arguments: str) -> Choice:
    call = ToolCall(id=f"call{turn}", name=name, arguments=json.dumps(arguments))
    return Choice(tool_calls=(call,), finish_reason="tool_calls")


async def serve(port: int, log: Path) -> None:
    """Serve until the process is killed."""

    def script(recorded: Recorded) -> Scripted:
        said = answer(recorded)
        if said is None:
            return "ok"
        task, choice = said
        digest = hashlib.sha256(json.dumps(recorded.body.get("messages")).encode()).hexdigest()
        with log.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"task": task, "question": digest}) + "\n")
        return Slow(random.uniform(0.05, 0.3), choice)  # noqa: S311  no secret hangs on it

    async with pretend_vllm(script, port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
