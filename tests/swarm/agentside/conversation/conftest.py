"""A bench for conversations: a scripted pool, scripted tools and a journal, without any sandbox or process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pool.testing import ScriptedPool
from pool.types import ChatRequest, Message, Traits
from sandbox.types import Command, Outcome
from swarm.budgets.ledger import BudgetLedger
from swarm.conversation.acting import Done, act
from swarm.conversation.asking import ask
from swarm.conversation.resuming import resume
from swarm.conversation.talk import Talk, begin
from swarm.tools.kit import Result
from swarm.tools.specs import TOOLS
from swarm.types import Budget, Spent, Step, Task, TaskMessage, TaskRequest
from swarm.work import Work


class Scripted:
    """Tools that give what they are told to; ``finish`` ends the work."""

    def __init__(self, results: Iterable[Result] | Callable[[str, Mapping[str, Any]], Result] = ()) -> None:
        self._results = results if callable(results) else iter(results)
        self.ran: list[str] = []

    async def run(self, name: str, arguments: Mapping[str, Any], *, seconds: float | None = None) -> Result:
        self.ran.append(name)
        if name == "finish":
            return Result("finished", finish=TOOLS["finish"].model_validate(arguments))
        if callable(self._results):
            return self._results(name, arguments)
        return next(self._results, Result("fine"))

    async def tests(self, seconds: float | None = None) -> Result:
        return Result("all passed", kind="command")


class Emptiness:
    """A sandbox of which only commands are asked; they print what they are told to."""

    def __init__(self, printed: str = "") -> None:
        self.printed = printed

    async def run(self, command: Command, on_output: Any = None) -> Outcome:
        return Outcome(exit_code=0, output=self.printed.encode(), seconds=0.0)


@dataclass
class Bench:
    """One conversation; ``steps`` is its journal, ``said`` what people have said to the task."""

    pool: ScriptedPool
    budget: Budget = field(default_factory=Budget)
    more: Mapping[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    said: list[TaskMessage] = field(default_factory=list)
    notes: list[tuple[str, bool]] = field(default_factory=list)
    saves: int = 0
    sandbox: Emptiness = field(default_factory=Emptiness)

    @property
    def work(self) -> Work:
        request = TaskRequest(repository="demo", instructions=self.more.get("instructions", "Mend the sum."))
        facts = {key: value for key, value in self.more.items() if key != "instructions"}
        return Work(
            task=Task(id="t1", request=request, budget=self.budget, created=0.0),
            attempt="t1.1",
            tier="small",
            sandbox=self.sandbox,
            pool=self.pool,
            ledger=BudgetLedger(self.budget, Spent(), Spent(), lambda _: None),
            record=self.record,
            save=self.save,
            note=lambda session, failed: self.notes.append((session, failed)),
            inbox=self.inbox,
            **({"test_command": "true"} | facts),
        )

    async def record(self, kind: str, data: dict[str, Any]) -> None:
        kept = json.loads(json.dumps(data))
        self.steps.append(Step(task="t1", attempt="t1.1", seq=len(self.steps) + 1, at=0.0, kind=kind, data=kept))

    async def save(self) -> None:
        self.saves += 1

    async def inbox(self, after: int) -> tuple[TaskMessage, ...]:
        return tuple(one for one in self.said if one.seq > after)

    def hear(self, text: str) -> None:
        self.said.append(TaskMessage(task="t1", seq=len(self.said) + 1, at=0.0, author="ann", text=text))

    async def begin(self) -> Talk:
        return await begin(self.work)

    async def again(self) -> Talk:
        """The conversation as a later life finds it in the journal."""
        work = replace(self.work, past=tuple(self.steps))
        talk = await begin(work)
        await resume(work, talk)
        return talk

    async def turn(self, talk: Talk, kit: Scripted) -> Done | None:
        await talk.listen()
        return await act(talk.work, talk, kit, await ask(talk.work, talk))  # type: ignore[arg-type]

    def about(self, about: str) -> list[dict[str, Any]]:
        return [step.data for step in self.steps if step.data.get("about") == about]

    @property
    def requests(self) -> list[ChatRequest]:
        return [request for request in self.pool.requests if isinstance(request, ChatRequest)]


OpenBench = Callable[..., Bench]


@pytest.fixture
def bench() -> OpenBench:
    """Makes benches: the pool's ``script``, its ``traits``, and what else a `Work` takes."""

    def make(script: Any = (), *, traits: Traits | None = None, budget: Budget | None = None, **more: Any) -> Bench:
        known = traits or Traits(model="scripted", native=True)
        return Bench(ScriptedPool(script, traits=known), budget or Budget(), more)

    return make


def orphans(messages: tuple[Message, ...]) -> list[str]:
    """What is wrong with a conversation: calls without a result right after them, and results without a call."""
    wrong: list[str] = []
    due: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id in due:
                due.remove(str(message.tool_call_id))
            else:
                wrong.append(f"a result of {message.tool_call_id}, which nobody asked for here")
            continue
        wrong += [f"no result of {name}" for name in due]
        due = [call.id for call in message.tool_calls]
    return [*wrong, *(f"no result of {name}" for name in due)]
