"""Every request extends the one before, byte for byte, but for the breaks that the journal tells of: as a property."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pool.errors import ContextOverflowError, PermanentError, PoolError
from pool.testing import ScriptedPool
from pool.types import ChatRequest, Choice, Message, Reply, ToolCall, Traits, Usage
from swarm import history
from swarm.conversation import lessons, progress, room
from swarm.conversation.asking import GaveUpError
from swarm.conversation.shrinking import CONDENSE
from swarm.conversation.talk import Talk
from swarm.errors import BudgetExceededError
from swarm.known import Guide, Known
from swarm.tools.kit import Result
from swarm.types import Budget
from tests.swarm.agentside.conversation.conftest import Bench, Scripted, orphans

KNOWN = Known(guides=(Guide(path="AGENTS.md", text="Tabs, never spaces.\n" * 20),), notes=("tests: pytest",))


def rendered(request: ChatRequest) -> str:
    """As a chat template would: the tools first, then each message between its marks."""
    tools = "".join(tool.model_dump_json() for tool in request.tools)
    return f"<tools>{tools}</tools>" + "".join(map(_rendered, request.messages))


def _rendered(message: Message) -> str:
    calls = "".join(f"<call>{call.id} {call.name} {call.arguments}</call>" for call in message.tool_calls)
    return f"<{message.role} {message.tool_call_id or ''}>{message.content}{calls}</m>"


@dataclass
class Server:
    """Answers as it is told, counts as a server does, and refuses what its window cannot hold."""

    moves: Iterator[str]
    native: bool
    window: int | None
    heard: list[tuple[int, ChatRequest]] = field(default_factory=list)
    bench: Bench | None = None
    poisoned: bool = False

    def __call__(self, request: ChatRequest) -> Reply | PoolError:
        assert self.bench is not None
        prompt = len(rendered(request).encode()) // 4
        if not request.session.endswith(CONDENSE):
            self.heard.append((len(self.bench.steps), request))
        if self.window is not None and prompt + request.max_tokens > self.window:
            return ContextOverflowError("maximum context length", window=self.window)
        if request.session.endswith(CONDENSE):
            return self._reply(Choice(content="- looked at a.py\n- tests fail"), prompt)
        return self._move(next(self.moves, "finish"), prompt, len(self.heard))

    def _move(self, move: str, prompt: int, number: int) -> Reply | PoolError:
        if move == "refuse":
            return PermanentError("400: cannot parse the arguments")
        if move == "overflow":
            return ContextOverflowError("too long")
        content = {"words": "I think.", "empty": "", "thought": ""}.get(move)
        if content is not None:
            return self._reply(Choice(content=content, reasoning="Hm." if move == "thought" else ""), prompt)
        names = {"two": ("view", "edit"), "broken": ("launch",), "odd": ("shell",)}.get(move, (move,))
        arguments = [_arguments(name, number) for name in names]
        if self.native:
            calls = zip(names, arguments, strict=True)
            told = tuple(ToolCall(id=f"c{n}", name=name, arguments=json.dumps(a)) for n, (name, a) in enumerate(calls))
            return self._reply(Choice(tool_calls=told, finish_reason="tool_calls"), prompt)
        block = json.dumps({"name": names[0], "arguments": arguments[0]})
        return self._reply(Choice(content=f"<|odd|> I act.\n```tool\n{block}\n```"), prompt)

    def _reply(self, choice: Choice, prompt: int) -> Reply:
        usage = Usage(prompt_tokens=prompt, completion_tokens=9)
        return Reply(choices=(choice,), usage=usage, endpoint="e", model="m", seconds=0.0)


def _arguments(name: str, number: int) -> dict[str, str]:
    known = {"finish": {"title": "done"}, "shell": {"command": f"cat f{number}"}}
    edit = {"path": f"f{number}", "search": f"a{number}", "replace": "b"}
    return known.get(name, edit if name == "edit" else {"path": f"f{number}"})


MOVES = st.sampled_from(
    ["view", "view", "view", "shell", "edit", "two", "broken", "words", "empty", "thought", "refuse", "overflow",
     "person", "restart", "odd"]
)  # fmt: skip


async def played(moves: list[str], server: Server, sizes: list[int], known: Known) -> Bench:
    """One conversation to its end; a restart goes on from the journal, as a later daemon does."""
    traits = Traits(model="m", native=server.native, window=server.window)
    made = Bench(ScriptedPool(server, traits=traits), Budget(steps=40), {"known": known})
    server.bench = made
    at = iter(sizes * 100)

    def result(name: str, arguments: Any) -> Result:
        text = f"{name}: " + "line of text\n" * next(at)
        return Result(text, kind="edit" if name == "edit" else "note", changed=name == "edit", data={"path": "f"})

    made.sandbox.printed = "diff --git a/f b/f\n" * 20
    kit = Scripted(result)
    talk = await made.begin()
    server.moves = _others(moves, made)
    try:
        for move in [*moves, "finish"]:
            if move == "restart":
                talk = await resumed(made, talk)
            elif await made.turn(talk, kit):
                break
            assert not orphans(talk.messages)
    except (GaveUpError, BudgetExceededError, PermanentError):
        pass
    await resumed(made, talk, answered=False)
    return made


def _others(moves: list[str], made: Bench) -> Iterator[str]:
    """What the model does, in turn; between two of its answers a person may say something."""
    for move in moves:
        if move == "person":
            made.hear("look at b.py as well")
        elif move != "restart":
            yield move


async def resumed(made: Bench, talk: Talk, *, answered: bool = True) -> Talk:
    """What the journal makes of it is what stood in memory."""
    past = history.rebuild(made.steps)
    assert past is not None
    assert past.messages == talk.messages
    assert (past.traits, past.tier, past.opening, past.notes) == (talk.traits, talk.tier, talk.opening, talk.notes)
    assert room.Count(*past.counted) == talk.count
    assert progress.of(made.steps) == talk.progress
    assert lessons.trail_of(made.steps) == talk.trail
    again = await made.again()
    assert not answered or again.messages[: len(talk.messages)] == talk.messages
    return again


def breaks(made: Bench, first: int, second: int) -> list[str]:
    between = made.steps[first:second]
    return [str(step.data["about"]) for step in between if step.data.get("about") in history.BREAKS]


@given(
    moves=st.lists(MOVES, max_size=14),
    sizes=st.lists(st.integers(min_value=0, max_value=160), min_size=1, max_size=6),
    window=st.sampled_from([None, 700, 1500, 4000]),
    native=st.booleans(),
    known=st.sampled_from([Known(), KNOWN]),
)
@example(moves=["view"] * 14, sizes=[120], window=1500, native=True, known=KNOWN)
@example(
    moves=["view", "restart", "refuse", "view", "person", "view"], sizes=[9], window=None, native=False, known=KNOWN
)
def test_a_request_extends_the_one_before_but_for_recorded_breaks(
    moves: list[str], sizes: list[int], window: int | None, native: bool, known: Known
) -> None:
    server = Server(iter(()), native, window)
    made = asyncio.run(played(moves, server, sizes, known))
    for (first, before), (second, after) in zip(server.heard, server.heard[1:], strict=False):
        whole = rendered(after).startswith(rendered(before))
        assert whole or breaks(made, first, second), (before.messages, after.messages)
        assert rendered(after).split("</m>", 1)[0] == rendered(before).split("</m>", 1)[0], (
            "the system part never moves"
        )
        assert (after.session, after.tools) == (before.session, before.tools)


@given(
    sizes=st.lists(st.integers(min_value=0, max_value=160), min_size=1, max_size=6),
    window=st.integers(min_value=3000, max_value=9000),
    native=st.booleans(),
)
def test_with_a_known_window_no_request_is_over_it(sizes: list[int], window: int, native: bool) -> None:
    """A tokenizer that makes more of a text than was estimated is met once, learned from, and then kept to."""
    server = Server(iter(()), native, window)
    made = asyncio.run(played(["view"] * 25, server, sizes, Known()))
    calls = [step for step in made.steps if step.kind == "model_call" and "message" in step.data]
    assert len(calls) == 26
    assert all(request.max_tokens >= room.least(window) for _, request in server.heard)
    assert not made.about("overflow")
