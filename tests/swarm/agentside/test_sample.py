"""The sample repository as the demo finds it, and its repair by the real model in a real sandbox."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pool.config import EmbeddedConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.router import Pool
from sandbox.config import SandboxConfig
from sandbox.factory import chosen_backend
from sandbox.testing import ScriptedBackend
from sandbox.types import SandboxSpec
from swarm.budgets.ledger import BudgetLedger
from swarm.checks import run_tests
from swarm.strategies.choice import strategy_named
from swarm.strategies.localise import by_coverage
from swarm.types import Budget, Spent, Task, TaskRequest
from swarm.work import Work

SAMPLE = Path(__file__).parents[3] / "examples" / "sample-repository"
TESTS = "python3 -m pytest -q"
FAILING = "tests/test_scale.py::test_clamp_lowers_a_value_above_the_scale"


async def tree() -> AsyncIterator[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(SAMPLE, arcname=".", filter=lambda item: None if "__pycache__" in item.name else item)
    yield buffer.getvalue()


async def test_one_test_of_many_fails() -> None:
    async with ScriptedBackend().open(SandboxSpec(), tree()) as sandbox:
        run = await run_tests(sandbox, TESTS)
    assert run.failed == (FAILING,)
    assert len(run.passed) > 20


async def test_suspicion_stays_within_a_few_lines() -> None:
    async with ScriptedBackend().open(SandboxSpec(), tree()) as sandbox:
        found = await by_coverage(sandbox, TESTS, limit=40, seconds=60)
    assert found.traced
    assert len(found.suspects) <= 5


@pytest.mark.model
@pytest.mark.timeout(300)
async def test_real_model_repairs_it_in_a_real_sandbox(tmp_path: Path) -> None:
    budget = Budget(wall=240)
    request = TaskRequest(repository="sample", instructions="A test fails. Mend the code.")
    journal: list[str] = []

    async def record(kind: str, data: dict[str, object]) -> None:
        journal.append(kind)

    async def save() -> None:
        journal.append("salvage")

    serving = serve_embedded(EmbeddedConfig(enabled=True), log=tmp_path / "model.log", environ=dict(os.environ))
    async with (
        serving as endpoint,
        Pool(PoolConfig(endpoints=(endpoint,))) as pool,
        chosen_backend(SandboxConfig(), state=tmp_path) as backend,
        backend.open(SandboxSpec(), tree()) as sandbox,
    ):
        work = Work(
            task=Task(id="t", request=request, budget=budget, created=0.0),
            attempt="t.1",
            tier="embedded",
            sandbox=sandbox,
            pool=pool,
            ledger=BudgetLedger(budget, Spent(), Spent(), lambda _: None),
            test_command=TESTS,
            record=record,
            save=save,
        )
        done = await strategy_named("auto").work(work)
        run = await run_tests(sandbox, TESTS)
    assert done.ending == "finished", done.summary
    assert run.failed == ()
    assert FAILING in run.passed
    assert journal[-3:] == ["edit", "salvage", "note"]
    assert "model_call" in journal
