"""Sandboxes as a repository's settings want them: set up for work and checks alike, by the base's word alone."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.config import ImagesConfig
from sandbox.errors import ImageError, SandboxError
from sandbox.images.prepare import LAYER, Prepared, Preparer
from sandbox.images.realise import Realiser
from sandbox.images.setup import Ground, SetUp
from sandbox.images.shelf import shelves_in
from sandbox.testing import ScriptedBackend
from sandbox.trees.workspace import Workspace
from sandbox.types import Command, SandboxSpec
from swarm.config import PoolConfig, RepositoryConfig, Settings, impossible
from swarm.rooms import Rooms, Tree
from swarm.types import TaskState

GIT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"} | {
    f"GIT_{who}_{key}": "a@b" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
}


@dataclass
class Place:
    """A repository and the rooms over it."""

    folder: Path
    backend: ScriptedBackend
    workspace: Workspace

    async def commit(self, files: Mapping[str, str]) -> str:
        tree = self.folder / "tree"
        if not tree.exists():
            self._git("init", "-q", "-b", "main", str(tree), cwd=self.folder)
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        self._git("add", ".", cwd=tree)
        self._git("commit", "-q", "--allow-empty", "-m", "x", cwd=tree)
        base = self._git("rev-parse", "HEAD", cwd=tree).decode().strip()
        pack = self._git("pack-objects", "--revs", "--stdout", "-q", cwd=tree, said=f"{base}\n".encode())
        await self.workspace.take_pack(pack, base)
        return base

    @staticmethod
    def _git(*args: str, cwd: Path, said: bytes = b"") -> bytes:
        return subprocess.run(["git", *args], cwd=cwd, env=GIT, input=said, capture_output=True, check=True).stdout

    def rooms(self, images: Mapping[str, Any] | None = None, **known: Any) -> Rooms:
        config = ImagesConfig.model_validate({"disk_floor": 0, **(images or {})})
        shelves = shelves_in(self.folder / "state", config)
        return Rooms(
            self.backend,
            Preparer(self.backend, shelves.setups, templates=0),
            Realiser("bwrap", None, shelves.images, config),
            Ground(backend="bwrap", system="s"),
            {"demo": RepositoryConfig.model_validate({"setup_network": "none", **known})},
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, ScriptedBackend(), Workspace(tmp_path / "demo.git"))


async def text(prepared: Prepared, script: str) -> str:
    return (await prepared.sandbox.run(Command(argv=("/bin/sh", "-c", script)))).text


async def test_a_proposal_cannot_change_how_it_is_set_up(place: Place) -> None:
    base = await place.commit({"install.sh": "echo good >made", "devcontainer": ""})
    evil = await place.commit({"install.sh": "echo evil >made", ".devcontainer.json": '{"onCreateCommand": "evil"}'})
    rooms = place.rooms(setup=("sh install.sh",), devcontainer=True)
    for tree in (base, evil):
        async with rooms.open(SandboxSpec(), Tree(place.workspace, "demo", base, tree)) as prepared:
            assert await text(prepared, "cat made") == "good\n"
    assert sum(command.argv[-1] == "sh install.sh" for command in place.backend.ran) == 1
    await rooms.close()


async def test_a_repository_without_settings_is_opened_as_it_is(place: Place) -> None:
    base = await place.commit({"a": "a", ".devcontainer.json": '{"image": "x", "onCreateCommand": "evil"}'})
    rooms = place.rooms()
    async with rooms.open(SandboxSpec(), Tree(place.workspace, "other", base, base)) as prepared:
        assert prepared.furniture is None
        assert await text(prepared, "cat a") == "a"
    assert [command.argv[-1] for command in place.backend.ran] == ["cat a"]


async def test_a_devcontainer_that_is_honoured_gives_commands_and_variables_and_is_told_what_it_does_not_get(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {
        "containerEnv": {"FLAVOUR": "sweet", "OPENAI_BASE_URL": "http://evil.example"},
        "postCreateCommand": 'echo "$FLAVOUR" >made',
        "privileged": True,
    }
    base = await place.commit({".devcontainer/devcontainer.json": "// ours\n" + json.dumps(asked)})
    rooms = place.rooms(devcontainer=True)
    with caplog.at_level(logging.WARNING, "swarm.rooms"):
        for _ in range(2):
            async with rooms.open(SandboxSpec(), Tree(place.workspace, "demo", base, base)) as prepared:
                assert await text(prepared, 'cat made; echo "$FLAVOUR$OPENAI_BASE_URL"') == "sweet\nsweet\n"
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2, "each is said once"
    assert any("'privileged'" in line for line in told)
    assert any("'OPENAI_BASE_URL'" in line for line in told)
    await rooms.close()


@pytest.mark.parametrize("operators", [{}, {"allowed": ("python:*",)}])
async def test_a_devcontainer_chooses_no_image_that_is_not_allowed(place: Place, operators: dict[str, Any]) -> None:
    base = await place.commit({".devcontainer.json": '{"image": "evil.example/python:3"}'})
    with pytest.raises(ImageError, match="does not allow"):
        async with place.rooms(operators, devcontainer=True).open(
            SandboxSpec(), Tree(place.workspace, "demo", base, base)
        ):
            pass
    assert place.backend.opened == []


async def test_what_was_set_up_is_no_part_of_the_work_and_what_was_changed_is(place: Place) -> None:
    base = await place.commit({"a": "a"})
    rooms = place.rooms(setup=("mkdir -p venv/lib && echo x >venv/lib/x; echo lock >lock; echo other >other",))
    async with rooms.open(SandboxSpec(), Tree(place.workspace, "demo", base, base)) as prepared:
        await text(prepared, "echo pyc >venv/lib/pyc; echo changed >>lock; echo b >a; mkdir new; echo new >new/file")
        sealed = await place.workspace.seal(
            base, prepared.sandbox.export(), limit=1 << 20, furniture=prepared.furniture
        )
        labels = prepared.sandbox.spec.labels
    assert sealed.files == ("a", "lock", "new/file")
    found = rooms.furniture(labels)
    assert found is not None
    assert found.entries.keys() == prepared.furniture.entries.keys()
    assert rooms.furniture({}) is None
    for odd in ("0" * 64, "../x", ""):
        with pytest.raises(SandboxError, match="not kept"):
            rooms.furniture({LAYER: odd})
    await rooms.close()


async def test_an_agents_own_installation_comes_on_top_and_does_not_run_anew_for_each_commit(place: Place) -> None:
    rooms = place.rooms(setup=("echo one >one",), setup_inputs=("requirements.txt",))
    agent = SetUp(commands=('echo tool >"$HOME/tool"',), inputs=(), network="none")
    for number in range(2):
        base = await place.commit({"a": str(number)})
        async with rooms.open(SandboxSpec(), Tree(place.workspace, "demo", base, base), agent) as prepared:
            assert await text(prepared, 'cat one "$HOME/tool"') == "one\ntool\n"
    assert sum("tool" in command.argv[-1] for command in place.backend.ran) == 3  # one set-up, two looks
    await rooms.close()


async def test_no_repository_decides_what_an_agents_installation_leaves_for_another(place: Place) -> None:
    agent = SetUp(commands=("if [ -e evil.sh ]; then sh evil.sh; else echo good >tool; fi",), inputs=(), network="none")
    evil = await place.commit({"evil.sh": "echo evil >tool", "a": "1"})
    other = Place(place.folder / "other", place.backend, Workspace(place.folder / "other.git"))
    other.folder.mkdir()
    honest = await other.commit({"a": "1"})
    rooms = place.rooms()
    for which, base in ((place, evil), (other, honest)):
        tree = Tree(which.workspace, "demo", base, base)
        async with rooms.open(SandboxSpec(), tree, agent) as prepared:
            assert await text(prepared, "cat tool") == "good\n"
    await rooms.close()


def test_a_wrong_image_is_told_with_its_key() -> None:
    settings = Settings(pool=PoolConfig.model_validate({"embedded": {"enabled": True}}))
    wrong = settings.model_copy(update={"repositories": {"demo": RepositoryConfig(image="not an image")}})
    found = [problem for problem in impossible(wrong) if problem.key == "repositories.demo.image"]
    assert len(found) == 1
    assert "no image name" in found[0].message


# Through the whole house


@pytest.fixture
async def closing() -> AsyncIterator[Callable[[Rooms], None]]:
    held: list[Rooms] = []
    yield held.append
    for rooms in held:
        await rooms.close()


@pytest.mark.slow
async def test_a_task_works_and_is_checked_with_its_set_up_done(
    bench: Any, fixing: Any, name: str, closing: Callable[[Rooms], None]
) -> None:
    bench.repositories["demo"] = RepositoryConfig(
        setup=("mkdir deps && echo 'found = True' >deps/dep.py",), setup_network="none"
    )
    bench.test_command = f"PYTHONPATH=deps {bench.test_command.split()[0]} -c 'import dep' && {bench.test_command}"
    closing(bench.rooms)
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
        kept = await bench.workspace.sealed_at(view.attempts[-1].salvage)
    assert view.state is TaskState.DELIVERED
    assert kept.files == ("clamp.py",)


@pytest.mark.slow
async def test_a_set_up_that_fails_ends_the_task_with_words(
    bench: Any, name: str, closing: Callable[[Rooms], None]
) -> None:
    bench.repositories["demo"] = RepositoryConfig(setup=("echo no such package; exit 7",), setup_network="none")
    closing(bench.rooms)
    async with bench.open():
        await bench.submit(name)
        view = await bench.until(name)
    assert view.state is TaskState.INFRA_FAILED
    for words in ("could not be set up", "exit 7", "status 7", "no such package"):
        assert words in view.reason
