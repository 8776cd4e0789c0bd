"""A folder of this machine goes into a sandbox whole, and nothing beside it does."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from sandbox.errors import WorkspaceError
from sandbox.trees.folder import folder_stream
from sandbox.trees.workspace import Workspace
from sandbox.types import MIB


async def members(folder: Path, limit: int = MIB) -> dict[str, tarfile.TarInfo]:
    data = b"".join([chunk async for chunk in folder_stream(folder, limit=limit)])
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        return {info.name: info for info in tar}


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True)


async def test_of_a_checkout_what_is_tracked_comes_as_it_lies_there(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", ".")
    (tmp_path / "kept").write_text("old")
    (tmp_path / "gone").write_text("x")
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "new\nline").write_bytes(b"\xff")
    git(tmp_path, "add", ".")
    (tmp_path / "kept").write_text("changed")
    (tmp_path / "gone").unlink()
    (tmp_path / "secret.env").write_text("untracked")
    held = await members(tmp_path)
    assert set(held) == {"kept", "run", "sub/new\nline"}
    assert held["kept"].size == len("changed")
    assert held["run"].mode == 0o755
    assert set(await members(tmp_path / "sub")) == {"new\nline"}


async def test_a_checkouts_own_settings_run_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "fired"
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q", ".")
    (folder / "a").write_text("a")
    git(folder, "add", "a")
    for key in ("core.fsmonitor", "core.pager", "core.sshCommand", "alias.ls-files"):
        git(folder, "config", key, f"touch {canary}")
    assert set(await members(folder)) == {"a"}
    assert not canary.exists()


async def test_of_a_plain_folder_files_and_links_come_and_nothing_else(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "sub" / ".git").mkdir(parents=True)
    (top / "sub" / ".git" / "config").write_text("x")
    (top / "sub" / "file").write_text("x")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(top / "socket"))
    (top / "out").symlink_to("/etc/passwd")
    (top / "etc").symlink_to("/etc")
    held = await members(top)
    assert set(held) == {"sub/file", "out", "etc"}
    assert held["out"].issym()
    assert (held["etc"].issym(), held["etc"].linkname) == (True, "/etc")


async def test_a_tracked_file_below_what_has_become_a_link_is_not_followed(tmp_path: Path) -> None:
    """CVE-2026-39861 is this: the path is inside, what it leads to is not."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("secret")
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "key").write_text("harmless")
    git(top, "init", "-q", ".")
    git(top, "add", ".")
    (top / "sub" / "key").unlink()
    (top / "sub").rmdir()
    (top / "sub").symlink_to(outside)
    assert await members(top) == {}


async def test_too_much_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3 * MIB))
    with pytest.raises(WorkspaceError, match=r"where [0-9]+ of sandbox.limits.disk are left; mend: raise"):
        await members(tmp_path)
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(WorkspaceError, match=r"where [0-9]+ of sandbox.limits.disk are left; mend: raise"):
        await members(tmp_path)
    with pytest.raises(WorkspaceError, match="No such file"):
        await members(tmp_path / "nowhere")


async def test_a_folder_becomes_a_first_commit_whose_patch_applies(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "a").write_text("one\n")
    (top / "binary").write_bytes(bytes(range(256)))
    workspace = Workspace(tmp_path / "git")
    first = await workspace.begin(folder_stream(top, limit=MIB), limit=MIB)
    assert set(first.files) == {"a", "binary"}
    after = tmp_path / "after"
    after.mkdir()
    (after / "a").write_text("two\n")
    (after / "binary").write_bytes(bytes(range(255, -1, -1)))
    sealed = await workspace.seal(first.base, folder_stream(after, limit=MIB), limit=MIB)
    patch = await workspace.patch(first.base, sealed.tree)
    subprocess.run(["git", "apply", "-"], cwd=top, input=patch, check=True)  # noqa: ASYNC221
    assert (top / "a").read_text() == "two\n"
    assert (top / "binary").read_bytes() == (after / "binary").read_bytes()
