"""Finds what `verify` checks: the statement, the commit, the head, the key; from the broker or from files."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from broker.cli.exported import read
from broker.cli.screen import WrongUseError
from broker.client import Client, TurnedDownError
from broker.errors import AbsentError, GitError
from broker.gitdir import GitDir
from broker.provenance.chain import MAX_COMMIT, Shown, below, object_id, subject

_SMALL = 4096
_MOST_ROUNDS = 30
_SHORT = re.compile(r"([a-z0-9][a-z0-9._-]{0,63})#(\d{1,12})")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class Files:
    """What is checked without a broker. ``git`` is a clone or a bare repository that holds the commit.

    A pull request that was updated has a statement for each of its commits.
    """

    statements: tuple[Path, ...]
    key: Path
    commit: str
    git: Path


def from_broker(client: Client, pull: str, key: Path | None) -> Iterator[Shown]:
    """What the broker and, through it, the forge show now of NAME#NUMBER or of a pull request's address.

    The newest commit first, then each earlier one of the broker's own.
    """
    repository, number = _named(client, pull)
    pem = _pem(key) if key else client.key().pem
    raw = client.commit(repository, number)
    head = object_id(raw, "commit", like=raw.partition(b"\n")[0].decode("latin-1").removeprefix("tree "))
    shown = Shown(client.provenance(repository, number), pem, raw, head, f"{repository}#{number}")
    yield shown
    for _ in range(_MOST_ROUNDS):
        commit = below(shown)
        if commit is None:
            return
        asked = repository, number, commit
        shown = Shown(
            _or_nothing(client.provenance, *asked), pem, _or_nothing(client.commit, *asked), commit, shown.asked
        )
        yield shown


def from_files(files: Files, asked: str) -> Iterator[Shown]:
    """What the files show, in the same order. Raises AbsentError if the commit cannot be read."""
    if not _COMMIT.fullmatch(files.commit):
        raise WrongUseError(f"{files.commit!r} is not a whole commit id", "the page of the pull request names it")
    pem, kept = _pem(files.key), [read(path, MAX_COMMIT) for path in files.statements]
    about = {subject(one, pem): one for one in kept}
    only = kept[0] if len(kept) == 1 else b""  # to be told what is wrong with it, whatever it is about
    shown = Shown(about.get(files.commit, only), pem, _raw_commit(files.git, files.commit), files.commit, asked)
    yield shown
    for _ in range(_MOST_ROUNDS):
        commit = below(shown)
        if commit is None:
            return
        shown = Shown(about.get(commit, b""), pem, _raw_commit(files.git, commit), commit, asked)
        yield shown


def _pem(key: Path) -> str:
    return read(key, MAX_COMMIT).decode(errors="replace")


def _or_nothing(ask: Callable[[str, int, str], bytes], repository: str, number: int, commit: str) -> bytes:
    try:
        return ask(repository, number, commit)
    except TurnedDownError as error:
        if error.code == "absent":
            return b""
        raise


def _raw_commit(folder: Path, commit: str) -> bytes:
    """Read through an empty repository of our own, so that nothing in the other one's settings has a say."""
    lent = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(_objects(folder))}
    with tempfile.TemporaryDirectory(prefix="swarm-broker-") as scratch:
        git = GitDir(Path(scratch) / "empty.git")
        try:
            git.create("sha256" if len(commit) == 64 else "sha1")
            return git.run("cat-file", "commit", commit, environment=lent)
        except GitError:
            told = f"the commit {commit} is not in {folder}"
            raise AbsentError(told, "fetch the pull request's branch first, and name the clone with --git") from None


def _objects(folder: Path) -> Path:
    """Where a bare repository, a clone or a further work tree of one keeps its objects."""
    git = folder / ".git"
    if git.is_file():
        git = folder / read(git, _SMALL).decode(errors="replace").removeprefix("gitdir:").strip()
    elif not git.is_dir():
        git = folder
    if (git / "commondir").is_file():
        git = git / read(git / "commondir", _SMALL).decode(errors="replace").strip()
    return (git / "objects").resolve()


def _named(client: Client, pull: str) -> tuple[str, int]:
    if found := _SHORT.fullmatch(pull):
        return found.group(1), int(found.group(2))
    wanted = _place(pull)
    if not wanted[0]:
        raise WrongUseError(f"{pull!r} names no pull request", "name it as REPOSITORY#NUMBER, or by its address")
    for repository in client.repositories().repositories:
        for one in client.pulls(repository.name).pulls:
            if _place(one.url) == wanted:
                return repository.name, one.number
    raise AbsentError(f"the broker opened no pull request {pull!r}", "name it as REPOSITORY#NUMBER, or by its address")


def _place(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    return parts.netloc.casefold(), parts.path.rstrip("/").casefold()
