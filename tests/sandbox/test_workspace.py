"""Checkouts and seals over a real git, with exports that were forged by hand."""

from __future__ import annotations

import asyncio
import io
import os
import random
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from sandbox.errors import WorkspaceError
from sandbox.trees.gitdir import GitLimitError
from sandbox.trees.workspace import Workspace
from sandbox.types import MIB

LIMIT = 4 * 1024 * 1024


def git(folder: Path, *args: str, stdin: bytes = b"") -> bytes:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    return subprocess.run(["git", *args], cwd=folder, input=stdin, env=env, check=True, capture_output=True).stdout


FILES = {
    b"a.txt": b"one\r\ntwo\n",
    b"bin.dat": bytes(range(256)) * 10,
    b"empty": b"",
    b"dir/run.sh": b"#!/bin/sh\nexit 3\n",
    b"dir/b.py": b"\xef\xbb\xbfprint(1)\n",
    b"new\nline": b"odd",
    b"caf\xe9": b"latin",
    "schön/ü".encode(): b"utf8",
    b".gitignore": b"*.pyc\n__pycache__/\n/build/\n",
    b".gitattributes": b"*.txt text eol=lf ident\n*.py filter=evil export-ignore\n",
    b"build/kept.o": b"tracked although ignored",
}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name, data in FILES.items():
        path = Path(os.fsdecode(os.fsencode(folder) + b"/" + name))
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data)
    (folder / "dir/run.sh").chmod(0o755)
    (folder / "link").symlink_to("dir/b.py")
    git(folder, "-c", "core.autocrlf=false", "add", "-f", "--no-all", ".")
    # byte-exact objects, whatever the attributes say
    for name, data in FILES.items():
        oid = git(folder, "hash-object", "-w", "--no-filters", "--stdin", stdin=data).decode().strip()
        mode = b"100755" if name == b"dir/run.sh" else b"100644"
        git(folder, "update-index", "-z", "--index-info", stdin=mode + b" " + oid.encode() + b"\t" + name + b"\0")
    git(folder, "commit", "-q", "-m", "base")
    return folder


@pytest.fixture
async def held(origin: Path, tmp_path: Path) -> tuple[Workspace, str]:
    base = git(origin, "rev-parse", "HEAD").decode().strip()
    workspace = Workspace(tmp_path / "trusted.git")
    await workspace.take_pack(git(origin, "pack-objects", "--revs", "--stdout", "-q", stdin=base.encode()), base)
    return workspace, base


async def whole(stream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def chunks(data: bytes, size: int = 700):
    for at in range(0, len(data), size):
        yield data[at : at + size]


def unpack(data: bytes, folder: Path) -> None:
    subprocess.run(["tar", "-x", "-C", folder], input=data, check=True)


def members(data: bytes) -> dict[bytes, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        return {os.fsencode(info.name): info for info in tar}


class Forge:
    """Makes tar streams with what no honest tar would hold."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO()
        self.tar = tarfile.open(  # noqa: SIM115 - stream() closes it
            fileobj=self.buffer, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
        )

    def add(self, name: bytes | str, data: bytes = b"", mode: int = 0o644, **fields: object) -> Forge:
        info = tarfile.TarInfo(os.fsdecode(name))
        info.size, info.mode = len(data), mode
        for field, value in fields.items():
            setattr(info, field, value)
        self.tar.addfile(info, io.BytesIO(data))
        return self

    def base(self, *, without: tuple[bytes, ...] = ()) -> Forge:
        for name, data in FILES.items():
            if name not in without:
                self.add(b"./" + name, data, 0o755 if name == b"dir/run.sh" else 0o600)
        return self.add("./link", type=tarfile.SYMTYPE, linkname="dir/b.py")

    def stream(self):
        self.tar.close()
        return chunks(self.buffer.getvalue())


def tree_of(workspace: Workspace, tree: str) -> dict[bytes, tuple[str, bytes]]:
    folder = workspace._git.path
    out = git(folder, "ls-tree", "-r", "-z", tree)
    entries = {}
    for line in out.split(b"\0")[:-1]:
        meta, _, path = line.partition(b"\t")
        mode, _, oid = meta.decode().split(" ")
        entries[path] = (mode, git(folder, "cat-file", "blob", oid))
    return entries


async def test_checkout_is_byte_exact_whatever_the_attributes_say(held) -> None:
    workspace, base = held
    data = await whole(workspace.checkout(base))
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        files = {os.fsencode(i.name): tar.extractfile(i).read() for i in tar if i.isreg()}
    assert {name: body for name, body in files.items() if not name.startswith(b".git/")} == FILES
    assert members(data)[b"link"].linkname == "dir/b.py"
    assert members(data)[b"dir/run.sh"].mode & 0o100


async def test_the_git_inside_knows_the_base_and_nothing_past_it(held, origin: Path, tmp_path: Path) -> None:
    workspace, base = held
    (origin / "later").write_text("secret of the future")
    git(origin, "add", "later")
    git(origin, "commit", "-q", "-m", "later")
    later = git(origin, "rev-parse", "HEAD").decode().strip()
    await workspace.take_pack(git(origin, "pack-objects", "--revs", "--stdout", "-q", stdin=later.encode()), later)
    out = tmp_path / "out"
    out.mkdir()
    unpack(await whole(workspace.checkout(base)), out)
    assert git(out, "rev-parse", "HEAD").decode().strip() == base
    assert git(out, "rev-list", "--all").decode().split() == [base]
    assert b"later" not in git(out, "cat-file", "--batch-all-objects", "--batch-check")
    with pytest.raises(subprocess.CalledProcessError):
        git(out, "cat-file", "-e", later)
    assert git(out, "remote") == b""
    assert not (out / ".git/hooks").exists()
    assert b"credential" not in (out / ".git/config").read_bytes()
    assert git(out, "fsck", "--strict") == b""
    (out / "a.txt").write_bytes(b"changed\n")
    assert b"a.txt" in git(out, "-c", "core.attributesFile=/dev/null", "diff", "--name-only")


async def test_unchanged_workspace_seals_to_the_base_tree(held) -> None:
    workspace, base = held
    sealed = await workspace.seal(base, Forge().base().stream(), limit=LIMIT)
    assert not sealed.changed
    assert sealed.files == ()
    assert sealed.left_out == ()


async def test_what_a_checkout_gives_seals_back_to_the_same_tree(held) -> None:
    workspace, base = held
    sealed = await workspace.seal(base, workspace.checkout(base), limit=LIMIT)
    assert not sealed.changed


async def test_changes_deletions_modes_and_links_are_sealed(held) -> None:
    workspace, base = held
    forged = Forge().base(without=(b"a.txt", b"empty", b"dir/b.py"))
    forged.add("a.txt", b"one\r\n").add("dir/b.py/inner", b"was a file").add("new.sh", b"#!", 0o755)
    forged.add("out", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    tree = tree_of(workspace, sealed.tree)
    assert tree[b"a.txt"] == ("100644", b"one\r\n")
    assert tree[b"new.sh"] == ("100755", b"#!")
    assert tree[b"out"] == ("120000", b"/etc/passwd")
    assert tree[b"dir/b.py/inner"] == ("100644", b"was a file")
    assert b"empty" not in tree
    assert set(sealed.files) == {"a.txt", "dir/b.py", "dir/b.py/inner", "empty", "new.sh", "out"}
    assert sealed.left_out == ()


async def test_pack_holds_exactly_what_the_base_lacks(held, origin: Path, tmp_path: Path) -> None:
    workspace, base = held
    forged = Forge().base(without=(b"a.txt",)).add("a.txt", b"new").add("copy", FILES[b"bin.dat"])
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    folder = workspace._git.path
    mine = {line.split()[2] for line in git(folder, "ls-tree", "-r", "-t", sealed.tree).splitlines()}
    mine.add(sealed.tree.encode())
    theirs = {line.split()[2] for line in git(folder, "ls-tree", "-r", "-t", base).splitlines()}
    git(origin, "index-pack", "--stdin", "--fix-thin", "--strict", stdin=sealed.pack)
    other = tmp_path / "other.git"
    git(tmp_path, "init", "-q", "--bare", str(other))
    git(other, "unpack-objects", "-q", stdin=sealed.pack)
    got = {line.split()[0] for line in git(other, "cat-file", "--batch-all-objects", "--batch-check").splitlines()}
    assert got == mine - theirs
    assert git(origin, "cat-file", "-t", sealed.tree) == b"tree\n"


async def test_ignore_rules_of_the_base_apply_and_tracked_files_stay(held) -> None:
    workspace, base = held
    forged = Forge().base(without=(b".gitignore", b"build/kept.o"))
    forged.add(".gitignore", b"").add("build/kept.o", b"edited")
    forged.add("x.pyc", b"1").add("dir/__pycache__/y", b"2").add("build/other.o", b"3").add("caf\u00e9.pyc", b"4")
    forged.add(b":(top)odd", b"pathspec magic is a plain name")
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    assert set(sealed.files) == {".gitignore", "build/kept.o", ":(top)odd"}


async def test_a_path_without_bottom_is_left_out_and_told(held) -> None:
    workspace, base = held
    forged = Forge().base().add("a/" * 255 + "deep", b"1").add("b/" * 256 + "deeper", b"2").add("c/" * 300, type=b"5")
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    assert sealed.files == ("a/" * 255 + "deep",)
    assert sealed.left_out == ("b/" * 256 + "deeper (more than 256 folders deep)",)


async def test_ignore_rules_that_never_come_to_an_end_lose_no_work(tmp_path: Path) -> None:
    """git tries such a rule in more ways than can be counted, and neither its base nor its time is the daemon's."""
    workspace = Workspace(tmp_path / "git", patience=0.5)
    rule = b"**/" + b"a/**/" * 12 + b"b\n*.pyc\n"
    base = (await workspace.begin(Forge().add(".gitignore", rule).stream(), limit=LIMIT)).base
    forged = Forge().add(".gitignore", rule).add("a/" * 60 + "c", b"work").add("x.pyc", b"1")
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    assert set(sealed.files) == {"a/" * 60 + "c", "x.pyc"}
    assert sealed.left_out == (".gitignore (its rules left nothing out: git check-ignore took more than 0.5 s)",)


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        (".gitignore", b"*.pyc\n" + b"#" * MIB, ".gitignore is larger than 1048576 bytes"),
        (f"{'x' * 202}/" * 20 + ".gitignore", b"*.pyc\n", ".gitignore cannot be written: File name too long"),
    ],
)
async def test_ignore_rules_that_cannot_be_asked_lose_no_work(
    tmp_path: Path, path: str, content: bytes, why: str
) -> None:
    workspace = Workspace(tmp_path / "git")
    base = (await workspace.begin(Forge().add(path, content).stream(), limit=LIMIT)).base
    sealed = await workspace.seal(base, Forge().add(path, content).add("x.pyc", b"1").stream(), limit=LIMIT)
    assert (sealed.files, sealed.left_out) == (("x.pyc",), (f".gitignore (its rules left nothing out: {why})",))


async def test_a_tree_that_holds_itself_again_and_again_is_refused(origin: Path, tmp_path: Path) -> None:
    """A git bomb: 13 objects that are ten million million files."""
    oid = git(origin, "hash-object", "-w", "--stdin", stdin=b"x").decode().strip()
    tree = git(origin, "mktree", stdin="".join(f"100644 blob {oid}\tf{n}\n" for n in range(10)).encode())
    for _ in range(12):
        below = tree.decode().strip()
        tree = git(origin, "mktree", stdin="".join(f"040000 tree {below}\td{n}\n" for n in range(10)).encode())
    commit = git(origin, "commit-tree", "-m", "x", tree.decode().strip()).decode().strip()
    workspace = Workspace(tmp_path / "git")
    await workspace.take_pack(git(origin, "pack-objects", "--revs", "--stdout", stdin=f"{commit}\n".encode()), commit)
    with pytest.raises(GitLimitError, match="git ls-tree had more than"):
        await whole(workspace.checkout(commit))


async def test_hostile_entries_are_left_out_and_named(held) -> None:
    workspace, base = held
    forged = Forge().base()
    forged.add("../up", b"x").add("/abs", b"x").add("dir/../../up2", b"x")
    forged.add("pipe", type=tarfile.FIFOTYPE).add("disk", type=tarfile.BLKTYPE)
    forged.add("hard", type=tarfile.LNKTYPE, linkname="/etc/passwd")
    forged.add("hard2", type=tarfile.LNKTYPE, linkname="../../etc/passwd")
    forged.add(".git/config", b"[core]\n fsmonitor = touch /tmp/x\n").add("sub/.git/config", b"x").add("sub/.GIT", b"x")
    forged.add("git~1", b"x").add("s/.g\u200cit/hooks", b"x").add("s/.git ./hooks", b"x").add("fine/.gitx", b"ok")
    forged.add("a\\.git\\hooks", b"x").add(".gitmodules", type=tarfile.SYMTYPE, linkname="dir")
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    assert sealed.files == ("fine/.gitx",)
    named = " ".join(sealed.left_out)
    for name in (
        "../up",
        "/abs",
        "up2",
        "pipe",
        "disk",
        "hard ",
        "hard2",
        "sub/.git ",
        "sub/.GIT",
        "git~1",
        ".git .",
        "a\\.git",
        ".gitmodules",
    ):
        assert name in named, name
    assert ".git/config" not in named


async def test_hard_links_within_the_workspace_become_files(held) -> None:
    workspace, base = held
    forged = Forge().base().add("x", b"same").add("y", type=tarfile.LNKTYPE, linkname="./x")
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    assert tree_of(workspace, sealed.tree)[b"y"] == ("100644", b"same")


async def test_a_file_over_the_limit_is_left_out_and_a_tracked_one_keeps_its_base(held) -> None:
    workspace, base = held
    forged = Forge().base(without=(b"a.txt",)).add("a.txt", b"x" * (LIMIT + 1)).add("z", b"small")
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    assert sealed.files == ("z",)
    assert any(note.startswith("a.txt (larger") for note in sealed.left_out)
    assert tree_of(workspace, sealed.tree)[b"a.txt"][1] == FILES[b"a.txt"]


async def test_many_lost_paths_beside_many_new_ones_do_not_stop_the_daemon(tmp_path: Path) -> None:
    """What an agent makes in a third of a second may not be compared each with each: that took the loop 49 s."""
    workspace = Workspace(tmp_path / "git")
    before = Forge()
    for number in range(2000):
        before.add(f"d{number // 100}/f{number}", b"x")
    base = (await workspace.begin(before.stream(), limit=LIMIT)).base
    forged = Forge()
    for number in range(2000):
        forged.add(f"d{number // 100}/f{number}", type=tarfile.FIFOTYPE)
    forged.add("d0/f0/below", b"").add("d1", b"now a file")
    for number in range(10_000):
        forged.add(f"n/{number}", b"")
    longest, ended = 0.0, asyncio.Event()

    async def beat() -> None:
        """How long the loop was kept by its own work; what else the machine does is not counted."""
        nonlocal longest
        while not ended.is_set():
            before = time.thread_time()
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - before)

    beating = asyncio.create_task(beat())
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    ended.set()
    await beating
    assert longest < 2  # each with each: 9 s
    after = tree_of(workspace, f"{sealed.tree}:d2")
    assert len(after) == 100  # a tracked path that was lost is not deleted
    files = await workspace.paths(sealed.tree)
    assert b"d0/f0" not in files
    assert b"d1" in files
    assert not any(path.startswith(b"d1/") for path in files)
    assert len(files) == 10_000 + 2000 - 100 + 1  # less f0 and what was in d1, with d1 and d0/f0/below


async def test_the_sum_of_new_content_is_bounded(held) -> None:
    workspace, base = held
    forged = Forge().base()
    for number in range(10):
        forged.add(f"big{number}", bytes([number]) * (LIMIT // 4))
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    assert len(sealed.files) == 4
    assert len(sealed.left_out) == 6


def real_tar(folder: Path) -> bytes:
    argv = ["tar", "--create", "--format=gnu", "--sparse", "--sort=name", "--file=-", "."]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True).stdout


async def test_files_with_holes_are_expanded_and_huge_ones_left_out(held, tmp_path: Path) -> None:
    workspace, base = held
    folder = tmp_path / "holes"
    folder.mkdir()
    with (folder / "some").open("wb") as file:
        for at in range(0, 1_500_000, 60_000):
            file.seek(at)
            file.write(b"data")
        file.truncate(2_000_000)
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    (folder / ("long" * 60)).write_bytes(b"long name")
    (folder / "far").symlink_to("x" * 300)
    sealed = await workspace.seal(base, chunks(real_tar(folder)), limit=LIMIT)
    tree = tree_of(workspace, sealed.tree)
    assert tree[b"some"][1] == (folder / "some").read_bytes()
    assert tree[b"long" * 60][1] == b"long name"
    assert tree[b"far"][1] == b"x" * 300
    assert b"huge" not in tree
    assert any("huge" in note for note in sealed.left_out)


@pytest.mark.parametrize("keep", [0, 100, 512, 3000])
async def test_a_stream_cut_short_is_refused_and_never_reads_as_deletions(held, keep: int) -> None:
    workspace, base = held
    data = await whole(Forge().base().stream())
    with pytest.raises(WorkspaceError, match=r"ended early|no tar"):
        await workspace.seal(base, chunks(data[:keep]), limit=LIMIT)


@pytest.mark.parametrize("seed", range(20))
async def test_random_damage_gives_a_tree_or_a_workspace_error(held, seed: int) -> None:
    workspace, base = held
    data = bytearray(await whole(Forge().base().stream()))
    chance = random.Random(seed)  # noqa: S311 - damage to order
    for _ in range(5):
        data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        sealed = await workspace.seal(base, chunks(bytes(data)), limit=LIMIT)
    except WorkspaceError:
        return
    assert git(workspace._git.path, "fsck", "--strict", "--no-dangling", sealed.tree) == b""


async def test_an_endless_stream_is_refused_at_its_bound(held) -> None:
    workspace, base = held

    async def endless():
        yield await whole(Forge().base().stream())
        while True:
            yield bytes(1 << 20)

    with pytest.raises(WorkspaceError, match="larger than"):
        await workspace.seal(base, endless(), limit=LIMIT)


async def test_a_sealed_tree_can_be_kept_listed_and_read_back(held) -> None:
    workspace, base = held
    forged = Forge().base().add("z", b"1").add("odd\nname", type=tarfile.FIFOTYPE)
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    await workspace.keep("refs/salvage/t1-1", sealed, "salvage of t1")
    await workspace.keep("refs/salvage/t1-1", sealed, "again")
    assert list(await workspace.refs("refs/salvage")) == ["refs/salvage/t1-1"]
    assert await workspace.sealed_at("refs/salvage/t1-1") == sealed
    assert await workspace.sealed_at("refs/salvage/none") is None
    assert await workspace.tree_at("refs/salvage/t1-1") == sealed.tree
    assert await workspace.tree_at("refs/salvage/t1") is None
    assert await workspace.tree_at("refs/salvage") is None, "a folder of references is none"
    assert "+1" in await workspace.diff(base, sealed.tree)
    again = await whole(workspace.checkout_tree(sealed.tree, base))
    assert b"z" in members(again)


async def test_a_submodule_stays_as_the_base_has_it(origin: Path, tmp_path: Path) -> None:
    oid = "1" * 40
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{oid},vendor/sub")
    git(origin, "commit", "-q", "-m", "sub")
    base = git(origin, "rev-parse", "HEAD").decode().strip()
    workspace = Workspace(tmp_path / "w.git")
    await workspace.take_pack(git(origin, "pack-objects", "--revs", "--stdout", "-q", stdin=base.encode()), base)
    assert b"vendor/sub" in members(await whole(workspace.checkout(base)))
    forged = Forge().base().add("vendor/sub/x", b"1").add("vendor/y", b"2")
    sealed = await workspace.seal(base, forged.stream(), limit=LIMIT)
    assert sealed.files == ("vendor/y",)
    assert any("inside a submodule" in note for note in sealed.left_out)


async def test_broken_and_incomplete_packs_are_refused(origin: Path, tmp_path: Path) -> None:
    base = git(origin, "rev-parse", "HEAD").decode().strip()
    pack = git(origin, "pack-objects", "--revs", "--stdout", "-q", stdin=base.encode())
    workspace = Workspace(tmp_path / "w.git")
    with pytest.raises(WorkspaceError):
        await workspace.take_pack(pack[:-30], base)
    with pytest.raises(WorkspaceError, match="does not hold"):
        await workspace.take_pack(b"", base)
    only_commit = git(origin, "pack-objects", "--stdout", "-q", stdin=base.encode() + b"\n")
    with pytest.raises(WorkspaceError):
        await workspace.take_pack(only_commit, base)
    assert await workspace.refs("refs/") == {}
    await workspace.take_pack(chunks(pack), base)
    assert await workspace.has(base)
    assert list(await workspace.refs("refs/bases")) == [f"refs/bases/{base}"]


async def test_many_seals_and_checkouts_at_once_agree(held) -> None:
    workspace, base = held

    async def one(number: int) -> str:
        forged = Forge().base().add("n", str(number % 3).encode())
        await whole(workspace.checkout(base))
        return (await workspace.seal(base, forged.stream(), limit=LIMIT)).tree

    trees = await asyncio.gather(*(one(number) for number in range(9)))
    assert len(set(trees)) == 3


async def test_a_long_history_is_cut_to_the_base(held, origin: Path, tmp_path: Path) -> None:
    git(origin, "rm", "-q", "--cached", "empty")
    git(origin, "commit", "-q", "-m", "second")
    base = git(origin, "rev-parse", "HEAD").decode().strip()
    workspace = Workspace(tmp_path / "w.git", history_limit=10)
    await workspace.take_pack(git(origin, "pack-objects", "--revs", "--stdout", "-q", stdin=base.encode()), base)
    out = tmp_path / "out"
    out.mkdir()
    unpack(await whole(workspace.checkout(base)), out)
    assert git(out, "rev-list", "--all").decode().split() == [base]
    assert git(out, "fsck", "--strict") == b""


async def test_a_sha256_repository_works(tmp_path: Path) -> None:
    folder = tmp_path / "o"
    folder.mkdir()
    git(folder, "init", "-q", "--object-format=sha256")
    (folder / "a").write_text("1")
    git(folder, "add", "a")
    git(folder, "commit", "-q", "-m", "1")
    base = git(folder, "rev-parse", "HEAD").decode().strip()
    workspace = Workspace(tmp_path / "w.git")
    await workspace.take_pack(git(folder, "pack-objects", "--revs", "--stdout", "-q", stdin=base.encode()), base)
    sealed = await workspace.seal(base, Forge().add("a", b"2").stream(), limit=LIMIT)
    assert sealed.files == ("a",)
    assert b"a" in members(await whole(workspace.checkout(base)))


async def test_tidying_lets_go_of_what_no_reference_holds_and_of_nothing_else(held: tuple[Workspace, str]) -> None:
    workspace, base = held
    dropped = await workspace.seal(base, Forge().base().add("./noise", b"noise").stream(), limit=LIMIT)
    kept = await workspace.seal(base, Forge().base().add("./work", b"work").stream(), limit=LIMIT)
    await workspace.keep("refs/salvage/a", kept, "kept")

    await workspace.tidy()
    assert "noise" in await workspace.diff(base, dropped.tree), "little is left alone"
    await workspace.tidy(loose=0)

    with pytest.raises(WorkspaceError):
        await workspace.diff(base, dropped.tree)
    again = await workspace.sealed_at("refs/salvage/a")
    assert again is not None
    assert again.tree == kept.tree
    assert b"".join([chunk async for chunk in workspace.checkout(base)])


async def test_a_second_checkout_is_the_first_one_byte_for_byte(held: tuple[Workspace, str]) -> None:
    workspace, base = held
    first = await whole(workspace.checkout(base))
    assert await whole(workspace.checkout(base)) == first
