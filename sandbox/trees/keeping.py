"""What a trusted git directory keeps under its references: listed, read, weighed, let go of, and tidied as a whole."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import WorkspaceError
from sandbox.trees.gitdir import PACK, GitDir, Limits
from sandbox.types import MIB

PARCEL = Limits(processor=1800, seconds=1800.0, output=1024 * MIB)
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

    async def parcel(self, base: str, trees: Iterable[str], *, history_limit: int = 32 * MIB) -> tuple[bytes, bool]:
        """One pack that holds a commit and these trees, so far as they are here, and leans on nothing.

        The commit's history comes along where a checkout of it would have it; the flag tells where it does not. Raises
        WorkspaceError.
        """
        here = [tree for tree in dict.fromkeys(trees) if await self._has(tree)]
        whole = not self._shallow
        whole = whole and int(await self._git.line("rev-list", "--objects", "--disk-usage", base)) <= history_limit
        if whole:
            wanted = "".join(f"{oid}\n" for oid in (base, *here)).encode()
            return await self._git.run(
                "pack-objects", "--revs", "--stdout", "--quiet", stdin=wanted, limits=PARCEL
            ), False
        listed = await self._git.line("rev-list", "--objects", "--max-count=1", base)
        for tree in here:
            listed += "\n" + await self._git.line("rev-list", "--objects", "--no-walk", tree)
        ids = dict.fromkeys(line.split(" ", 1)[0] for line in listed.splitlines() if line)
        wanted = "".join(f"{oid}\n" for oid in ids).encode()
        return await self._git.run("pack-objects", "--stdout", "--quiet", stdin=wanted, limits=PARCEL), True

    async def unpack(self, pack: bytes, base: str, *, shallow: bool) -> None:
        """Take a parcel into a new directory, every object of it checked. Raises WorkspaceError for what is none."""
        await self._git.create(sha256=len(base) == 64)
        if shallow:
            (self._git.path / "shallow").write_text(f"{base}\n")
        await self._git.run("index-pack", "--stdin", "--strict", stdin=pack, limits=PARCEL)
        await self._git.run("rev-list", "--objects", "--quiet", base)
        await self._git.run("update-ref", f"refs/bases/{base}", base)

    async def has(self, tree: str) -> bool:
        """Whether a tree is here, with everything in it."""
        return self.there and await self._has(tree)

    async def _has(self, tree: str) -> bool:
        if (await self._git.run("cat-file", "-t", tree, accept=(0, 128))).strip() not in {b"tree", b"commit"}:
            return False
        listed = await self._git.run(
            "ls-tree", "-r", "-z", "--format=%(objecttype) %(objectname)", tree, accept=(0, 128)
        )
        ids = {line.split(b" ")[1] for line in listed.split(b"\0") if line.startswith(b"blob ")}
        asked = b"".join(oid + b"\n" for oid in ids)
        found = await self._git.run("cat-file", "--batch-check=%(objecttype)", stdin=asked) if ids else b""
        return b"missing" not in found and bool(listed or not ids)

    @property
    def _shallow(self) -> bool:
        return (self._git.path / "shallow").exists()

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
