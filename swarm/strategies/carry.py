"""What differs between the workspaces of two sandboxes, and how it is brought from one to the other, byte for byte.

Contents, modes, symbolic and hard links, empty folders and deletions all count. A change is packed on the host, within
`LIMIT`, so that the sandbox that it was made in may go: more than that no save would take either.
"""

from __future__ import annotations

import base64
import hashlib
import tarfile
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sandbox.base import Sandbox
from sandbox.errors import WorkspaceError
from sandbox.trees.tarball import END, Member, TarReader, header, padding
from sandbox.types import GIB, MIB, Command

LIMIT = 64 * MIB
"""Bytes of new content in one change: as for a save."""
JOURNALED = 400_000
"""Characters of a packed change that the journal takes."""
_EXPORT = 16 * GIB  # the sandbox's own disk limit bounds it before
_UMASK = 0o022  # unpacking leaves these bits away
_NOISE = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".git")
_CHMOD = 'xargs -0 -r chmod "$0" --'


@dataclass(frozen=True)
class Entry:
    """One path of a workspace: ``mark`` is the digest of a file, the target of a link; of a folder nothing."""

    kind: Literal["file", "directory", "symlink", "hardlink"]
    mode: int
    mark: bytes = b""
    size: int = 0


@dataclass(frozen=True)
class Change:
    """From one workspace to another: paths to take away first, paths to bring, and the tar (zlib) that brings them.

    ``modes`` are those that unpacking alone would not give; ``gone`` are all paths in what is taken away, which nobody
    needs who makes the change, so no journal keeps them.
    """

    removed: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()
    modes: tuple[tuple[int, str], ...] = ()
    packed: bytes = b""
    gone: tuple[str, ...] = field(default=(), compare=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """All that differ, in order."""
        return tuple(sorted({*self.removed, *self.brought, *self.gone}))

    @property
    def work(self) -> tuple[str, ...]:
        """Those of them that somebody meant: no caches, nothing of git's own."""
        return tuple(path for path in self.paths if not any(part in _NOISE for part in path.split("/")))

    def dump(self) -> dict[str, Any]:
        """As the journal keeps it."""
        packed = base64.b64encode(self.packed).decode()
        return {"removed": self.removed, "brought": self.brought, "modes": self.modes, "packed": packed}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Change:
        """Out of the journal. Raises ValueError and KeyError for what is none."""
        modes = tuple((int(mode), str(path)) for mode, path in data["modes"])
        packed = base64.b64decode(data["packed"], validate=True)
        return cls(tuple(data["removed"]), tuple(data["brought"]), modes, packed)


async def index(sandbox: Sandbox) -> dict[str, Entry]:
    """Every path of a workspace. Raises SandboxError."""
    found: dict[str, Entry] = {}
    reader = TarReader(sandbox.export(), limit=_EXPORT)
    async for member in reader:
        name = _name(member)
        if not name or member.kind == "other":
            continue
        mark = member.link
        if member.kind == "file":
            digest = hashlib.sha256()
            async for chunk in reader.content():
                digest.update(chunk)
            mark = digest.digest()
        found[name] = Entry(member.kind, member.mode, mark, member.size)
    return found


def compared(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is to be removed, and what to be brought, to make the one of the other. Pure.

    A path whose kind changes is removed first. What a hard link points at comes with it, since tar makes one of the
    other; and every link to a file that is brought comes too, since it would go on naming the old one.
    """
    gone = lost(before, after)
    new = {path for path, entry in after.items() if path in gone or before.get(path) != entry}
    links = {path: _text(entry.mark) for path, entry in after.items() if entry.kind == "hardlink"}
    new |= {target for path, target in links.items() if path in new} & after.keys()
    new |= {path for path, target in links.items() if target in new}
    tops = {path for path in gone if not any(parent in gone for parent in _parents(path))}
    return tuple(sorted(tops)), tuple(sorted(new))


def lost(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> frozenset[str]:
    """All paths that are not there any more as what they were. Pure."""
    return frozenset(path for path, entry in before.items() if path not in after or after[path].kind != entry.kind)


def named(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Change:
    """What differs, by its paths alone. Pure."""
    return Change(*compared(before, after), gone=tuple(sorted(lost(before, after))))


async def change(sandbox: Sandbox, before: Mapping[str, Entry]) -> Change:
    """What a workspace has become since ``before``. Raises WorkspaceError where that is over `LIMIT`, SandboxError."""
    after = await index(sandbox)
    made = named(before, after)
    brought = made.brought
    if not made.paths:
        return Change()
    if sum(after[path].size for path in brought) > LIMIT:
        raise WorkspaceError(f"the change holds more than {LIMIT} bytes, which no save takes")
    packed = b"".join([part async for part in _pack(sandbox, frozenset(brought))])
    modes = tuple((after[path].mode, path) for path in brought if _odd(after[path]))
    return replace(made, modes=modes, packed=packed)


async def apply(sandbox: Sandbox, made: Change) -> None:
    """Make a change to a workspace that is as it was when the change began. Raises SandboxError."""
    if made.removed:
        await _each(sandbox, made.removed, "xargs -0 -r rm -rf --")
    if made.packed:
        await sandbox.unpack(_unpacked(made.packed))
    by_mode: dict[int, list[str]] = defaultdict(list)
    for mode, path in made.modes:
        by_mode[mode].append(path)
    for mode, paths in by_mode.items():
        await _each(sandbox, tuple(paths), _CHMOD, f"{mode:o}")


async def _each(sandbox: Sandbox, paths: tuple[str, ...], script: str, *words: str) -> None:
    stdin = b"".join(b"./" + _raw(path) + b"\0" for path in paths)
    outcome = await sandbox.run(Command(argv=("/bin/sh", "-c", script, *(words or ("sh",))), stdin=stdin))
    if outcome.exit_code:
        raise WorkspaceError(f"a change could not be made: {outcome.text[-300:]}")


async def _pack(sandbox: Sandbox, wanted: frozenset[str]) -> AsyncIterator[bytes]:
    """The wanted entries of an export, as a tar of our own, compressed."""
    squeeze = zlib.compressobj(1)
    reader = TarReader(sandbox.export(), limit=_EXPORT)
    async for member in reader:
        name = _name(member)
        if name not in wanted:
            continue
        yield squeeze.compress(_head(member, name))
        if member.kind == "file":
            async for chunk in reader.content():
                yield squeeze.compress(chunk)
            yield squeeze.compress(padding(member.size))
    yield squeeze.compress(END) + squeeze.flush()


def _head(member: Member, name: str) -> bytes:
    raw = _raw(name)
    if member.kind == "hardlink":
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.LNKTYPE, _text(member.link)
        return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    if member.kind == "directory":
        return header(raw + b"/", member.mode, 0, member.mtime)
    link = member.link if member.kind == "symlink" else None
    return header(raw, member.mode, member.size if link is None else 0, member.mtime, link)


async def _unpacked(packed: bytes) -> AsyncIterator[bytes]:
    """The tar again, a piece at a time."""
    loose = zlib.decompressobj()
    data = packed
    try:
        while data:
            piece = loose.decompress(data, 256 * 1024)
            data = loose.unconsumed_tail
            if piece:
                yield piece
        yield loose.flush()
    except zlib.error as error:
        raise WorkspaceError(f"a kept change cannot be read: {error}") from error


def _name(member: Member) -> str:
    """A path as the agent means it: empty for the workspace itself. Raises WorkspaceError for one that leads out."""
    name = _text(member.name)
    if name.startswith("/") or ".." in name.split("/"):
        raise WorkspaceError(f"the export holds {name!r}, which lies outside")
    return name


def _text(raw: bytes) -> str:
    name = raw.decode("utf-8", "surrogateescape").rstrip("/")
    return "" if name == "." else name.removeprefix("./")


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _odd(entry: Entry) -> bool:
    """Whether unpacking, which goes by the umask and drops special bits, gives another mode than this."""
    return entry.kind in {"file", "directory"} and bool(entry.mode & (_UMASK | 0o7000))
