"""Single files inside: what is opened, what is made, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.inside.files import _create_inside, _folder_inside, _open_inside, put
from sandbox.inside.protocol import RefusedError


@pytest.fixture
def root(tmp_path: Path) -> bytes:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret").write_text("secret")
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_text("ours")
    (work / "link").symlink_to("../out/secret")
    (work / "folder").symlink_to("../out")
    (work / "inner").symlink_to("file")
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "pipe")
    return os.fsencode(work)


@pytest.mark.parametrize("path", [b"link", b"folder/secret", b"../out/secret", b"/etc/passwd", b"folder/new", b"."])
def test_what_leads_out_is_neither_read_nor_made(root: bytes, path: bytes) -> None:
    for act in (lambda: _open_inside(root, path, os.O_RDONLY), lambda: _create_inside(root, path)):
        with pytest.raises(RefusedError, match="outside"):
            act()
    assert [path.name for path in Path(os.fsdecode(root), "../out").iterdir()] == ["secret"]


@pytest.mark.parametrize("path", [b"pipe", b"loop", b"d"])
def test_what_is_no_file_is_never_opened(root: bytes, path: bytes) -> None:
    Path(os.fsdecode(root), "d").mkdir()
    for act in (lambda: _open_inside(root, path, os.O_RDONLY), lambda: _create_inside(root, path)):
        with pytest.raises(RefusedError, match="not a file"):
            act()


def test_a_folder_that_became_a_link_meanwhile_is_not_followed(root: bytes) -> None:
    with pytest.raises(NotADirectoryError):
        _folder_inside(root, [b"folder"], make=True)


def test_a_link_that_stays_inside_is_followed_and_new_folders_are_made(root: bytes) -> None:
    fd = _open_inside(root, b"inner", os.O_RDONLY)
    assert os.read(fd, 10) == b"ours"
    os.close(fd)
    fd, new = _create_inside(root, b"a/b/c")
    os.close(fd)
    assert new
    fd, new = _create_inside(root, b"inner")
    os.close(fd)
    assert not new
    assert Path(os.fsdecode(root), "file").read_bytes() == b""


def test_a_file_that_programs_need_is_put_in_place_of_whatever_lies_there(root: bytes) -> None:
    put(root + b"/link", b"public")
    assert Path(os.fsdecode(root), "link").read_bytes() == b"public"
    assert Path(os.fsdecode(root), "../out/secret").read_text() == "secret"
