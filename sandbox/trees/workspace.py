"""Checkouts in, sealed trees out, over one trusted bare git directory. The agent's ``.git`` is never looked into.

Long, since it is the one class over that directory.
"""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import IO

from sandbox.errors import WorkspaceError
from sandbox.trees.gitdir import PACK, STREAM, GitDir, GitLimitError, Limits
from sandbox.trees.names import above, normal, shown
from sandbox.trees.sealing import GITLINK, Blob, Found, Furniture, fit, harvest
from sandbox.trees.tarball import END, TarReader, header, padding
from sandbox.types import MIB, SealedTree

_KEPT_TEMPLATES = 8
_LOOSE = 256 * MIB
_CHUNK = 256 * 1024
_RULES, _RULE = 4096, MIB  # files of ignore rules, and bytes of one of them
_DIFF = Limits(seconds=60.0)
_LEFT_OUT = "Left-Out: "
_CONFIG = b"""[core]
\trepositoryformatversion = %d
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[user]
\tname = agent
\temail = agent@localhost
[gc]
\tauto = 0
"""


class Workspace:
    """One repository as the daemon holds it. Any number of checkouts and seals may run at once."""

    def __init__(self, git_dir: Path, *, history_limit: int = 32 * MIB, patience: float = 30.0) -> None:
        """``git_dir`` is a bare git directory that only this process's user may write; made at the first pack.

        A checkout gets its base's whole history where git stores that in ``history_limit`` bytes, else the base alone.
        Ignore rules have ``patience`` seconds for the paths of one seal: git tries a rule with many ``**`` on a deep
        path in more ways than can be counted.
        """
        self._git = GitDir(git_dir)
        self._history_limit = history_limit
        self._patience = patience

    async def take_pack(self, pack: AsyncIterator[bytes] | bytes, commit: str) -> None:
        """Import a pack, keep ``commit`` under refs/bases/. Raises WorkspaceError where it is broken or incomplete."""
        await self._git.create(sha256=len(commit) == 64)
        head, rest = await _first(pack)
        if head:
            await self._git.run(
                "index-pack", "--stdin", "--strict", "--fix-thin", stdin=_joined(head, rest), limits=STREAM
            )
        if not await self.has(commit):
            raise WorkspaceError(f"the pack does not hold commit {commit}")
        await self._git.run("rev-list", "--objects", "--quiet", commit, "--not", "--all")
        await self._git.run("update-ref", f"refs/bases/{commit}", commit)

    async def take_tree(self, pack: bytes, base: str, tree: str) -> SealedTree:
        """Import what another host sealed, on a commit that is here. Raises WorkspaceError where it is incomplete."""
        if not await self.has(base):
            raise WorkspaceError(f"commit {base}, which tree {tree} was made on, is not here")
        kind = await self._git.run("cat-file", "-t", tree, accept=(0, 128))
        if kind.strip() != b"tree":
            await self._git.run("index-pack", "--stdin", "--strict", "--fix-thin", stdin=pack, limits=PACK)
        await self._git.run("rev-list", "--objects", "--quiet", tree, "--not", "--all")
        return await self._sealed(base, tree, ())

    async def begin(self, files: AsyncIterator[bytes], *, limit: int) -> SealedTree:
        """A first commit out of a folder's tar stream, kept under refs/bases/; its id is the ``base`` of the answer.

        What is no content of git's, or too much, is named in ``left_out``. Raises WorkspaceError.
        """
        await self._git.create()
        empty = (await self._git.run("mktree")).decode().strip()
        root = (await self._git.run("commit-tree", empty, "-m", "empty")).decode().strip()
        sealed = await self.seal(root, files, limit=limit)
        commit = (await self._git.run("commit-tree", sealed.tree, "-m", "as it was")).decode().strip()
        await self._git.run("update-ref", f"refs/bases/{commit}", commit)
        return sealed.model_copy(update={"base": commit, "base_tree": sealed.tree})

    async def has(self, commit: str) -> bool:
        """Whether the commit is here."""
        if not (self._git.path / "HEAD").exists():
            return False
        kind = await self._git.run("cat-file", "-t", commit, accept=(0, 128))
        return kind.strip() == b"commit"

    async def paths(self, tree: str) -> dict[bytes, str]:
        """Every file of a tree or commit: its mode, and what git calls its content. Raises WorkspaceError."""
        return {path: f"{blob.mode} {blob.oid}" for path, blob in (await self._entries(tree)).items()}

    async def file(self, tree: str, path: bytes, *, limit: int) -> bytes | None:
        """A plain file of a tree; None where there is none, or a link. Raises WorkspaceError over ``limit`` bytes."""
        blob = (await self._entries(tree)).get(path)
        if blob is None or not blob.mode.startswith("100"):
            return None
        async with aclosing(self._git.blobs([blob.oid])) as blobs:
            async for size, content in blobs:
                if size > limit:
                    raise WorkspaceError(f"{shown(path)} is larger than {limit} bytes")
                return b"".join([chunk async for chunk in content])
        return None

    async def heads(self, tree: str, wanted: Iterable[bytes], *, limit: int) -> dict[bytes, bytes]:
        """The first ``limit`` bytes of those of these paths that are plain files of a tree, or links to one in it.

        A link is followed once, and never out of the tree. Raises WorkspaceError.
        """
        entries = await self._entries(tree)
        asked = [path for path in dict.fromkeys(wanted) if path in entries]
        links = [path for path in asked if entries[path].mode == "120000"]
        ends = {path: _target(path, end) for path, end in (await self._begins(entries, links, 4096)).items()}
        places = {path: ends.get(path, path) for path in asked}
        found = {path: place for path, place in places.items() if place and _plain(entries.get(place))}
        read = await self._begins(entries, list(dict.fromkeys(found.values())), limit)
        return {path: read[place] for path, place in found.items()}

    async def _begins(self, entries: Mapping[bytes, Blob], paths: list[bytes], limit: int) -> dict[bytes, bytes]:
        found = {}
        async with aclosing(self._git.blobs([entries[path].oid for path in paths])) as blobs:
            rest = iter(paths)
            async for _, content in blobs:
                data = bytearray()
                async for chunk in content:
                    data += chunk[: limit - len(data)]
                found[next(rest)] = bytes(data)
        return found

    def checkout(self, commit: str) -> AsyncIterator[bytes]:
        """The commit's tree as a tar stream, with a ``.git`` of its own that knows this commit's history and no more.

        Submodules become empty folders. Content is byte for byte what git stores. Raises WorkspaceError.
        """
        return self.checkout_tree(commit, commit)

    async def checkout_tree(self, tree: str, base: str) -> AsyncIterator[bytes]:
        """The same for a tree made on ``base``: the ``.git`` inside still stands at the base."""
        entries = await self._entries(tree)  # first: it finds out whether a tree has an end
        template, when = await self._template(base)
        with template.open("rb") as ready:
            while chunk := ready.read(_CHUNK):
                yield chunk
        async with aclosing(self._contents(entries, when)) as contents:
            async for chunk in contents:
                yield chunk
        yield END

    async def seal(
        self, base: str, export: AsyncIterator[bytes], *, limit: int, furniture: Furniture | None = None
    ) -> SealedTree:
        """A workspace's tar stream as git objects on ``base``, less the ``furniture`` that was put there beside it.

        At most ``limit`` bytes of new content get in. What does not is named in ``left_out`` with the reason, and a
        tracked path among it keeps its base version. Untracked paths that the base's own .gitignore files name stay
        out. Raises WorkspaceError for a stream that is malformed, cut short, or much larger than ``limit``.
        """
        before = await self._entries(base)
        reader = TarReader(export, limit=2 * (limit + (furniture.size if furniture else 0)) + 64 * MIB)
        gathered = await harvest(reader, before, limit=limit, furniture=furniture)
        with gathered.spool:
            untracked = [path for path in gathered.found if path not in before]
            try:
                ignored = await self._ignored(before, untracked)
            except GitLimitError as error:
                ignored = set()
                gathered.notes.append(f".gitignore (its rules left nothing out: {error})")
            after = fit(gathered, ignored, before, limit=limit)
            new = {found.oid: found for path, found in gathered.found.items() if path in after}
            await self._git.run("fast-import", "--quiet", stdin=_blobs(gathered.spool, new), limits=PACK)
        tree = await self._write_tree(after)
        return await self._sealed(base, tree, tuple(gathered.notes))

    async def unchanged(self, base: str) -> SealedTree:
        """The base's own tree, as if it had been sealed. Raises WorkspaceError."""
        return await self._sealed(base, await self._git.line("rev-parse", f"{base}^{{tree}}"), ())

    async def archive(self, commit: str) -> AsyncIterator[bytes]:
        """The commit's files alone as a tar stream, for `begin` of another one. Raises WorkspaceError."""
        async with aclosing(self._contents(await self._entries(commit), 0)) as contents:
            async for chunk in contents:
                yield chunk
        yield END

    async def chosen(self, base: str, tree: str, counts: Callable[[bytes], bool]) -> SealedTree:
        """The base with those changes of a tree on it whose paths count. Raises WorkspaceError.

        Where such a change needs the place of something of the base's that stays, the base's stays.
        """
        before, after = await self._entries(base), await self._entries(tree)
        stays = {path: blob for path, blob in before.items() if after.get(path) == blob or not counts(path)}
        folders = {folder for path in stays for folder in above(path)}
        for path, blob in after.items():
            if path in stays or path in folders or any(each in stays for each in above(path)):
                continue
            if before.get(path) == blob or counts(path):
                stays[path] = blob
        return await self._sealed(base, await self._write_tree(stays), ())

    async def keep(self, ref: str, sealed: SealedTree, message: str) -> None:
        """Keep a sealed tree as a commit on its base under ``ref``, replacing what was there."""
        if not ref.startswith("refs/"):
            raise WorkspaceError(f"{ref!r} is no full reference name")
        notes = "".join(f"\n{_LEFT_OUT}{json.dumps(note)}" for note in sealed.left_out)
        text = f"{message}\n{notes}\n".encode("utf-8", "replace")
        commit = await self._git.run("commit-tree", sealed.tree, "-p", sealed.base, "-F", "-", stdin=text)
        await self._git.run("update-ref", ref, commit.decode().strip())

    async def refs(self, prefix: str) -> dict[str, str]:
        """References below ``prefix`` and the commits they name."""
        if not (self._git.path / "HEAD").exists():
            return {}
        out = await self._git.line("for-each-ref", "--format=%(refname) %(objectname)", prefix)
        return dict(line.rsplit(" ", 1) for line in out.splitlines())

    async def tree_at(self, ref: str) -> str | None:
        """The tree alone of what ``keep`` stored; None where there is no such reference."""
        if not (self._git.path / "HEAD").exists():
            return None
        out = await self._git.line("for-each-ref", "--format=%(refname) %(tree)", ref)
        return dict(line.rsplit(" ", 1) for line in out.splitlines()).get(ref)

    async def sealed_at(self, ref: str) -> SealedTree | None:
        """Read back what ``keep`` stored; None where there is no such reference."""
        if ref not in await self.refs(ref):
            return None
        raw = await self._git.line("log", "-1", "--format=%T %P%n%B", ref)
        head, _, body = raw.partition("\n")
        tree, base = head.split(" ")
        notes = [json.loads(line[len(_LEFT_OUT) :]) for line in body.splitlines() if line.startswith(_LEFT_OUT)]
        return await self._sealed(base, tree, tuple(notes))

    async def sealed(self, base: str, tree: str) -> SealedTree:
        """A tree that is here, kept or not, as work on a commit. Raises WorkspaceError where either is gone."""
        return await self._sealed(base, tree, ())

    async def tidy(self, *, loose: int = _LOOSE) -> None:
        """Let go of what no reference holds, once loose objects take more than ``loose`` bytes.

        Only while nothing is sealed or imported, since objects on their way to a reference would go as well.
        """
        if not (self._git.path / "HEAD").exists():
            return
        counted = dict(line.split(": ", 1) for line in (await self._git.line("count-objects", "-v")).splitlines())
        if int(counted["size"]) * 1024 > loose:
            await self._git.run("prune", "--expire=now")

    async def diff(self, base: str, tree: str) -> str:
        """A unified diff from a commit to a tree, for people. Raises GitLimitError where that is too much."""
        out = await self._git.run(
            "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", base, tree, limits=_DIFF
        )
        return out.decode("utf-8", "replace")

    async def patch(self, base: str, tree: str) -> bytes:
        """The same with every byte in it, for `git apply`."""
        how = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--binary", "--full-index")
        return await self._git.run("diff", *how, base, tree, limits=PACK)

    async def _entries(self, tree: str) -> dict[bytes, Blob]:
        out = await self._git.run("ls-tree", "-r", "-z", "--full-tree", tree)
        entries = {}
        for line in out.split(b"\0")[:-1]:
            meta, _, path = line.partition(b"\t")
            mode, _, oid = meta.decode().split(" ")
            entries[path] = Blob(mode, oid)
        return entries

    async def _contents(self, entries: Mapping[bytes, Blob], when: int) -> AsyncGenerator[bytes, None]:
        for path, blob in entries.items():
            if blob.mode == GITLINK:
                yield header(path + b"/", 0o755, 0, when)
        files = {path: blob for path, blob in entries.items() if blob.mode != GITLINK}
        out = bytearray()
        async with aclosing(self._git.blobs([blob.oid for blob in files.values()])) as blobs:
            paths = iter(files.items())
            async for size, content in blobs:
                path, blob = next(paths)
                if blob.mode == "120000":
                    out += header(path, 0o777, 0, when, b"".join([chunk async for chunk in content]))
                    continue
                out += header(path, int(blob.mode, 8) & 0o777, size, when)
                async for chunk in content:
                    out += chunk
                    if len(out) >= _CHUNK:
                        yield bytes(out)
                        out.clear()
                out += padding(size)
        yield bytes(out)

    async def _ignored(self, base: Mapping[bytes, Blob], paths: list[bytes]) -> set[bytes]:
        """Which paths the base's own ignore rules name, asked in a folder that holds those rule files alone.

        Raises GitLimitError where they are too many, too large or take too long.
        """
        rules = {path: blob for path, blob in base.items() if path.rsplit(b"/", 1)[-1] == b".gitignore"}
        rules = {path: blob for path, blob in rules.items() if blob.mode.startswith("100") and normal(path) == path}
        if not rules or not paths:
            return set()
        if len(rules) > _RULES:
            raise GitLimitError(f"there are more than {_RULES} files of them")
        with tempfile.TemporaryDirectory(prefix="agent-swarm-ignore-") as folder:
            blobs = self._git.blobs([blob.oid for blob in rules.values()])
            async with aclosing(blobs):
                names = iter(rules)
                async for size, content in blobs:
                    name = next(names)
                    if size > _RULE:
                        raise GitLimitError(f"{shown(name)} is larger than {_RULE} bytes")
                    _put(Path(folder) / os.fsdecode(name), b"".join([chunk async for chunk in content]))
            out = await self._git.run(
                *("check-ignore", "-z", "--stdin", "--no-index"),
                stdin=b"".join(b"./" + path + b"\0" for path in paths),  # "./" keeps a name from being pathspec magic
                env={"GIT_WORK_TREE": folder, "GIT_INDEX_FILE": f"{folder}/.git-index", "GIT_LITERAL_PATHSPECS": "0"},
                accept=(0, 1),
                cwd=Path(folder),
                limits=Limits(seconds=self._patience),
            )
        return {path.removeprefix(b"./") for path in out.split(b"\0")[:-1]}

    async def _write_tree(self, entries: Mapping[bytes, Blob]) -> str:
        with tempfile.TemporaryDirectory(prefix="agent-swarm-index-") as folder:
            env = {"GIT_INDEX_FILE": f"{folder}/index"}
            lines = b"".join(b"%s %s\t%s\0" % (b.mode.encode(), b.oid.encode(), path) for path, b in entries.items())
            await self._git.run("update-index", "--add", "--replace", "-z", "--index-info", stdin=lines, env=env)
            return (await self._git.run("write-tree", env=env)).decode().strip()

    async def _sealed(self, base: str, tree: str, left_out: tuple[str, ...]) -> SealedTree:
        base_tree = await self._git.line("rev-parse", f"{base}^{{tree}}")
        changed = await self._git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", base_tree, tree)
        wanted = f"{tree}\n^{base_tree}\n".encode()
        pack = await self._git.run("pack-objects", "--revs", "--stdout", "--quiet", stdin=wanted, limits=PACK)
        return SealedTree(
            base=base,
            tree=tree,
            base_tree=base_tree,
            files=tuple(shown(path) for path in changed.split(b"\0")[:-1]),
            pack=pack,
            left_out=left_out,
        )

    async def _template(self, base: str) -> tuple[Path, int]:
        """The ``.git`` part of a checkout as tar entries, made once per base, and the time of the base's commit."""
        folder = self._git.path / "agent-swarm-checkouts"
        for ready in folder.glob(f"{base}.*.tar"):
            return ready, int(ready.name.split(".")[1])
        when = int(await self._git.line("log", "-1", "--format=%ct", base))
        ready = folder / f"{base}.{when}.tar"
        folder.mkdir(exist_ok=True)
        for old in sorted(folder.glob("*.tar"), key=lambda path: path.stat().st_mtime)[: 1 - _KEPT_TEMPLATES]:
            old.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            await self._make_git(GitDir(Path(made) / ".git"), base)
            packed = Path(made) / "tar"
            packed.write_bytes(_packed(Path(made) / ".git"))
            packed.rename(ready)
        return ready, when

    async def _make_git(self, inner: GitDir, base: str) -> None:
        """A git directory with one branch at ``base`` and an index that matches it."""
        sha256 = len(base) == 64
        await inner.create(sha256=sha256)
        whole = not (self._git.path / "shallow").exists()
        whole = (
            whole and int(await self._git.line("rev-list", "--objects", "--disk-usage", base)) <= self._history_limit
        )
        if not whole:
            (inner.path / "shallow").write_text(f"{base}\n")
        objects = f"{base}\n" if whole else await self._git.line("rev-list", "--objects", "--max-count=1", base)
        ids = "".join(f"{line.split(' ', 1)[0]}\n" for line in objects.splitlines())
        how = ("--revs",) if whole else ()
        pack = await self._git.run("pack-objects", *how, "--stdout", "--quiet", stdin=ids.encode(), limits=PACK)
        await inner.run("index-pack", "--stdin", stdin=pack, limits=PACK)
        await inner.run("update-ref", "refs/heads/agent", base)
        await inner.run("symbolic-ref", "HEAD", "refs/heads/agent")
        await inner.run("read-tree", base)
        extra = b"[extensions]\n\tobjectformat = sha256\n" if sha256 else b""
        (inner.path / "config").write_bytes(_CONFIG % int(sha256) + extra)
        shutil.rmtree(inner.path / "hooks", ignore_errors=True)


def _plain(blob: Blob | None) -> bool:
    return blob is not None and blob.mode.startswith("100")


def _target(path: bytes, end: bytes) -> bytes | None:
    """Where a link at ``path`` leads to within the tree; None where it leads out of it."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), end))
    return None if end.startswith(b"/") or joined.startswith(b"..") else joined


def _put(target: Path, content: bytes) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    except OSError as error:  # a name that no file can have here, for one
        raise GitLimitError(f"{shown(os.fsencode(target.name))} cannot be written: {error.strerror}") from error


def _packed(folder: Path) -> bytes:
    """A ``.git`` folder as tar entries, without the end marker."""
    out = bytearray(header(b".git/", 0o755, 0, 0))
    for path in sorted(folder.rglob("*")):
        name = f".git/{path.relative_to(folder)}".encode()
        if path.is_dir():
            out += header(name + b"/", 0o755, 0, 0)
        else:
            data = path.read_bytes()
            out += header(name, 0o644, len(data), 0) + data + padding(len(data))
    return bytes(out)


async def _blobs(spool: IO[bytes], new: Mapping[str, Found]) -> AsyncIterator[bytes]:
    for found in new.values():
        if found.offset is None:
            continue
        spool.seek(found.offset)
        yield b"blob\ndata %d\n" % found.size
        left = found.size
        while left:
            chunk = spool.read(min(left, _CHUNK))
            left -= len(chunk)
            yield chunk
        yield b"\n"


async def _first(pack: AsyncIterator[bytes] | bytes) -> tuple[bytes, AsyncIterator[bytes] | None]:
    if isinstance(pack, bytes):
        return pack, None
    async for chunk in pack:
        if chunk:
            return chunk, pack
    return b"", None


async def _joined(head: bytes, rest: AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    yield head
    if rest is not None:
        async for chunk in rest:
            yield chunk
