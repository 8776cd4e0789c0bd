"""Finds what `verify` checks: the statement, the commit, the head, the key; from the broker or from files."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from broker.cli.exported import read
from broker.client import Client
from broker.errors import AbsentError, GitError, ProvenanceError
from broker.gitdir import GitDir
from broker.provenance.chain import MAX_COMMIT, Shown, object_id

_SMALL = 4096
_SHORT = re.compile(r"([a-z0-9][a-z0-9._-]{0,63})#(\d{1,12})")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class Files:
    """What is checked without a broker. ``git`` is a clone or a bare repository that holds the commit."""

    statement: Path
    key: Path
    commit: str
    git: Path


def from_broker(client: Client, pull: str, key: Path | None) -> Shown:
    """What the broker and, through it, the forge show now of NAME#NUMBER or of a pull request's address."""
    repository, number = _named(client, pull)
    raw = client.commit(repository, number)
    envelope = client.provenance(repository, number)
    head = object_id(raw, "commit", like=raw.partition(b"\n")[0].decode("latin-1").removeprefix("tree "))
    pem = read(key, MAX_COMMIT).decode(errors="replace") if key else client.key().pem
    return Shown(envelope, pem, raw, head, f"{repository}#{number}")


def from_files(files: Files, asked: str) -> Shown:
    """What the files show. Raises ProvenanceError if the commit cannot be read."""
    if not _COMMIT.fullmatch(files.commit):
        raise ProvenanceError(f"{files.commit!r} is not a whole commit id", "the page of the pull request names it")
    pem = read(files.key, MAX_COMMIT).decode(errors="replace")
    return Shown(read(files.statement, MAX_COMMIT), pem, _raw_commit(files), files.commit, asked)


def _raw_commit(files: Files) -> bytes:
    """Read through an empty repository of our own, so that nothing in the other one's settings has a say."""
    lent = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(_objects(files.git))}
    with tempfile.TemporaryDirectory(prefix="swarm-broker-") as scratch:
        git = GitDir(Path(scratch) / "empty.git")
        try:
            git.create("sha256" if len(files.commit) == 64 else "sha1")
            return git.run("cat-file", "commit", files.commit, environment=lent)
        except GitError:
            told = f"the commit {files.commit} is not in {files.git}"
            raise ProvenanceError(
                told, "fetch the pull request's branch first, and name the clone with --git"
            ) from None


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
    for repository in client.repositories().repositories:
        for one in client.pulls(repository.name).pulls:
            if wanted[0] and _place(one.url) == wanted:
                return repository.name, one.number
    raise AbsentError(f"the broker opened no pull request {pull!r}", "name it as REPOSITORY#NUMBER, or by its address")


def _place(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    return parts.netloc.casefold(), parts.path.rstrip("/").casefold()
