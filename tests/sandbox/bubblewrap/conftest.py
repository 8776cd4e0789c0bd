"""A user without rights who was handed a control group, and a bubblewrap backend of root's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.owner import owner_of

ROOT = Path(__file__).parents[3]
PREPARE = str(ROOT / "scripts/prepare-sandbox")
AsUser = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[BwrapBackend]:
    made = BwrapBackend(SandboxConfig(), owner_of(tmp_path))
    yield made
    await made.close()


@pytest.fixture
def user() -> Iterator[str]:
    name = f"swarmt{os.getpid()}"
    subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["userdel", name], check=False, capture_output=True)


def prepare(group: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "AGENT_SWARM_CGROUP": group}
    return subprocess.run([PREPARE, *words], env=env, check=True, capture_output=True, text=True)


@pytest.fixture
def group(user: str) -> Iterator[str]:
    name = f"agent-swarm-test-{os.getpid()}"
    prepare(name, "groups", user)
    yield name
    prepare(name, "undo")


@pytest.fixture
def as_user(user: str) -> AsUser:
    """Runs a program as the user, below a group; without root's environment."""

    def run(group: str, argv: list[str], env: Mapping[str, str], limit: float) -> subprocess.CompletedProcess[str]:
        given = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "AGENT_SWARM_CGROUP": group, **env}
        words = [PREPARE, "enter", user, *argv]
        return subprocess.run(words, env=given, cwd="/", check=False, capture_output=True, text=True, timeout=limit)

    return run
