"""Hands a sealed tree to a person's own checkout: files judged one by one and written without git, or a branch.

What comes out of the tree is hostile. No hook, filter or attribute of it has a say, no link is followed, and nothing is
written outside the folder. A file that differs from the base there is merged three ways, or told as a conflict.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sandbox.errors import WorkspaceError
from sandbox.trees.gitdir import in_checkout, merge_file
from sandbox.trees.keeping import Change, Side
from sandbox.trees.names import above, git_among, normal, shown
from sandbox.types import MIB, SealedTree

LARGEST = 256 * MIB  # bytes of a file of the person's that is compared
_PLAIN, _RUNS, _LINK = "100644", "100755", "120000"

Verdict = Literal["write", "delete", "same", "merge", "conflict"]


@dataclass(frozen=True)
class Judged:
    """What is to be done at a path, and why where it cannot be. ``side`` is what is written."""

    path: bytes
    verdict: Verdict
    side: Side | None = None
    why: str = ""

    @property
    def name(self) -> str:
        """The path for people."""
        return shown(self.path)


async def judged(folder: Path, changes: Iterable[Change]) -> tuple[Judged, ...]:
    """What each change comes to in a person's folder. Nothing is written. Raises WorkspaceError."""
    found: list[Judged] = []
    going: set[bytes] = set()
    with _opened(folder) as root:
        for change in sorted(changes, key=lambda each: each.after is not None):  # what goes makes room for what comes
            if why := _unfit(change):
                found.append(Judged(change.path, "conflict", why=why))
                continue
            try:
                ours = _read(root, change.path)
            except OSError as error:
                if not _makes_room(change.path, going):
                    found.append(Judged(change.path, "conflict", why=_in_the_way(error)))
                    continue
                ours = None
            found.append(await _judge(change, ours))
            if found[-1].verdict == "delete":
                going.add(change.path)
    return tuple(found)


def written(folder: Path, work: Iterable[Judged]) -> int:
    """Put into the folder what was judged; how many files that were. Raises WorkspaceError."""
    count = 0
    with _opened(folder) as root:
        for each in sorted(work, key=lambda each: each.verdict != "delete"):
            try:
                if each.verdict == "delete":
                    _delete(root, each.path)
                elif each.verdict in {"write", "merge"} and each.side is not None:
                    _write(root, each.path, each.side)
                else:
                    continue
            except OSError as error:
                raise WorkspaceError(f"{each.name} cannot be written: {_in_the_way(error)}") from error
            count += 1
    return count


def marked(work: Iterable[Judged]) -> tuple[Judged, ...]:
    """The same, where texts clash with both versions and marks between them to be written."""
    return tuple(replace(each, verdict="merge") if each.verdict == "conflict" and each.side else each for each in work)


async def branched(folder: Path, branch: str, sealed: SealedTree, words: str) -> str:
    """A new branch of the person's repository that holds the tree on its base; the commit.

    The work tree and the index are not touched. Raises WorkspaceError where the base is not there, or the branch is.
    """
    code, _, _ = await in_checkout(folder, "check-ref-format", f"refs/heads/{branch}")
    if code or branch.startswith("-"):
        raise WorkspaceError(f"{branch!r} is no name of a branch")
    code, _, said = await in_checkout(folder, "cat-file", "-e", f"{sealed.base}^{{commit}}")
    if code:
        told = f" ({said})" if "not a git repository" in said else "; fetch it first: git fetch origin"
        raise WorkspaceError(f"the base {sealed.base[:12]} is not in the repository at {folder}{told}")
    await _must(folder, "unpack-objects", "-q", "--strict", stdin=sealed.pack)
    commit = (await _must(folder, "commit-tree", sealed.tree, "-p", sealed.base, "-m", words)).decode().strip()
    await _must(folder, "update-ref", f"refs/heads/{branch}", commit, "0" * len(commit))
    return commit


async def _must(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    code, out, said = await in_checkout(folder, *words, stdin=stdin)
    if code:
        raise WorkspaceError(f"git {words[0]} failed in {folder}: {said}")
    return out


async def _judge(change: Change, ours: Side | None) -> Judged:
    path, base, theirs = change.path, change.before, change.after
    if ours == theirs:
        return Judged(path, "same")
    if ours == base:
        return Judged(path, "delete") if theirs is None else Judged(path, "write", theirs)
    if ours is None:
        return Judged(path, "conflict", why="it was changed, and is not there in your folder")
    if theirs is None:
        return Judged(path, "conflict", why="it was deleted, and your folder has another version than the base")
    if base is None:
        return Judged(path, "conflict", why="it was added, and your folder has another file of that name")
    return await _merge(path, base, ours, theirs)


async def _merge(path: bytes, base: Side, ours: Side, theirs: Side) -> Judged:
    if _LINK in {base.mode, ours.mode, theirs.mode}:
        return Judged(path, "conflict", why="a link was changed on both sides")
    mode = theirs.mode if ours.mode == base.mode else ours.mode
    if theirs.content in {base.content, ours.content}:  # only the mode was changed, or both made the same change
        return Judged(path, "merge", Side(mode, ours.content))
    if ours.content == base.content:
        return Judged(path, "merge", Side(mode, theirs.content))
    if why := _no_text(base, ours, theirs):
        return Judged(path, "conflict", why=why)
    with tempfile.TemporaryDirectory(prefix="agent-swarm-merge-") as place:
        merged, clashes = await merge_file(Path(place), ours.content, base.content, theirs.content)
    if clashes:
        return Judged(path, "conflict", Side(mode, merged), f"{clashes} places were changed on both sides")
    return Judged(path, "merge", Side(mode, merged))


def _no_text(base: Side, ours: Side, theirs: Side) -> str:
    """Why three versions cannot be merged line by line; empty where they can."""
    if any(b"\0" in side.content for side in (base, ours, theirs)):
        return "a binary file was changed on both sides"
    if ours.content.replace(b"\r\n", b"\n") == base.content.replace(b"\r\n", b"\n"):
        return "your folder has it with other line ends than the base; take it as a branch instead: --branch NAME"
    return ""


def _makes_room(path: bytes, going: set[bytes]) -> bool:
    """Whether what is in the way at a path is among what goes."""
    return any(each in going for each in above(path)) or any(each.startswith(path + b"/") for each in going)


def _unfit(change: Change) -> str:
    """Why a path or what is to be there is nothing for a person's folder; empty where it is."""
    if normal(change.path) != change.path or git_among(change.path.split(b"/")) is not None:
        return "its name is none that a file of a repository may have"
    modes = {side.mode for side in (change.before, change.after) if side}
    return "" if modes <= {_PLAIN, _RUNS, _LINK} else "it is a submodule, which is not applied"


def _in_the_way(error: OSError) -> str:
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return "a link or a file is where a folder should be"
    return error.strerror or type(error).__name__


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        yield root
    finally:
        os.close(root)


@contextlib.contextmanager
def _above(root: int, path: bytes, *, make: bool) -> Iterator[tuple[int, bytes]]:
    """The folder of a path, reached without following any link, and the last part of the name."""
    *parts, name = path.split(b"/")
    at = os.dup(root)
    try:
        for each in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(each, 0o777, dir_fd=at)
            below = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = below
        yield at, name
    finally:
        os.close(at)


def _read(root: int, path: bytes) -> Side | None:
    """What lies at a path; None for nothing. Raises OSError where a link or a folder is in the way."""
    try:
        with _above(root, path, make=False) as (at, name):
            there = os.stat(name, dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(there.st_mode):
                return Side(_LINK, os.readlink(name, dir_fd=at))
            if not stat.S_ISREG(there.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "no plain file")
            if there.st_size > LARGEST:
                raise OSError(errno.EFBIG, f"it is larger than {LARGEST} bytes")
            with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at), "rb") as file:  # noqa: PTH123
                return Side(_RUNS if there.st_mode & stat.S_IXUSR else _PLAIN, file.read())
    except FileNotFoundError:
        return None


def _write(root: int, path: bytes, side: Side) -> None:
    """Put a file or a link in the place of what is there, at once."""
    with _above(root, path, make=True) as (at, name):
        made = f".swarm-{secrets.token_hex(8)}".encode()
        if side.mode == _LINK:
            os.symlink(side.content, made, dir_fd=at)
        else:
            mode = 0o777 if side.mode == _RUNS else 0o666  # as the person's umask has it
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(made, flags, mode, dir_fd=at), "wb") as file:  # noqa: PTH123
                file.write(side.content)
        try:
            os.replace(made, name, src_dir_fd=at, dst_dir_fd=at)
        except OSError:
            os.unlink(made, dir_fd=at)
            raise


def _delete(root: int, path: bytes) -> None:
    """Remove a file, and the folders that are empty without it."""
    with _above(root, path, make=False) as (at, name):
        os.unlink(name, dir_fd=at)
    folder = path.rpartition(b"/")[0]
    while folder:
        with contextlib.suppress(OSError), _above(root, folder, make=False) as (at, name):
            os.rmdir(name, dir_fd=at)
        folder = folder.rpartition(b"/")[0]
