"""Turns the entries of a hostile export into what git stores: modes, object ids, and the bytes it does not have yet."""

from __future__ import annotations

import bisect
import hashlib
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import IO, Protocol

from sandbox.trees.names import above, git_among, names_gitmodules, normal, shown
from sandbox.trees.tarball import Member, TarReader

_MAX_NOTES = 200
_LINK_LIMIT = 4096
_DEEPEST = 256  # parts of a path: each costs, here and in git, and an agent makes a thousand at no cost
_SMALL = 256 * 1024  # bytes of a file that is hashed before it is written anywhere

GITLINK = "160000"


@dataclass(frozen=True)
class Blob:
    """One path of a tree. ``mode`` is git's."""

    mode: str
    oid: str


@dataclass(frozen=True)
class Found(Blob):
    """A path of the export. ``offset`` says where new content is spooled; None where the base has it already."""

    size: int
    offset: int | None


@dataclass
class Harvest:
    """What an export held. ``lost`` are paths that were there but could not be taken, ``holes`` bytes nobody stored."""

    spool: IO[bytes]
    found: dict[bytes, Found] = field(default_factory=dict)
    lost: set[bytes] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    holes: int = 0

    def leave_out(self, path: bytes, reason: str) -> None:
        """Note a path that does not get in, once."""
        self.lost.add(path)
        note = f"{shown(path)} ({reason})"
        if note not in self.notes[-3:] and len(self.notes) < _MAX_NOTES:
            self.notes.append(note)


class Furniture(Protocol):
    """What was put into a workspace before the work began, beside the checkout, and is no part of its result."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""

    def holds(self, path: bytes, member: Member) -> bool:
        """Whether this entry of an export is a piece of it, unchanged."""


async def harvest(
    reader: TarReader, base: Mapping[bytes, Blob], *, limit: int, furniture: Furniture | None = None
) -> Harvest:
    """Read every entry. A file larger than ``limit`` is left out. Raises WorkspaceError for a malformed stream.

    So is one whose holes, with those of the files before it, come to more: holes cost the agent nothing, and whoever
    reads them all that they pretend to be.
    Of what ``furniture`` holds only paths that the base tracks are taken. The caller closes the spool.
    """
    spool = tempfile.TemporaryFile()  # noqa: SIM115 - handed to the caller
    gathered = Harvest(spool)
    known = {blob.oid for blob in base.values()}
    algorithm = "sha256" if any(len(oid) == 64 for oid in known) else "sha1"
    submodules = {path for path, blob in base.items() if blob.mode == GITLINK}
    scope = _Scope(base, known, algorithm, limit, submodules)
    try:
        async for member in reader:
            path = normal(member.name)
            if furniture is None or path is None or path in base or not furniture.holds(path, member):
                await _take(reader, member, gathered, scope)
    except BaseException:
        spool.close()
        raise
    return gathered


@dataclass(frozen=True)
class _Scope:
    base: Mapping[bytes, Blob]
    known: set[str]
    algorithm: str
    limit: int
    submodules: set[bytes]


async def _take(reader: TarReader, member: Member, gathered: Harvest, scope: _Scope) -> None:
    path = normal(member.name)
    if path is None:
        if member.kind != "directory" or member.name.strip(b"./"):
            gathered.leave_out(member.name, "name leads outside")
        return
    parts = path.split(b"/")
    if len(parts) > _DEEPEST:
        if member.kind != "directory":
            gathered.leave_out(path, f"more than {_DEEPEST} folders deep")
        return
    git_at = git_among(parts)
    if git_at is not None:
        if parts[0] != b".git":
            gathered.leave_out(b"/".join(parts[: git_at + 1]), "git's own folder")
        return
    if scope.submodules and not scope.submodules.isdisjoint([path, *above(path)]):
        if member.kind != "directory":
            gathered.leave_out(path, "inside a submodule")
        return
    await _take_named(reader, member, gathered, scope, path)


async def _take_named(reader: TarReader, member: Member, gathered: Harvest, scope: _Scope, path: bytes) -> None:
    if member.kind == "directory":
        return
    if member.kind == "hardlink":
        target = normal(member.link)
        known = gathered.found.get(target) if target is not None else None
        if known is None:
            gathered.leave_out(path, "hard link to something that is left out")
        else:
            gathered.found[path] = known
    elif member.kind == "symlink":
        if not member.link or len(member.link) > _LINK_LIMIT or names_gitmodules(path.rsplit(b"/", 1)[-1]):
            gathered.leave_out(path, "symbolic link that git does not take")
        else:
            gathered.found[path] = _store(gathered, scope, "120000", member.link)
    elif member.kind == "file":
        if member.size > scope.limit:
            gathered.leave_out(path, f"larger than {scope.limit} bytes")
        elif gathered.holes + member.holes > scope.limit:
            gathered.leave_out(path, f"holes in files come to more than {scope.limit} bytes")
        else:
            gathered.holes += member.holes
            gathered.found[path] = await _store_content(reader, member, gathered, scope, path)
    else:
        gathered.leave_out(path, "neither file nor symbolic link")


def _store(gathered: Harvest, scope: _Scope, mode: str, data: bytes) -> Found:
    oid = hashlib.new(scope.algorithm, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    if oid in scope.known:
        return Found(mode, oid, len(data), None)
    offset = gathered.spool.tell()
    gathered.spool.write(data)
    return Found(mode, oid, len(data), offset)


async def _store_content(reader: TarReader, member: Member, gathered: Harvest, scope: _Scope, path: bytes) -> Found:
    if member.size <= _SMALL:
        data = b"".join([chunk async for chunk in reader.content()])
        return _store(gathered, scope, _mode(member.mode, scope.base.get(path)), data)
    digest = hashlib.new(scope.algorithm, b"blob %d\0" % member.size, usedforsecurity=False)
    offset = gathered.spool.tell()
    async for chunk in reader.content():
        digest.update(chunk)
        gathered.spool.write(chunk)
    oid = digest.hexdigest()
    mode = _mode(member.mode, scope.base.get(path))
    if oid in scope.known:
        gathered.spool.seek(offset)
        gathered.spool.truncate()
        return Found(mode, oid, member.size, None)
    return Found(mode, oid, member.size, offset)


def _mode(mode: int, before: Blob | None) -> str:
    executable = bool(mode & 0o100)
    if before is not None and before.mode.startswith("100") and bool(int(before.mode, 8) & 0o100) == executable:
        return before.mode  # old trees hold modes such as 100664; an untouched one must not become a change
    return "100755" if executable else "100644"


def fit(gathered: Harvest, ignored: set[bytes], base: Mapping[bytes, Blob], *, limit: int) -> dict[bytes, Blob]:
    """The tree to write: what was found and is not ignored, within ``limit`` bytes of new content, plus submodules.

    A tracked path that was there but could not be taken keeps its base version, so that it never reads as a deletion.
    """
    tree: dict[bytes, Blob] = {path: blob for path, blob in base.items() if blob.mode == GITLINK}
    left = limit
    for path, found in gathered.found.items():
        if path in ignored and path not in base:
            continue
        new = found.size if found.offset is not None else 0
        if new > left:
            gathered.leave_out(path, f"over {limit} bytes of changes")
            continue
        left -= new
        tree[path] = Blob(found.mode, found.oid)
    for path in _alone(gathered.lost & base.keys() - tree.keys(), tree):
        tree[path] = base[path]
    return tree


def _alone(paths: set[bytes], tree: Collection[bytes]) -> list[bytes]:
    """Those with nothing of the tree above or below them. The agent chooses how many there are of either."""
    taken = sorted(tree) if paths else []
    found = []
    for path in paths:
        at = bisect.bisect_left(taken, path + b"/")
        if not (at < len(taken) and taken[at].startswith(path + b"/")) and not any(up in tree for up in above(path)):
            found.append(path)
    return found
