"""What the contract suites share: the sandbox backends that this machine can be asked to prove."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path

import pytest

from sandbox.base import Exits, SandboxBackend
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.owner import owner_of
from sandbox.testing import ScriptedBackend

REAL = [
    pytest.param("bwrap", marks=pytest.mark.root),
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("docker-crun", marks=pytest.mark.docker),
]


RUNTIMES = {"docker": None, "docker-crun": "crun"}
Making = Callable[[Exits], SandboxBackend]


def _make(kind: str, state: Path, exits: Exits) -> SandboxBackend:
    if kind == "scripted":
        return ScriptedBackend(exits=exits)
    if kind.startswith("docker"):
        return ContainerBackend(SandboxConfig(runtime=RUNTIMES[kind]), owner_of(state), exits)
    group = os.environ.get("AGENT_SWARM_CGROUP")
    if os.geteuid() != 0 and group is None:
        pytest.skip("needs root; tests/sandbox/bubblewrap/test_unprivileged.py runs it as another user")
    return BwrapBackend(SandboxConfig(cgroup=group or "agent-swarm"), owner_of(state), exits)


async def _insist_on_runtime(kind: str, state: Path) -> None:
    """An engine without the runtime cannot be asked; one that is not there at all fails the test."""
    if runtime := RUNTIMES.get(kind):
        backend = ContainerBackend(SandboxConfig(), owner_of(state))
        info = await backend.engine.info()
        await backend.close()
        if runtime not in info["Runtimes"]:
            pytest.skip(f"the engine has no {runtime}: scripts/start-docker start FOLDER --runtime {runtime}")


async def _makers(kind: str, state: Path) -> AsyncIterator[Making]:
    made: list[SandboxBackend] = []
    await _insist_on_runtime(kind, state)

    def make(exits: Exits) -> SandboxBackend:
        made.append(_make(kind, state, exits))
        return made[-1]

    yield make
    for backend in made:
        await backend.close()


@pytest.fixture(params=["scripted", *REAL])
async def making(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Making]:
    """Makes every sandbox backend, the pretend one included, with the ways out that a test has."""
    async for make in _makers(request.param, tmp_path):
        yield make


@pytest.fixture(params=REAL)
async def jailing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Making]:
    """Makes the sandbox backends that the kernel enforces, with the ways out that a test has."""
    async for make in _makers(request.param, tmp_path):
        yield make


@pytest.fixture
def backend(making: Making) -> SandboxBackend:
    """Every sandbox backend, the pretend one included."""
    return making({})


@pytest.fixture
def jail(jailing: Making) -> SandboxBackend:
    """The sandbox backends that the kernel enforces."""
    return jailing({})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write down which backend kept which claim, into the file that `scripts/conformance.py` reads."""
    report = yield
    told, backend = os.environ.get("AGENT_SWARM_CONFORMANCE"), _backend_of(item)
    if told and backend and (call.when == "call" or not report.passed):
        claims = [mark.args[0] for mark in item.iter_markers("claim")] or ["keeps the protocol"]
        line = {"backend": backend, "claims": claims, "outcome": report.outcome, "test": item.nodeid.split("/")[-1]}
        line["why"] = str(report.longrepr)[-300:] if report.outcome != "passed" else ""
        with Path(told).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return report


def _backend_of(item: pytest.Item) -> str | None:
    """The real backend that a test was given; as AGENT_SWARM_CONFORMANCE_AS where another user runs it."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    real = {param.values[0] for param in REAL}
    found = next((value for value in params.values() if isinstance(value, str) and value in real), None)
    return os.environ.get("AGENT_SWARM_CONFORMANCE_AS", found) if found else None


NOT_OF = {"vllm": ("llamacpp",), "engine": ("llamacpp", "pretend")}  # by the fixture that a fact's test asks for


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A fact about some servers is no test of the others: it is left out there, not skipped."""
    only = os.environ.get("AGENT_SWARM_CONFORMANCE_ONLY")
    left_out = [
        item for item in items if _is_no_fact_of_it(item) or (only and _backend_of(item) not in only.split(","))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_no_fact_of_it(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    server = item.callspec.params.get("subject")
    return any(name in item.fixturenames and server in others for name, others in NOT_OF.items())
