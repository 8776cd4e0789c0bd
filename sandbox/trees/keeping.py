"""What a trusted git directory keeps under its references: listed, read, weighed, let go of, and tidied as a whole."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import WorkspaceError
from sandbox.trees.gitdir import PACK, GitDir
from sandbox.types import MIB

READ = 256 * MIB  # bytes of one tree's files that are read at once
_FIELDS = ("%(refname)", "%(objectname)", "%(tree)", "%(parent)", "%(committerdate:unix)", "%(contents:subject)")
_ABSENT = "000000"


@dataclass(frozen=True)
class Kept:
    """A reference and its commit. ``at`` is in seconds since 1970; the ``parent`` of a first commit is empty."""

    ref: str
    commit: str
    tree: str
    parent: str
    at: float
    subject: str


@dataclass(frozen=True)
class Side:
    """A path on one side of a change: git's mode, and its content, which of a link is where it leads."""

    mode: str
    content: bytes


@dataclass(frozen=True)
class Change:
    """What became of a path between two trees; None where there is none."""

    path: bytes
    before: Side | None
    after: Side | None


class Keeping:
    """The references of one repository as the daemon holds it. Reading makes and writes nothing."""

    def __init__(self, git_dir: Path) -> None:
        self._git = GitDir(git_dir)

    async def kept(self, *prefixes: str) -> tuple[Kept, ...]:
        """Commits under references below ``prefixes``. Raises WorkspaceError."""
        if not self.there:
            return ()
        out = await self._git.run("for-each-ref", f"--format={'%00'.join(_FIELDS)}%00", *prefixes)
        lines = (line.split(b"\0") for line in out.split(b"\0\n") if line)
        return tuple(_kept([each.decode("utf-8", "replace") for each in line]) for line in lines)

    @property
    def there(self) -> bool:
        """Whether anything was ever kept of the repository."""
        return (self._git.path / "HEAD").exists()

    async def create(self, *, sha256: bool) -> None:
        """Make the directory where it is absent."""
        await self._git.create(sha256=sha256)

    async def append(self, ref: str, files: Mapping[str, bytes], words: str, *, anew: bool = False) -> None:
        """Add files to those of the commit under ``ref``, one git call in all; ``anew`` where there is none yet."""
        await self._git.run("fast-import", "--quiet", stdin=_commit(ref, files, words, anew=anew), limits=PACK)

    async def files(self, tree: str, *, limit: int = READ) -> dict[str, bytes]:
        """The plain files of a tree with their content. Raises WorkspaceError for more than ``limit`` bytes."""
        out = await self._git.run("ls-tree", "-r", "-z", "--full-tree", tree)
        named = [line.partition(b"\t") for line in out.split(b"\0")[:-1]]
        ids = {path.decode("utf-8", "replace"): meta.split(b" ")[2].decode() for meta, _, path in named}
        contents = await self._contents(ids.values(), limit)
        return {path: contents[oid] for path, oid in ids.items()}

    async def changes(self, base: str, tree: str, *, limit: int = READ) -> tuple[Change, ...]:
        """What differs between a commit and a tree, both sides whole. Raises WorkspaceError."""
        how = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev")
        out = (await self._git.run("diff-tree", *how, f"{base}^{{tree}}", tree)).split(b"\0")[:-1]
        raw = [(out[at + 1], out[at].decode().removeprefix(":").split(" ")) for at in range(0, len(out), 2)]
        wanted = [oid for _, meta in raw for mode, oid in ((meta[0], meta[2]), (meta[1], meta[3])) if _file(mode)]
        contents = await self._contents(wanted, limit)
        return tuple(
            Change(path, _side(meta[0], meta[2], contents), _side(meta[1], meta[3], contents)) for path, meta in raw
        )

    async def weight(self, commit: str, parent: str) -> int:
        """Bytes on disk that a commit holds beyond its parent. Raises WorkspaceError."""
        beyond = ("--not", parent) if parent else ()
        return int(await self._git.line("rev-list", "--objects", "--disk-usage", commit, *beyond))

    async def drop(self, kept: Kept) -> None:
        """Let go of a reference, if it still names that commit. Raises WorkspaceError."""
        await self._git.run("update-ref", "-d", kept.ref, kept.commit)

    async def tidy(self, *, days: float = 14.0) -> None:
        """Pack everything, and let go of objects that no reference has held for some days. Raises WorkspaceError."""
        if self.there:
            await self._git.run("gc", "--quiet", f"--prune={int(time.time() - days * 86400)}", limits=PACK)

    async def _contents(self, ids: Iterable[str], limit: int) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        left = limit
        wanted = list(dict.fromkeys(ids))
        async with aclosing(self._git.blobs(wanted)) as blobs:
            names = iter(wanted)
            async for size, content in blobs:
                left -= size
                if left < 0:
                    raise WorkspaceError(f"there is more than {limit} bytes to read in {self._git.path}")
                found[next(names)] = b"".join([chunk async for chunk in content])
        return found


def _kept(fields: list[str]) -> Kept:
    ref, commit, tree, parents, at, subject = fields[:6]
    return Kept(ref, commit, tree, parents.split(" ")[0], float(at or 0), subject)


def _file(mode: str) -> bool:
    return mode.startswith("100") or mode == "120000"


def _side(mode: str, oid: str, contents: Mapping[str, bytes]) -> Side | None:
    if mode == _ABSENT:
        return None
    return Side(mode, contents[oid] if _file(mode) else oid.encode())


async def _commit(ref: str, files: Mapping[str, bytes], words: str, *, anew: bool) -> AsyncIterator[bytes]:
    said = words.encode()
    yield f"commit {ref}\ncommitter Agent Swarm <agent-swarm@localhost> {int(time.time())} +0000\n".encode()
    yield b"data %d\n%s\n" % (len(said), said)
    if not anew:
        yield f"from {ref}^0\n".encode()
    for name, content in files.items():
        yield b"M 100644 inline %s\ndata %d\n" % (name.encode(), len(content))
        yield content
        yield b"\n"
