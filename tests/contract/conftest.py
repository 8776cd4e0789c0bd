"""What the contract suites share: the sandbox backends that this machine can be asked to prove."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.base import SandboxBackend
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.owner import owner_of
from sandbox.testing import ScriptedBackend

REAL = [pytest.param("bwrap", marks=pytest.mark.root), pytest.param("docker", marks=pytest.mark.docker)]


def _make(kind: str, state: Path) -> SandboxBackend:
    if kind == "scripted":
        return ScriptedBackend()
    if kind == "docker":
        return ContainerBackend(SandboxConfig(), owner_of(state))
    if os.geteuid() != 0 or shutil.which("bwrap") is None:
        pytest.skip("needs root and bubblewrap: scripts/prepare-sandbox")
    return BwrapBackend(SandboxConfig(), owner_of(state))


@pytest.fixture(params=["scripted", *REAL])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> SandboxBackend:
    """Every sandbox backend, the pretend one included."""
    return _make(request.param, tmp_path)


@pytest.fixture(params=REAL)
def jail(request: pytest.FixtureRequest, tmp_path: Path) -> SandboxBackend:
    """The sandbox backends that the kernel enforces."""
    return _make(request.param, tmp_path)


@pytest.fixture
def processes_with() -> Callable[[str], list[int]]:
    """Host processes whose command line holds a mark, this one apart."""

    def find(mark: str) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:  # it ended while we looked
                continue
            if mark.encode() in line and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return found

    return find


NOT_OF = {"vllm": ("llamacpp",), "engine": ("llamacpp", "pretend")}  # by the fixture that a fact's test asks for


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A fact about some servers is no test of the others: it is left out there, not skipped."""
    left_out = [item for item in items if _is_no_fact_of_it(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_no_fact_of_it(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    server = item.callspec.params.get("subject")
    return any(name in item.fixturenames and server in others for name, others in NOT_OF.items())
