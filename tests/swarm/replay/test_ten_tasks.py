"""Ten recorded tasks of the real agent loop, in a sandbox that the kernel enforces: ten identical trees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pool.testing import ScriptedPool
from pool.types import ChatRequest, Choice, CompletionRequest, Reply, Usage
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.owner import owner_of
from swarm.replay.verdict import told
from swarm.types import TaskState
from tests.swarm.replay.conftest import MEND, call, finish

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]


def _shell(command: str) -> Choice:
    return call("shell", command=command)


MENDED = _shell(MEND)
EDIT = call("edit", path="clamp.py", search="min(x, low)", replace="min(x, high)")
AGENTS: dict[str, list[Any]] = {
    "a command": [call("run_tests"), MENDED, call("run_tests"), finish()],
    "an edit": [call("view", path="clamp.py"), EDIT, call("run_tests"), finish()],
    "new files": [MENDED, call("write", path="docs/deep/a.md", content="no newline"), call("run_tests"), finish()],
    "modes and links": [
        MENDED,
        _shell("printf '#!/bin/sh\\n' > run && chmod +x run && ln -s run also"),
        finish(),
        finish(),
    ],
    "bytes": [
        MENDED,
        _shell("printf '\\000\\377\\r\\n' > bytes.bin; printf 'a\\r\\nb\\r\\n' > dos.txt"),
        finish(),
        finish(),
    ],
    "a deletion": [
        _shell("git rm -q --cached clamp.py; cp clamp.py new.py; rm -r docs; ls"),
        MENDED,
        finish(),
        finish(),
    ],
    "times in the output": [_shell("date +%s%N; mktemp -u; echo $$; sleep 0.2"), MENDED, call("run_tests"), finish()],
    "a refused finish": [EDIT, _shell("false"), finish(), call("run_tests"), finish()],
    "words and mistakes": ["let me think", call("fly"), call("view", path="none.py"), MENDED, finish(), finish()],
}
REPAIR = ["return max(low, min(x, high))", "return min(high, max(low, x))", "pass", "return x"]
WRITTEN = "```python\ndef clamp(x, low, high):\n    {line}\n```"


def _answers(scripts: dict[str, list[Any]]) -> Any:
    """The next answer of each task's own script; who has none is a repair, which is sampled."""

    def answer(request: ChatRequest | CompletionRequest) -> Any:
        if isinstance(request, CompletionRequest):
            choices = tuple(Choice(content=f" {line}") for line in REPAIR * 2)
            return Reply(choices=choices, usage=Usage(completion_tokens=9), endpoint="e", model="m", seconds=0.1)
        if request.program in scripts:
            return scripts[request.program].pop(0)
        choices = tuple(Choice(content=WRITTEN.format(line=line)) for line in reversed(REPAIR))
        return Reply(choices=choices, usage=Usage(completion_tokens=9), endpoint="e", model="m", seconds=0.1)

    return answer


@pytest.fixture
async def jailed(bench: Any, tmp_path: Path) -> AsyncIterator[Any]:
    """The bench with sandboxes of bubblewrap."""
    bench.backend = BwrapBackend(SandboxConfig(cgroup="agent-swarm"), owner_of(tmp_path))
    bench.test_command = "python3 -m unittest -v"
    yield bench
    await bench.rooms.close()
    await bench.backend.close()


async def test_ten_recorded_tasks_come_to_ten_identical_trees(jailed: Any, name: str, record: Any, replay: Any) -> None:
    tasks = {f"{name}-{number}": script for number, script in enumerate(AGENTS.values())}
    repair = f"{name}-repair"
    jailed.pool = ScriptedPool(_answers({task: list(script) for task, script in tasks.items()}), native=True)
    async with jailed.open():
        for task in tasks:
            await jailed.submit(task, strategy="agent")
        jailed.pool._native = True
        await asyncio.gather(*(jailed.until(task, seconds=200) for task in tasks))
        jailed.pool._native = False
        await jailed.submit(repair, strategy="sampled_repair")
        await jailed.until(repair, TaskState.DELIVERED, seconds=100)
        recordings = {task: await record(task) for task in (*tasks, repair)}
    verdicts = {task: await replay(*found) for task, found in recordings.items()}
    assert len(verdicts) == 10
    words = {task: "\n".join(told(verdict)) for task, verdict in verdicts.items()}
    assert {task: words[task] for task, verdict in verdicts.items() if not verdict.same} == {}
    assert {task: words[task] for task, verdict in verdicts.items() if verdict.first} == {}
    assert all(verdicts[task].lines == verdicts[task].of for task in tasks)
    assert len({verdict.replayed for verdict in verdicts.values()}) == 5
