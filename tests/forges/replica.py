"""A GitHub that others wrote (myworld) over a git server that others wrote: repositories for the marked tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.forges.bare import Bare
from tests.forges.git_server import GitServer
from tests.forges.parts import free_port, running, wait_for
from tests.forges.stand_in import BASE_FILES

_CHILD = Path(__file__).with_name("replica_child.py")
_STARTING = 60.0


@dataclass(frozen=True)
class Replica:
    """One repository on the replica, alone in its world."""

    path: str
    bare: Bare
    base: str
    token: str
    root: str
    instance: str
    git_url: str

    @property
    def api(self) -> str:
        """Where its API is."""
        return f"{self.root}/gw/api.github.com"

    def state(self) -> dict[str, Any]:
        """What the replica holds of the repository."""
        told = httpx.get(f"{self.root}/instances/{self.instance}/state", timeout=20).json()
        state: dict[str, Any] = told["state"]["repos"][self.path]
        return state

    def fail(self, *faults: dict[str, Any]) -> None:
        """What goes wrong from now on: its own words, such as {"tool": ..., "kind": "timeout_after_commit"}."""
        httpx.put(f"{self.root}/instances/{self.instance}/faults", json=list(faults), timeout=20).raise_for_status()

    def as_person(self, method: str, path: str, body: dict[str, Any]) -> Any:
        """A call of the API that is not the broker's."""
        url = f"{self.api}/repos/{self.path}{path}"
        answer = httpx.request(method, url, json=body, headers={"Authorization": f"Bearer {self.token}"}, timeout=20)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture(scope="session")
def replica_server(forge_parts: Path, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server; its address."""
    log, port = tmp_path_factory.mktemp("replica") / "log", free_port()
    python = forge_parts / "venv" / "bin" / "python"
    with running(log, python, _CHILD, str(port), git_server.folder / "srv") as process:
        wait_for(f"http://127.0.0.1:{port}/healthz", process, log, _STARTING)
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def make_replica(replica_server: str, git_server: GitServer) -> Callable[..., Replica]:
    """Makes a repository with a main branch of one commit."""

    def make(*, private: bool = True) -> Replica:
        path, bare = git_server.create()
        base = bare.commit(BASE_FILES, branch="main")
        told = httpx.post(f"{replica_server}/new", json={"name": path, "private": private}, timeout=20).json()
        return Replica(path, bare, base, told["token"], replica_server, told["instance"], f"{git_server.url}/{path}")

    return make
