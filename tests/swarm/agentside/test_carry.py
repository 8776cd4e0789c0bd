"""What one workspace became is what the other becomes, byte for byte."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.errors import WorkspaceError
from sandbox.testing import ScriptedBackend, ScriptedSandbox
from sandbox.types import SandboxSpec
from swarm.strategies import carry
from swarm.strategies.carry import Change, Entry, compared


@pytest.fixture
async def box() -> AsyncIterator[ScriptedSandbox]:
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        yield sandbox


def fill(work: Path) -> None:
    (work / "src").mkdir()
    (work / "src/a.py").write_bytes(b"one\r\n\xff")
    (work / "src/gone.py").write_bytes(b"x")
    (work / "folder/deep").mkdir(parents=True)
    (work / "folder/deep/x").write_bytes(b"x")
    (work / "turns").write_bytes(b"a file")
    (work / "kept").write_bytes(b"kept")
    (work / "link").symlink_to("kept")


def rework(work: Path) -> None:
    (work / "src/a.py").write_bytes(b"two\n\0")
    (work / "src/a.py").chmod(0o775)
    (work / "src/gone.py").unlink()
    (work / "folder/deep/x").unlink()
    (work / "folder/deep").rmdir()
    (work / "folder").rmdir()
    (work / "folder").write_bytes(b"a file now")
    (work / "turns").unlink()
    (work / "turns/into").mkdir(parents=True)
    (work / "turns/into/a folder").write_bytes(b"\n")
    (work / "link").unlink()
    (work / "link").symlink_to("/etc/passwd")
    (work / "-rf --").write_bytes(b"a name")
    (work / b"\xff\n name".decode("utf-8", "surrogateescape")).write_bytes(b"of odd bytes")
    os.link(work / "kept", work / "twin")
    (work / "empty").mkdir(mode=0o700)
    (work / "large").write_bytes(bytes(300_000) + b"end")


def state(work: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(work.rglob("*")):
        info = path.lstat()
        content: object = path.read_bytes() if path.is_file() and not path.is_symlink() else "folder"
        content = str(path.readlink()) if path.is_symlink() else content
        found[str(path.relative_to(work))] = (info.st_mode, content, info.st_nlink if path.is_file() else 0)
    return found


async def test_everything_that_was_changed_is_brought_over(box: ScriptedSandbox) -> None:
    fill(box.work)
    before = await carry.index(box)
    async with box.fork() as fork:
        rework(fork.work)
        made = await carry.change(fork, before)
        wanted = state(fork.work)
    assert Change.load(made.dump()) == made
    await carry.apply(box, made)
    assert state(box.work) == wanted
    assert not (await carry.change(box, await carry.index(box))).paths


async def test_every_name_of_a_file_that_was_written_holds_what_it_became(box: ScriptedSandbox) -> None:
    (box.work / "a").write_bytes(b"old")
    for twin in ("b", "c"):
        os.link(box.work / "a", box.work / twin)
    before = await carry.index(box)
    async with box.fork() as fork:
        with (fork.work / "b").open("wb") as file:  # the file stays, so all its names are written
            file.write(b"new")
        os.link(fork.work / "c", fork.work / "d")
        made = await carry.change(fork, before)
        wanted = state(fork.work)
    await carry.apply(box, made)
    assert state(box.work) == wanted
    assert (box.work / "c").read_bytes() == b"new"


async def test_nothing_changed_is_nothing_to_bring(box: ScriptedSandbox) -> None:
    fill(box.work)
    before = await carry.index(box)
    async with box.fork() as fork:
        made = await carry.change(fork, before)
    assert made == Change()
    await carry.apply(box, made)


async def test_caches_are_brought_but_are_nobodys_work(box: ScriptedSandbox) -> None:
    before = await carry.index(box)
    (box.work / "__pycache__").mkdir()
    (box.work / "__pycache__/m.pyc").write_bytes(b"x")
    (box.work / "m.py").write_bytes(b"x")
    made = await carry.change(box, before)
    assert made.work == ("m.py",)
    assert "__pycache__/m.pyc" in made.paths


async def test_a_change_that_no_save_would_take_is_refused(box: ScriptedSandbox) -> None:
    with (box.work / "huge").open("wb") as file:
        file.truncate(carry.LIMIT + 1)
    with pytest.raises(WorkspaceError, match="no save takes"):
        await carry.change(box, {})


def test_a_path_whose_kind_changes_is_removed_before_it_is_brought() -> None:
    before = {"a": Entry("directory", 0o755), "a/b": Entry("file", 0o644, b"1"), "c": Entry("file", 0o644, b"2")}
    after = {"a": Entry("file", 0o644, b"3"), "c": Entry("file", 0o644, b"2"), "d": Entry("hardlink", 0o644, b"./c")}
    assert compared(before, after) == (("a",), ("a", "c", "d"))
