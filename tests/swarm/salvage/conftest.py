"""A git folder with work that attempts left, as a daemon keeps it, and no daemon."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import tarfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.trees.workspace import Workspace
from sandbox.types import MIB, SealedTree
from swarm.workroom import salvage_words

Files = Mapping[str, bytes | tuple[bytes, int] | Path]
"""Content by path; with a mode, or as a Path for where a link leads."""
ENV = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"} | {
    f"GIT_{who}_{key}": "a@b" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
}
BASE: Files = {
    "a.txt": b"one\ntwo\nthree\nfour\nfive\n",
    "bin": bytes(range(256)),
    "dos.txt": b"one\r\ntwo\r\n",
    "run.sh": (b"#!/bin/sh\n", 0o755),
    "old/only.txt": b"to be deleted\n",
    "link": Path("a.txt"),
}
WORK: Files = {
    "a.txt": b"one\nTWO\nthree\nfour\nfive\n",
    "bin": bytes(reversed(range(256))),
    "dos.txt": b"one\r\nzwei\r\n",
    "run.sh": (b"#!/bin/sh\n", 0o644),
    "new/deep/file.txt": b"no newline at the end",
    "link": Path("bin"),
    ".gitattributes": b"* filter=evil text eol=crlf ident\n",
}


def git(*words: str, cwd: Path, stdin: bytes = b"") -> str:
    done = subprocess.run(["git", *words], cwd=cwd, env=ENV, capture_output=True, check=True, input=stdin)
    return done.stdout.decode().strip()


def packed(origin: Path, commit: str) -> bytes:
    words = ["git", "pack-objects", "--revs", "--stdout", "-q"]
    return subprocess.run(words, cwd=origin, env=ENV, input=commit.encode(), capture_output=True, check=True).stdout


def tar(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, Path):
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
                archive.addfile(info)
                continue
            data, info.mode = content if isinstance(content, tuple) else (content, 0o644)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


async def streamed(data: bytes) -> AsyncIterator[bytes]:
    yield data


def put(folder: Path, files: Files) -> Path:
    """The files in a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if isinstance(content, Path):
            path.symlink_to(content)
        else:
            data, mode = content if isinstance(content, tuple) else (content, 0o644)
            path.write_bytes(data)
            path.chmod(mode)
    return folder


def read(folder: Path) -> dict[str, tuple[bytes, int] | Path]:
    """What is in a folder, git's own folder aside."""
    found: dict[str, tuple[bytes, int] | Path] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            found[name] = path.readlink()
        else:
            found[name] = (path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
    return found


def whole(files: Files) -> dict[str, tuple[bytes, int] | Path]:
    """The same shape as `read` gives."""
    return {
        name: content if isinstance(content, (tuple, Path)) else (content, 0o644)
        for name, content in sorted(files.items())
    }


@dataclass
class Left:
    """A daemon's state folder, and one repository's git folder in it."""

    state: Path
    origin: Path
    base: str

    @property
    def folder(self) -> Path:
        return self.state / "git"

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.folder / "demo.git")

    async def leave(self, attempt: str, files: Files, *, ref: str | None = None) -> SealedTree:
        """Work of an attempt, kept as the daemon does."""
        sealed = await self.workspace.seal(self.base, streamed(tar(files)), limit=16 * MIB)
        await self.workspace.keep(ref or f"refs/salvage/{attempt}", sealed, salvage_words(attempt))
        return sealed

    def checkout(self, to: Path) -> Path:
        """A person's own clone."""
        git("clone", "-q", str(self.origin), str(to), cwd=to.parent)
        return to


@pytest.fixture
async def left(tmp_path: Path) -> Left:
    origin = tmp_path / "origin"
    origin.mkdir()
    git("init", "-q", "-b", "main", ".", cwd=origin)
    put(origin, BASE)
    git("add", ".", cwd=origin)
    git("commit", "-q", "-m", "base", cwd=origin)
    base = git("rev-parse", "HEAD", cwd=origin)
    found = Left(tmp_path / "state", origin, base)
    found.folder.mkdir(parents=True)
    pack = await asyncio.to_thread(packed, origin, base)
    await found.workspace.take_pack(pack, base)
    return found
