"""A bare repository, an agent's own object store beside it, and a broker that knows the first."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from broker.config.settings import BrokerConfig
from broker.forge.base import Forge
from broker.server import build
from broker.service.service import Service
from broker.testing import PretendTracker
from broker.wire import Grant, GrantRequest, Proposal, Receipt, Refusal

BASE_FILES = {
    "README.md": b"A sample.\n",
    "src/clamp.py": b"def clamp(x, low, high):\n    return max(low, min(x, low))\n",
    "tests/test_clamp.py": b"from src.clamp import clamp\n\n\ndef test_high():\n    assert clamp(9, 0, 5) == 5\n",
    ".github/workflows/ci.yml": b"on: push\n",
    "run.sh": b"#!/bin/sh\n",
}
_NUMBERS = itertools.count()
PEOPLE = {
    f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in (("NAME", "a"), ("EMAIL", "a@b"))
}


def git(folder: Path, *args: str, stdin: bytes = b"", **environment: str) -> str:
    """Git on a test's own directory; its output without the last line end."""
    where = {
        "PATH": os.environ["PATH"],
        "GIT_DIR": str(folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "HOME": "/nonexistent",
    }
    done = subprocess.run(
        ["git", "-c", "gc.auto=0", *args],
        input=stdin,
        env={**where, **PEOPLE, **environment},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode(errors="replace").rstrip("\n")


@dataclass
class Store:
    """A bare git directory with shortcuts for making objects, well-formed or not."""

    path: Path

    def git(self, *args: str, stdin: bytes = b"", **environment: str) -> str:
        return git(self.path, *args, stdin=stdin, **environment)

    def blob(self, content: bytes) -> str:
        return self._write("blob", content)

    def _write(self, kind: str, data: bytes) -> str:
        """A loose object with this very content; by itself, since a git for each costs more than the rest of a test."""
        raw = f"{kind} {len(data)}\0".encode() + data
        sha256 = "objectformat = sha256" in (self.path / "config").read_text().casefold()
        oid = (hashlib.sha256 if sha256 else hashlib.sha1)(raw).hexdigest()
        file = self.path / "objects" / oid[:2] / oid[2:]
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            draft = file.with_name(f"draft-{next(_NUMBERS)}")
            draft.write_bytes(zlib.compress(raw, 1))
            draft.replace(file)
        return oid

    def raw_tree(self, *entries: tuple[str, bytes, str]) -> str:
        """A tree object exactly as given: no order, no sense needed."""
        data = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
        return self._write("tree", data)

    def tree(self, base: str | None, changes: dict[str, bytes | tuple[str, bytes] | None]) -> str:
        """The base's tree with paths replaced (bytes, or mode and bytes) or removed (None)."""
        index = {"GIT_INDEX_FILE": str(self.path / "scratch.index")}
        self.git("read-tree", *([base] if base else ["--empty"]), **index)
        lines, blobs = [], functools.cache(self.blob)
        for path, change in changes.items():
            mode, content = change if isinstance(change, tuple) else ("100644", change)
            oid = "0" * 40 if content is None else content.decode() if mode == "160000" else blobs(content)
            lines.append(f"{'0' if content is None else mode} {oid}\t{path}\0")
        self.git("update-index", "-z", "--index-info", stdin="".join(lines).encode(), **index)
        return self.git("write-tree", **index)

    def commit(self, tree: str, *parents: str, branch: str | None = None, message: str = "base") -> str:
        oid = self.git("commit-tree", tree, *(word for parent in parents for word in ("-p", parent)), "-m", message)
        if branch:
            self.git("update-ref", f"refs/heads/{branch}", oid)
        return oid

    def content(self, oid: str, kind: str) -> bytes:
        """An object's own bytes."""
        command = ["git", "cat-file", kind, oid]
        return subprocess.run(
            command, env={**os.environ, "GIT_DIR": str(self.path)}, capture_output=True, check=True
        ).stdout

    def pack(self, tree: str, base: str | None) -> bytes:
        """A pack of what the tree has beyond the base."""
        return self._pack(["--revs"], f"{tree}\n" + (f"^{base}\n" if base else ""))

    def pack_of(self, *oids: str) -> bytes:
        """A pack of exactly these objects."""
        return self._pack([], "".join(f"{oid}\n" for oid in oids))

    def _pack(self, options: list[str], wanted: str) -> bytes:
        where = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.path)}
        command = ["git", "pack-objects", "-q", "--stdout", *options]
        return subprocess.run(command, input=wanted.encode(), env=where, capture_output=True, check=True).stdout


@dataclass
class House:
    """A broker as a library, its forge, and an agent's store that began as a copy of the base."""

    folder: Path
    config: BrokerConfig
    service: Service
    origin: Store
    agent: Store
    grants: dict[str, Grant] = field(default_factory=dict)
    good: ClassVar[dict[str, bytes]] = {
        "src/clamp.py": b"def clamp(x, low, high):\n    return max(low, min(x, high))\n"
    }

    def grant(self, task: str = "t1", **more: object) -> Grant:
        """A person's grant for a task; asked once."""
        if task not in self.grants:
            request = GrantRequest.model_validate({"repository": "demo", "task": task, **more})
            self.grants[task] = self.service.grants.grant(request, by="uid:0")
        return self.grants[task]

    def proposal(self, tree: str, task: str = "t1", **more: object) -> Proposal:
        """A proposal under the task's grant."""
        grant = self.grant(task)
        values = {"id": f"{task}-p", "capability": grant.capability, "task": task, "base_commit": grant.base_commit}
        return Proposal.model_validate({**values, "tree": tree, "title": "Fix clamp", **more})

    def offer(
        self, changes: dict[str, bytes | tuple[str, bytes] | None], task: str = "t1", **more: object
    ) -> Receipt | Refusal:
        """Makes the tree, packs it and proposes it."""
        tree = self.agent.tree(self.grant(task).base_commit, changes)
        pack = self.agent.pack(tree, self.grant(task).base_commit)
        return self.service.proposals.propose(self.proposal(tree, task, **more), pack)

    @staticmethod
    def rules(verdict: Receipt | Refusal) -> set[str]:
        """The rules that a verdict names; none for a receipt."""
        return {finding.rule for finding in verdict.findings} if isinstance(verdict, Refusal) else set()

    def branches(self) -> dict[str, str]:
        """What the forge holds."""
        lines = self.origin.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)


def config_for(folder: Path, *, policy: dict[str, object] | None = None, **more: object) -> BrokerConfig:
    """Settings for a broker in a folder, every role given to the present user."""
    credential = folder / "credential"
    credential.write_text("canary-7f3a-credential\n")
    credential.chmod(0o600)
    return BrokerConfig.model_validate(
        {
            "socket": folder / "run" / "broker.sock",
            "state": folder / "state",
            "roles": {"person": [os.getuid()], "coordinator": [os.getuid()]},
            "repositories": {
                "demo": {
                    "forge": "local",
                    "path": folder / "demo.git",
                    "credential": {"token": {"file": credential}},
                    "policy": {"bases": ["*"], **(policy or {})},
                }
            },
            **more,
        }
    )


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bare repository and, beside it, what an agent holds: a copy in a store that no broker opens."""
    folder = tmp_path_factory.mktemp("template")
    git(folder / "demo.git", "init", "-q", "--bare", "--template=", "-b", "main")
    origin = Store(folder / "demo.git")
    origin.commit(origin.tree(None, dict(BASE_FILES)), branch="main")
    git(folder / "agent.git", "init", "-q", "--bare", "--template=")
    Store(folder / "agent.git").git("fetch", "-q", str(origin.path), "refs/heads/main:refs/heads/main")
    return folder


def copy_of(template: Path, name: str, folder: Path) -> Store:
    """The template's store of that name, in the test's own folder."""
    if not (folder / name).exists():
        shutil.copytree(template / name, folder / name)
    return Store(folder / name)


Build = Callable[..., House]


@contextmanager
def builder(folder: Path, template: Path) -> Iterator[Build]:
    """Makes houses in a folder; ``forge`` replaces the local forge, ``policy`` and the rest go to the settings."""
    opened: list[Service] = []

    def make(
        *, forge: Callable[[Store], Forge] | None = None, policy: dict[str, object] | None = None, **more: object
    ) -> House:
        origin = copy_of(template, "demo.git", folder)
        config = config_for(folder, policy=policy, **more)
        config.state.mkdir(mode=0o700, exist_ok=True)
        service = build(config) if forge is None else build(config, {"demo": forge(origin)}, {"demo": PretendTracker()})
        opened.append(service)
        return House(folder, config, service, origin, copy_of(template, "agent.git", folder))

    try:
        yield make
    finally:
        for service in opened:
            service.close()


@pytest.fixture
def build_house(tmp_path: Path, template: Path) -> Iterator[Build]:
    """`builder` in the test's own folder."""
    with builder(tmp_path, template) as make:
        yield make


@pytest.fixture(scope="session")
def court(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[House]:
    """A house that many tests share, because it refuses what they offer: one grant, and a proposal id for each."""
    with builder(tmp_path_factory.mktemp("court"), template) as make:
        house = make()
        house.grant(uses=100)
        yield house


@pytest.fixture
def fresh_id() -> str:
    """A proposal's id that no other test takes."""
    return f"p{next(_NUMBERS)}"


@pytest.fixture
def house(build_house: Build) -> House:
    """The usual one."""
    return build_house()


@pytest.fixture
def reopened(house: House) -> Iterator[Callable[[], Service]]:
    """Closes the house's broker and opens another on the same state, as a restart does."""
    made: list[Service] = []

    def again() -> Service:
        house.service.close()
        house.service = build(house.config)
        made.append(house.service)
        return house.service

    yield again
    for service in made:
        service.close()


@pytest.fixture
def settings_for() -> Callable[..., BrokerConfig]:
    """`config_for`, for tests that start a broker of their own."""
    return config_for


@pytest.fixture
def origin(tmp_path: Path, template: Path) -> Store:
    """The bare repository alone."""
    return copy_of(template, "demo.git", tmp_path)


@pytest.fixture
def agent(tmp_path: Path, template: Path, origin: Store) -> Store:
    """The agent's store beside it."""
    return copy_of(template, "agent.git", tmp_path)
