"""Finds what `verify` checks: the statement, the commit, the head, the key; from the broker or from files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from broker.cli.exported import read
from broker.client import Client
from broker.errors import AbsentError, GitError, ProvenanceError
from broker.gitdir import GitDir
from broker.provenance.chain import MAX_COMMIT, Shown, object_id

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
    head = object_id(raw, "commit", like="0" * (64 if b"\nparent " in raw and _is_long(raw) else 40))
    pem = read(key, MAX_COMMIT).decode(errors="replace") if key else client.key().pem
    return Shown(envelope, pem, raw, head, f"{repository}#{number}")


def from_files(files: Files, asked: str) -> Shown:
    """What the files show. Raises ProvenanceError if the commit cannot be read."""
    if not _COMMIT.fullmatch(files.commit):
        raise ProvenanceError(f"{files.commit!r} is not a whole commit id", "the page of the pull request names it")
    inner = files.git / ".git"
    try:
        raw = GitDir((inner if inner.exists() else files.git).resolve()).run("cat-file", "commit", files.commit)
    except GitError as error:
        raise ProvenanceError(f"the commit cannot be read: {error}", "fetch the pull request's branch first") from None
    pem = read(files.key, MAX_COMMIT).decode(errors="replace")
    return Shown(read(files.statement, MAX_COMMIT), pem, raw, files.commit, asked)


def _is_long(raw: bytes) -> bool:
    return len(raw.partition(b"\n")[0]) == len("tree ") + 64


def _named(client: Client, pull: str) -> tuple[str, int]:
    if found := _SHORT.fullmatch(pull):
        return found.group(1), int(found.group(2))
    wanted = _place(pull)
    for repository in client.repositories().repositories:
        for one in client.pulls(repository.name).pulls:
            if one.url and _place(one.url) == wanted:
                return repository.name, one.number
    raise AbsentError(f"the broker opened no pull request {pull!r}", "name it as REPOSITORY#NUMBER, or by its address")


def _place(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.netloc.casefold(), parts.path.rstrip("/").casefold()
