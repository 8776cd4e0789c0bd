"""A change of a person's folder is made as a whole, or the folder is as it was, with every mode and every link."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import WorkspaceError
from sandbox.trees import handing, placing
from sandbox.trees.keeping import Change, Side
from sandbox.trees.placing import LINK, PLAIN, RUNS, Placed


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "d" / "deep").mkdir(parents=True)
    (folder / "d" / "deep" / "a").write_bytes(b"a")
    (folder / "z").write_bytes(b"z0")
    (folder / "z").chmod(0o600)
    (folder / "link").symlink_to("z")
    return folder


def _whole(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything there, empty folders too, each with its mode."""
    found = {}
    for path in folder.rglob("*"):
        content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (path.lstat().st_mode, content)
    return found


def _place(folder: Path, *work: Placed) -> None:
    with placing.opened(folder) as root:
        placing.place(root, work)


def _file(path: bytes, content: bytes, mode: str = PLAIN) -> Placed:
    return Placed(path, Side(mode, content))


BEFORE = (
    Placed(b"d/deep/a", None),
    Placed(b"link", None),
    _file(b"z", b"z1", RUNS),
    _file(b"new/deep/file", b"new"),
    _file(b"d/other", b"x"),
    Placed(b"link2", Side(LINK, b"z")),
)


@pytest.mark.parametrize(
    "last",
    [
        _file(b"z/below", b"x"),
        _file(b"d", b"a folder is there"),
        _file(b"n" * 300, b"x"),
        Placed(b"l", Side(LINK, b"a\0b")),
        Placed(b"absent", None),
    ],
)
def test_what_fails_at_its_last_step_leaves_the_folder_as_it_was(mine: Path, last: Placed) -> None:
    (mine / "d" / "deep").chmod(0o750)
    before = _whole(mine)
    with pytest.raises(WorkspaceError, match="nothing was"):
        _place(mine, *BEFORE, last)
    assert _whole(mine) == before


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files cannot grow over 4 KiB, as on a full disk; python ignores the signal that comes with it."""
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, was[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, was)


@pytest.mark.usefixtures("small_files")
def test_a_disk_that_is_full_leaves_the_folder_as_it_was(mine: Path) -> None:
    before = _whole(mine)
    with pytest.raises(WorkspaceError, match="nothing was"):
        _place(mine, *BEFORE, _file(b"large", bytes(10_000)))
    assert _whole(mine) == before


def test_all_of_it_is_there_afterwards_and_nothing_beside(mine: Path) -> None:
    _place(mine, *BEFORE)
    files = {name: content for name, (_, content) in _whole(mine).items() if content}
    assert files == {"z": b"z1", "new/deep/file": b"new", "d/other": b"x", "link2": b"z"}
    assert not (mine / "d" / "deep").exists()
    assert list(mine.glob(".swarm-*")) == []


@pytest.mark.parametrize(
    ("was", "now", "mode"),
    [(0o600, PLAIN, 0o600), (0o600, RUNS, 0o700), (0o640, RUNS, 0o750), (0o750, PLAIN, 0o640), (0o711, RUNS, 0o711)],
)
def test_a_file_keeps_its_mode_of_which_git_knows_little(mine: Path, was: int, now: str, mode: int) -> None:
    (mine / "z").chmod(was)
    _place(mine, _file(b"z", b"z1", now))
    assert (mine / "z").stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("left", ["d/deep/mine", "d/mine", "d/empty/", "d/deep/link"])
async def test_a_folder_with_something_of_the_persons_makes_no_room_for_a_file(mine: Path, left: str) -> None:
    if left.endswith("/"):
        (mine / left).mkdir()
    elif left.endswith("link"):
        (mine / left).symlink_to(mine)
    else:
        (mine / left).write_bytes(b"mine")
    becomes = [Change(b"d/deep/a", Side(PLAIN, b"a"), None), Change(b"d", None, Side(PLAIN, b"now a file"))]
    work = await handing.judged(mine, becomes)
    assert {each.name: each.verdict for each in work} == {"d/deep/a": "delete", "d": "conflict"}


async def test_a_folder_of_which_all_goes_makes_room(mine: Path) -> None:
    becomes = [Change(b"d/deep/a", Side(PLAIN, b"a"), None), Change(b"d", None, Side(PLAIN, b"now a file"))]
    assert handing.written(mine, await handing.judged(mine, becomes)) == 2
    assert (mine / "d").read_bytes() == b"now a file"


@pytest.mark.parametrize(
    "change",
    [
        Change(b"l/below", None, Side(PLAIN, b"x")),
        Change(b"m", None, Side(LINK, b"a\0b")),
        Change(b"m", None, Side(LINK, b"")),
    ],
)
async def test_what_could_never_be_written_is_a_conflict_before_anything_is(mine: Path, change: Change) -> None:
    work = await handing.judged(mine, [Change(b"l", None, Side(LINK, b"/tmp")), change])
    assert [each.verdict for each in work] == ["write", "conflict"]
