"""What this room relies on git to do, each claim as an experiment in a scratch folder.

A claim is a function that returns what speaks against it, empty if it holds. Measured on git 2.39.5, where fetching
from a bundle, for one, checks nothing at all: what a git does is found out, not looked up by its version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from broker.config.settings import Identity
from broker.errors import GitError
from broker.gitdir import GitDir, Limits
from broker.judge.crafted import Crafted, blob, commit, pack, tree

_FILE = blob(b"payload\n")
_WHO = Identity(name="Self Test", email="self-test@localhost")
_NULL = "0" * 40

Experiment = Callable[[Path], str]
"""Works in an empty folder; what speaks against the claim, empty if it holds."""


def _hostile() -> Mapping[str, tuple[Crafted, ...]]:
    """One sample for each thing that the strict parser has to refuse, with the objects that it needs."""
    names = {
        ".git": b".git", ".GIT": b".GIT", "git~1": b"git~1", "GIT~1": b"GIT~1",
        "an HFS look-alike": b".g\xe2\x80\x8cit",
        "another HFS look-alike": b"\xef\xbb\xbf.git", "a dot": b".", "two dots": b"..", "a slash": b"a/b",
        "an NTFS stream": b".git::$INDEX_ALLOCATION",
    }  # fmt: skip
    samples: dict[str, tuple[Crafted, ...]] = {
        name: (tree(("100644", raw, _FILE.oid)), _FILE) for name, raw in names.items()
    }
    inner = tree(("100644", b"config", _FILE.oid))
    samples["a .git folder"] = (tree(("40000", b".git", inner.oid)), inner, _FILE)
    samples["duplicates"] = (tree(("100644", b"a", _FILE.oid), ("100644", b"a", _FILE.oid)), _FILE)
    samples["a file and a folder of one name"] = (
        tree(("100644", b"a", _FILE.oid), ("40000", b"a", inner.oid)),
        inner,
        _FILE,
    )
    samples["no order"] = (tree(("100644", b"b", _FILE.oid), ("100644", b"a", _FILE.oid)), _FILE)
    samples["a padded mode"] = (tree(("0100644", b"a", _FILE.oid)), _FILE)
    samples["an empty name"] = (tree(("100644", b"", _FILE.oid)), _FILE)
    samples["a null id"] = (tree(("100644", b"a", _NULL)),)
    samples["a missing object"] = (tree(("100644", b"a", "1" * 40)),)
    samples["a file as a folder"] = (tree(("40000", b"a", _FILE.oid)), _FILE)
    target = blob(b"../elsewhere")
    samples["a link as .gitmodules"] = (tree(("120000", b".gitmodules", target.oid)), target)
    modules = {
        "a submodule address that is an option": b'[submodule "a"]\n\tpath = a\n\turl = --upload-pack=touch x\n',
        "a submodule path that is an option": b'[submodule "a"]\n\tpath = -a\n\turl = https://x.example/a\n',
        "a submodule named two dots": b'[submodule "../x"]\n\tpath = a\n\turl = https://x.example/a\n',
        "a submodule with a command": b'[submodule "a"]\n\tpath = a\n\turl = https://x.example/a\n\tupdate = !x\n',
    }
    samples |= {name: (tree(("100644", b".gitmodules", blob(text).oid)), blob(text)) for name, text in modules.items()}
    fine = tree(("100644", b"a", _FILE.oid))
    commits = {
        "a commit without author": commit(fine.oid, author=""),
        "a commit with a NUL": commit(fine.oid, message=b"a\0b\n"),
        "a commit after the end of time": commit(fine.oid, author="author A <a@b> 18446744073709551617 +0000\n"),
    }
    return samples | {name: (made, fine, _FILE) for name, made in commits.items()}


def strict_refuses_the_list(scratch: Path) -> str:
    """Each hostile sample is refused, and an honest pack is not."""
    store = _store(scratch / "strict")
    fine = tree(("100644", b"a b.txt", _FILE.oid), ("100755", b"run", _FILE.oid))
    if problem := _import(store, pack([fine, _FILE])):
        return f"an honest pack was refused: {problem}"
    accepted = [name for name, objects in _hostile().items() if not _import(store, pack(objects))]
    return f"it let through {', '.join(accepted)}" if accepted else ""


def size_is_bounded(scratch: Path) -> str:
    """`--max-input-size` ends an import."""
    store = _store(scratch / "size")
    sample = pack([blob(os.urandom(20_000))])
    return "" if _import(store, sample, "--max-input-size=10000") else "it read past --max-input-size"


def quarantine_is_unseen(scratch: Path) -> str:
    """What a quarantine holds, the mirror behind it does not see; the other way round it does."""
    mirror, store = _store(scratch / "mirror"), _store(scratch / "quarantine")
    _import(mirror, pack([_FILE]))
    (store.path / "objects" / "info" / "alternates").write_text(f"{mirror.path / 'objects'}\n")
    new = tree(("100644", b"new", _FILE.oid))
    if problem := _import(store, pack([new])):
        return f"an object of the mirror was not seen from the quarantine: {problem}"
    with mirror.objects() as objects:
        return "the mirror sees what lies in quarantine" if objects.info(new.oid) else ""


def commits_are_repeatable(scratch: Path) -> str:
    """The same input to commit-tree gives the same commit."""
    store = _store(scratch / "commit")
    _import(store, pack([tree(("100644", b"a", _FILE.oid)), _FILE]))
    made = {store.commit_tree(tree(("100644", b"a", _FILE.oid)).oid, (), "m\n", _WHO, 1) for _ in range(2)}
    return "" if len(made) == 1 else "the same input gave two commits"


def pushes_are_guarded(scratch: Path) -> str:
    """A branch is created once, moved only from where it is expected, and no second ref goes along."""
    store, forge = _store(scratch / "pusher"), _store(scratch / "forge")
    first, second = (_commit(store, name) for name in (b"a", b"b"))
    ref = "refs/heads/x"

    def push(commit_id: str, expected: str) -> bool:
        lease, refs = f"--force-with-lease={ref}:{expected}", f"{commit_id}:{ref}"
        with suppress(GitError):
            store.run("push", "--porcelain", lease, "--", str(forge.path), refs, protocols="file")
            return True
        return False

    if not push(first, ""):
        return "a branch could not be created"
    for words, expected in (("created twice", ""), ("moved from where it is not", second)):
        if push(second, expected):
            return f"a branch was {words}"
    store.run("update-ref", "refs/tags/t", first)
    moved = push(second, first)  # what is expected is what is there
    left = forge.run("for-each-ref", "--format=%(refname)").split()
    return "" if moved and left == [ref.encode()] else "a push did something else than it was told"


def transports_are_closed(scratch: Path) -> str:
    """No transport is open that a run was not given, ext:: and file:// least of all."""
    store, other = _store(scratch / "closed"), _store(scratch / "other")
    mark = scratch / "ext-ran"
    for address in (
        str(other.path),
        f"file://{other.path}",
        f"ext::touch {mark}",
        "git://127.0.0.1:1/x",
        "x@127.0.0.1:x",
    ):
        with suppress(GitError):
            store.run("fetch", "--", address, "refs/heads/x")
            return f"{address.split(':')[0]} was open"
    return "a command of an address ran" if mark.exists() else ""


def nothing_of_a_repository_runs(scratch: Path) -> str:
    """Hooks, fsmonitor, filters, drivers and helpers that a repository's own files name stay asleep."""
    mark, store = scratch / "config-ran", _store(scratch / "hostile")
    head = _commit(store, b"a")
    store.run("update-ref", "refs/heads/x", head)
    script = store.path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o700)
    (store.path / "hooks").mkdir()
    for hook in ("reference-transaction", "pre-push", "post-index-change", "pre-auto-gc", "post-rewrite"):
        (store.path / "hooks" / hook).symlink_to(script)
    with (store.path / "config").open("a") as config:
        config.write(
            f"[core]\n\thooksPath = {store.path}/hooks\n\tfsmonitor = {script}\n\taskPass = {script}\n"
            f"\tsshCommand = {script}\n\tgitProxy = {script}\n\tpager = {script}\n\teditor = {script}\n"
            f'[filter "f"]\n\tclean = {script}\n\tsmudge = {script}\n[diff "f"]\n\ttextconv = {script}\n'
            f"[diff]\n\texternal = {script}\n[credential]\n\thelper = !{script}\n[gpg]\n\tprogram = {script}\n"
            f"[commit]\n\tgpgSign = true\n[push]\n\tgpgSign = if-asked\n\tfollowTags = true\n"
            f"[uploadpack]\n\tpackObjectsHook = {script}\n"
        )
    (store.path / "info").mkdir()
    (store.path / "info" / "attributes").write_text("* filter=f diff=f\n")
    _work_in(store, head, scratch)
    return "a command that a repository's own settings name was run" if mark.exists() else ""


def _work_in(store: GitDir, head: str, scratch: Path) -> None:
    target = _store(scratch / "target")
    with store.objects() as objects:
        objects.read(head, "commit", 10_000)
    store.run("rev-list", "--objects", "--end-of-options", head)
    store.run("pack-objects", "--revs", "--stdout", "-q", stdin=[f"{head}\n".encode()])
    other = _commit(store, b"c")
    store.run("update-ref", "refs/heads/y", other)
    store.run("diff-tree", "-r", "-p", "--no-ext-diff", "--no-textconv", head, other)
    store.run("push", "--", str(target.path), f"{head}:refs/heads/x", protocols="file")
    store.run("fetch", "--no-write-fetch-head", "--", str(target.path), "refs/heads/x:refs/heads/z", protocols="file")
    with suppress(GitError):
        store.run("fetch", "--", "http://127.0.0.1:1/x", "refs/heads/x", protocols="http")


def replacements_are_ignored(scratch: Path) -> str:
    """Replace refs and grafts change nothing that is read."""
    store = _store(scratch / "replace")
    real, fake = _commit(store, b"real"), _commit(store, b"fake")
    store.run("update-ref", f"refs/replace/{real}", fake)
    (store.path / "info").mkdir()
    (store.path / "info" / "grafts").write_text(f"{real} {fake}\n")
    (store.path / "shallow").write_text(f"{real}\n")
    with store.objects() as objects:
        seen = objects.tree_of(real)
    listed = store.run("rev-list", "--end-of-options", real).split()
    wanted = tree(("100644", b"real", _FILE.oid)).oid
    return "" if seen == wanted and listed == [real.encode()] else "a replace ref, a graft or a shallow file was obeyed"


def names_are_no_options(scratch: Path) -> str:
    """After --end-of-options nothing is an option."""
    store = _store(scratch / "options")
    for name in ("--help", "--git-dir=/", "-q", f"--output={scratch}/written"):
        if store.commit_of(name) is not None:
            return f"{name} was taken for something"
    return "a file was written" if (scratch / "written").exists() else ""


def limits_kill(scratch: Path) -> str:
    """Memory, file size, output and time each end a run."""
    store = _store(scratch / "limits")
    _import(store, pack([blob(b"x" * 50_000)]))
    noise, huge = pack([blob(os.urandom(300_000))]), pack([Crafted("commit", b"x" * (48 << 20))])

    def slow() -> Iterator[bytes]:
        time.sleep(0.3)
        yield b""

    runs: Mapping[str, Callable[[], bytes]] = {
        "memory": lambda: store.run("index-pack", "--stdin", stdin=[huge], limits=Limits(memory=40 << 20)),
        "the size of a file": lambda: store.run("index-pack", "--stdin", stdin=[noise], limits=Limits(file=100_000)),
        "output": lambda: store.run("cat-file", "--batch-all-objects", "--batch", limits=Limits(output=1000)),
        "time": lambda: store.run("cat-file", "--batch", stdin=slow(), limits=Limits(seconds=0.1)),
    }
    survived = [name for name, run in runs.items() if not _fails(run)]
    return f"a run outlived its limit on {', '.join(survived)}" if survived else ""


def processor_time_is_bounded(scratch: Path) -> str:
    """A run that only counts is ended after its second."""
    store = _store(scratch / "processor")
    level = tree(*(("100644", f"f{n}".encode(), _FILE.oid) for n in range(10)))
    bomb = [_FILE, level]
    for _ in range(9):  # ten to the tenth paths, which git would walk one by one
        level = tree(*(("40000", f"d{n}".encode(), level.oid) for n in range(10)))
        bomb.append(level)
    nothing = tree()
    _import(store, pack([*bomb, nothing]))
    limits = Limits(cpu=1, seconds=60.0)
    ended = _fails(lambda: store.run("diff-tree", "-r", "--no-ext-diff", nothing.oid, level.oid, limits=limits))
    return "" if ended else "a run outlived its limit on processor time"


def _store(path: Path) -> GitDir:
    store = GitDir(path)
    store.create()
    return store


def _import(store: GitDir, sample: bytes, *options: str) -> str:
    try:
        store.run("index-pack", "--strict", "--stdin", *options, stdin=[sample])
    except GitError as error:
        return str(error)
    return ""


def _commit(store: GitDir, name: bytes) -> str:
    made = tree(("100644", name, _FILE.oid))
    _import(store, pack([made, _FILE]))
    return store.commit_tree(made.oid, (), "m\n", _WHO, 1)


def _fails(run: Callable[[], bytes]) -> bool:
    try:
        run()
    except GitError:
        return True
    return False


CLAIMS: Mapping[str, Experiment] = {
    "strict import refuses what is hostile": strict_refuses_the_list,
    "an import is bounded in size": size_is_bounded,
    "a quarantine is unseen from outside": quarantine_is_unseen,
    "the same input gives the same commit": commits_are_repeatable,
    "a push is create-only, or from where it is expected": pushes_are_guarded,
    "no transport is open unasked": transports_are_closed,
    "nothing of a repository's own runs": nothing_of_a_repository_runs,
    "replace refs and grafts are ignored": replacements_are_ignored,
    "a name is never an option": names_are_no_options,
    "memory, file, output and time limits kill": limits_kill,
    "the limit on processor time kills": processor_time_is_bounded,
}
