"""A desk for the tests of what works at it: a folder as the sandbox, a scripted pool, a real ledger, a journal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from pool.testing import ScriptedPool
from pool.types import Traits
from sandbox.testing import ScriptedBackend, ScriptedSandbox
from sandbox.types import SandboxSpec
from swarm.budgets.ledger import BudgetLedger
from swarm.types import Budget, Spent, Step, Task, TaskRequest
from swarm.work import Work


class Desk:
    """One work phase over a folder of files, a scripted pool and a real ledger; ``steps`` is its journal."""

    def __init__(self, sandbox: ScriptedSandbox, pool: ScriptedPool, *, budget: Budget, **more: Any) -> None:
        self.sandbox = sandbox
        self.pool = pool
        self.steps: list[Step] = []
        self.saves = 0
        paths = more.pop("paths", ())
        request = TaskRequest(repository="demo", instructions=more.pop("instructions", "mend it"), paths=paths)
        self.work = Work(
            task=Task(id="t1", request=request, budget=budget, created=0.0),
            attempt="t1.1",
            tier=more.pop("tier", "small"),
            sandbox=sandbox,
            pool=pool,
            ledger=BudgetLedger(budget, Spent(), Spent(), lambda _: None),
            test_command=more.pop("test_command", None),
            record=self._record,
            save=self._save,
            **more,
        )

    async def _record(self, kind: str, data: dict[str, Any]) -> None:
        kept = json.loads(json.dumps(data))  # as the journal would hand it back
        self.steps.append(Step(task="t1", attempt="t1.1", seq=len(self.steps) + 1, at=0.0, kind=kind, data=kept))

    async def _save(self) -> None:
        self.saves += 1

    def kinds(self, kind: str) -> list[dict[str, Any]]:
        return [step.data for step in self.steps if step.kind == kind]

    def text(self, path: str) -> str:
        return (self.sandbox.work / path).read_text()


OpenDesk = Callable[..., Awaitable[Desk]]


@pytest.fixture
async def desk() -> AsyncIterator[OpenDesk]:
    """Opens desks: ``files`` by path, the pool's ``script``, and what else `Desk` takes."""
    async with AsyncExitStack() as stack:

        async def make(
            files: dict[str, str | bytes],
            script: Any = (),
            *,
            native: bool = True,
            traits: Traits | None = None,
            budget: Budget | None = None,
            **more: Any,
        ) -> Desk:
            sandbox = await stack.enter_async_context(ScriptedBackend().open(SandboxSpec()))
            for path, content in files.items():
                target = sandbox.work / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content if isinstance(content, bytes) else content.encode())
            pool = ScriptedPool(script, native=native, traits=traits)
            return Desk(sandbox, pool, budget=budget or Budget(), **more)

        yield make
