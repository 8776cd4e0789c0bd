"""The running conversation of one attempt: journal first, then memory, so that a restart goes on where it stood."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pool.types import ChatRequest, Message, ToolSpec
from swarm import history, prompts, recording
from swarm.budgets.notices import told_before
from swarm.speech.calls import Call
from swarm.tools.kit import Result
from swarm.tools.specs import specs
from swarm.work import Work


@dataclass
class Talk:
    """``messages`` only grow at their end, but for an elision, so that an endpoint's cached prefix stays of use.

    ``tested`` holds while the tests passed after the last change, ``told`` counts the marks of the budget told of,
    ``idle`` the answers in a row without a call that could be run, ``seen`` how often a call gave the same result since
    the last edit. ``marks`` name the messages, as far as they were asked for. ``heard`` is the number of the last
    message from a person that was told, ``context`` the tokens of the conversation as the server counted them last.
    """

    work: Work
    messages: tuple[Message, ...]
    native: bool
    tools: tuple[ToolSpec, ...]
    turn: int = 0
    idle: int = 0
    told: int = 0
    context: int = 0
    changed: bool = False
    tested: bool = True
    warned: bool = False
    model: str = ""
    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    marks: list[str] = field(default_factory=list)
    heard: int = 0

    async def append(self, kind: str, message: Message, data: dict[str, Any]) -> None:
        """Add a message; what the next request says is on disk before it is sent."""
        await self.work.record(kind, {**data, "message": dump(message)})
        self.messages = (*self.messages, message)

    async def listen(self) -> bool:
        """Tell what people have said to the task since; whether that was anything."""
        said = await self.work.inbox(self.heard)
        for one in said:
            data = {"author": one.author, "text": one.text, "seq": one.seq, "of": one.task}
            await self.append("message", Message(role="user", content=prompts.said(one.author, one.text)), data)
            self.heard = one.seq
        return bool(said)

    async def answer(self, kind: str, id_: str, text: str, data: dict[str, Any]) -> None:
        """Add what a call gave, in the form that its protocol wants."""
        as_tool = self.native and id_ != "text"
        message = (
            Message(role="tool", content=text, tool_call_id=id_) if as_tool else Message(role="user", content=text)
        )
        await self.append(kind, message, data)

    async def elide(self, keep: int) -> bool:
        """Remove all tool results but the last ``keep``; False where that makes nothing smaller."""
        shorter = history.elide(self.messages, keep)
        if history.size(shorter) >= history.size(self.messages):
            return False
        text = f"the conversation outgrew the model's window: all results but the last {keep} were removed from it"
        await self.work.record("note", {"text": text, "about": history.ELIDED, "keep": keep})
        self.messages = shorter
        self.marks.clear()
        return True

    def digest(self, request: ChatRequest) -> str:
        """Names a request with the conversation as it stands; only what is new in it is looked at."""
        self.marks += map(recording.mark, self.messages[len(self.marks) :])
        return recording.digest(request, self.marks)

    def repeats(self, call: Call, result: Result) -> int:
        """How often this call gave this result since the last edit, numbers (times, process ids) aside."""
        key = (call.name, str(call.arguments), re.sub(r"\d+", "0", result.text))
        if result.kind == "edit":
            self.seen.clear()
        self.seen[key] += 1
        return self.seen[key]

    @asynccontextmanager
    async def noticing(self, *, due: bool = True) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What is newly to be told of the budget, mostly nothing, and what the line that tells it must hold.

        Told within the block: that line and the count in it are one, so nobody is told twice after a crash.
        """
        notice = self.work.ledger.notice(self.told) if due else None
        if notice is None:
            yield "", {}
            return
        yield notice.text, {"noticed": notice.passed}
        self.told = notice.passed
        await self.work.record("budget", notice.facts())


async def begin(work: Work) -> Talk:
    """A new conversation, or the one in the journal with its interrupted calls answered. Raises PoolError."""
    tools = specs(testable=bool(work.test_command))
    past = history.rebuild(work.past)
    if past is None:
        native = await work.pool.native_tools(work.tier)
        messages = prompts.opening(work.task.request, tools, native=native, test_command=work.test_command)
        told = {
            "native": native,
            "test_command": work.test_command,
            "messages": [dump(message) for message in messages],
        }
        await work.record("note", {"text": "the conversation begins", "about": history.OPENING, **told})
        return Talk(work, messages, native, tools)
    talk = Talk(work, past.messages, past.native, tools, turn=len(past.messages))
    talk.changed, talk.tested = past.changed, not past.changed
    talk.heard = last_heard(work)
    talk.told = told_before(work.past, work.attempt)
    calls = (step.data for step in reversed(work.past) if step.kind == "model_call")
    talk.context = next((data["prompt_tokens"] + data["completion_tokens"] for data in calls), 0)
    for id_ in past.open_calls:
        talk.changed, talk.tested = True, False  # whatever was cut off may have changed something
        await talk.answer("note", id_, prompts.INTERRUPTED, {"text": "the last command was interrupted"})
    return talk


def last_heard(work: Work) -> int:
    """The number of the last message that this conversation was told; a fork's other task numbers its own."""
    told = (step.data for step in work.past if step.kind == "message")
    return max((int(data["seq"]) for data in told if data.get("of") == work.task.id), default=0)


def dump(message: Message) -> dict[str, Any]:
    """A message as the journal keeps it."""
    return message.model_dump(mode="json", exclude_defaults=True)
