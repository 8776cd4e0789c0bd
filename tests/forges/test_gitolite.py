"""The broker's branch rule against a judge that nobody of us wrote: what gitolite refuses, the broker refuses too."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from broker.config.repository import Repository
from broker.errors import ForgeError
from broker.forge.account import Account
from broker.forge.gitea.forge import GiteaForge
from broker.forge.gitea.site import GITEA, site
from broker.forge.rest.door import Door
from broker.forge.rest.pace import Paces
from broker.forge.transport import Remote, Transport
from broker.gitdir import GitDir
from tests.forges.bare import Bare
from tests.forges.gitolite import Gitolite

pytestmark = pytest.mark.forges
BRANCH = "refs/heads/swarm/t1"


class _Keyed(GitDir):
    """The broker's git, whose child is told of the agent's ssh key; everything else is as it is."""

    command = ""

    def run(self, *args: str, **more: Any) -> bytes:
        return super().run(*args, **self._told(more))

    def stream(self, *args: str, **more: Any) -> Generator[bytes, None, None]:
        return super().stream(*args, **self._told(more))

    def _told(self, more: dict[str, Any]) -> dict[str, Any]:
        return {**more, "environment": {**(more.get("environment") or {}), "GIT_SSH_COMMAND": self.command}}


class Court:
    """The same push brought before both: plain git with the agent's key, and the broker's forge with the same key."""

    def __init__(self, gitolite: Gitolite, folder: Path) -> None:
        self.gitolite, self.bare = gitolite, gitolite.repository
        self.source = Bare.create(folder / "source.git")
        self.base = self.source.commit({"a.txt": "one\n"}, branch="main")
        self.first = self.source.commit({"a.txt": "two\n"}, self.base)
        self.second = self.source.commit({"a.txt": "three\n"}, self.first)
        self.aside = self.source.commit({"a.txt": "other\n"}, self.base)
        lend = lambda _scope: nullcontext(None)  # noqa: E731
        credential = {"token": {"file": "/nowhere"}}
        settings = Repository.model_validate(
            {"forge": "gitea", "url": "http://127.0.0.1:9/team/proj", "credential": credential}
        )
        place = site("proj", settings)
        door = Door(place.address, GITEA, lend, Paces().of(place.address.host))
        transport = Transport(Remote(gitolite.address, ""), lend)
        self.forge = GiteaForge(place, door, transport, Account("login"))

    def begin(self, there: str | None) -> None:
        """The repository as it is before a push: main, and the broker's branch or not."""
        for ref in self.bare.refs():
            self.bare.git("update-ref", "-d", ref)
        self.bare.take(self.source.path)
        self.bare.git("update-ref", "refs/heads/main", self.base)
        if there:
            self.bare.git("update-ref", BRANCH, there)

    def gitolites(self, commit: str, ref: str, who: str = "agent") -> bool:
        """Gitolite's verdict on plain git with force."""
        env = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.source.path), "GIT_SSH_COMMAND": self.gitolite.ssh(who)}
        command = ["git", "push", "-q", "--force", f"{self.gitolite.address}.git", f"{commit}:{ref}"]
        return subprocess.run(command, env=env, capture_output=True, check=False, timeout=60).returncode == 0

    def ours(self, commit: str, ref: str, expected: str | None) -> bool:
        """The broker's."""
        store = _Keyed(self.source.path)
        store.command = self.gitolite.ssh("agent")
        try:
            return self.forge.push(store, commit, ref.removeprefix("refs/heads/"), expected)
        except ForgeError:
            return False


@pytest.fixture
def court(gitolite: Gitolite, tmp_path: Path) -> Court:
    return Court(gitolite, tmp_path)


# name: what is there, what is pushed, where to, what the broker is told to expect
PUSHES = {
    "create": (None, "first", BRANCH, None),
    "forward": ("first", "second", BRANCH, "first"),
    "forward, unexpected": ("first", "second", BRANCH, None),
    "rewind": ("second", "first", BRANCH, "second"),
    "aside": ("first", "aside", BRANCH, "first"),
    "aside, expecting another": ("first", "aside", BRANCH, "base"),
    "main forward": (None, "first", "refs/heads/main", "base"),
    "another branch": (None, "first", "refs/heads/feature", None),
    "the prefix itself": (None, "first", "refs/heads/swarm", None),
    "a longer name": (None, "first", "refs/heads/swarmed/t1", None),
    "in capitals": (None, "first", "refs/heads/Swarm/t1", None),
    "deeper down": (None, "first", "refs/heads/x/swarm/t1", None),
    "a tag": (None, "first", "refs/tags/v1", None),
    "agit": (None, "first", "refs/for/main", None),
    "a pull request's ref": (None, "first", "refs/pull/1/head", None),
    "a merge request's ref": (None, "first", "refs/merge-requests/1/head", None),
    "notes": (None, "first", "refs/notes/commits", None),
}
PASS = {"create", "forward"}


@pytest.mark.parametrize("name", PUSHES)
def test_what_gitolite_refuses_the_broker_refuses_and_what_it_pushes_gitolite_takes(court: Court, name: str):
    there, pushed, ref, expected = PUSHES[name]
    commits = {"base": court.base, "first": court.first, "second": court.second, "aside": court.aside, None: None}
    court.begin(commits[there])
    theirs = court.gitolites(commits[pushed], ref)
    court.begin(commits[there])
    before = court.bare.refs()
    ours = court.ours(commits[pushed], ref, commits[expected])
    assert theirs or not ours
    assert ours == (name in PASS)
    assert court.bare.refs() == ({**before, ref: commits[pushed]} if ours else before)


def test_the_judge_takes_from_its_owner_what_it_refuses_the_agent(court: Court):
    court.begin(court.second)
    assert not court.gitolites(court.first, BRANCH)
    assert not court.gitolites(court.first, "refs/heads/main")
    assert court.gitolites(court.first, BRANCH, who="admin")
    assert court.gitolites(court.first, "refs/heads/main", who="admin")
