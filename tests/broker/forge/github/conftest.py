"""A repository on the stand-in for GitHub, with the forge and the tracker that the broker's settings make of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from broker.config.repository import Repository
from broker.forge.base import Order
from broker.forge.github.account import Account
from broker.forge.github.forge import GitHubForge
from broker.forge.github.place import DIALECT, place_of
from broker.forge.github.tracker import GitHubTracker
from broker.forge.rest.door import Bounds, Door
from broker.forge.rest.pace import Pace, Tempo
from broker.forge.transport import Transport
from broker.gitdir import GitDir
from broker.scope import Scope
from tests.forges.github_stand_in import GitHubProject, GitHubStandIn
from tests.forges.stand_in import TOKEN, serving

PEOPLE = {f"GIT_{who}_{key}": "a@b" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}

AT_ONCE = Tempo(gap=0.0)


@dataclass
class Site:
    """One repository and what the broker has of it; ``lent`` are the scopes that were asked for."""

    project: GitHubProject
    forge: GitHubForge
    tracker: GitHubTracker
    git: Transport
    folder: Path
    lent: list[Scope] = field(default_factory=list)

    @functools.cached_property
    def store(self) -> GitDir:
        """The broker's, with the main branch; made when it is first needed."""
        store = GitDir(self.folder / "store.git")
        store.create()
        asked = list(self.lent)
        self.git.fetch("main", store)
        self.lent[:] = asked
        return store

    def commit(self, text: str = "new\n", parent: str | None = None) -> str:
        """A commit of one changed file in the broker's store."""
        blob = self.store.text("hash-object", "-w", "--stdin", stdin=[text.encode()])
        tree = self.store.text("mktree", stdin=[f"100644 blob {blob}\ta.txt\n".encode()])
        return self.store.text(
            "commit-tree", tree, "-p", parent or self.project.base, "-m", "change", environment=PEOPLE
        )

    def order(self, commit: str, branch: str = "swarm/t1", **more: Any) -> Order:
        """A pull request for it."""
        values = {"title": "T", "body": "B", "branch": branch, "base": "main", "base_commit": self.project.base}
        return Order.model_validate(
            {**values, "commit": commit, "task": "t1", "proposal": "p1", "evidence": {}, **more}
        )

    def opened(self, branch: str = "swarm/t1") -> int:
        """Pushes a branch and opens its pull request."""
        commit = self.commit(branch)
        assert self.forge.push(self.store, commit, branch)
        return self.forge.open(self.order(commit, branch)).number


@pytest.fixture(scope="session")
def github_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitHubStandIn]:
    """One server for all tests of a worker."""
    with serving(GitHubStandIn(tmp_path_factory.mktemp("github"))) as stand_in:
        yield stand_in


@pytest.fixture
def make_site(github_stand_in: GitHubStandIn, tmp_path: Path) -> Callable[..., Site]:
    """Makes one; ``token`` is what the broker holds."""

    def make(token: str = TOKEN, tempo: Tempo = AT_ONCE) -> Site:
        project = github_stand_in.project()
        lent: list[Scope] = []

        @contextmanager
        def lend(scope: Scope) -> Iterator[SecretStr]:
            lent.append(scope)
            yield SecretStr(token)

        @contextmanager
        def push_lend(scope: Scope) -> Iterator[SecretStr]:
            lent.append(scope)
            yield SecretStr(TOKEN)

        settings = Repository.model_validate(
            {
                "forge": "github",
                "url": f"{github_stand_in.url}/{project.path}",
                "credential": {"token": {"file": "/nowhere"}},
            }
        )
        place = place_of("web", settings)
        door = Door(place.api, DIALECT, lend, Pace(place.api.host, tempo), bounds=Bounds(pause=0.02))
        account = Account(place)
        git = Transport(place.git, push_lend)
        forge = GitHubForge(place, door, git, account, sleep=lambda _seconds: None)
        tracker = GitHubTracker(place, door, account)
        return Site(project, forge, tracker, git, tmp_path, lent)

    return make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """The usual one."""
    return make_site()
