"""Where an untrusted pack meets git: a fresh object store per proposal that sees the mirror but is seen by nobody."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.config.policy import Policy
from broker.errors import GitError
from broker.gitdir import STRICT, GitDir
from broker.judge.origins import foreign
from broker.judge.packing import room_for, survey
from broker.wire import Finding

# In git's words: a link to what is not there at all, or is there as something else.
_ELSEWHERE = re.compile(r"did not receive expected object|expected type \w+, found")
_MEND = "seal the tree again from the granted base, and propose a smaller change"


class Quarantine:
    """Makes one throwaway git directory for each proposal, under a folder that only the broker can enter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def sweep(self) -> None:
        """Removes what a killed broker left. Called at start, before any proposal is taken."""
        for left in self._folder.iterdir():
            shutil.rmtree(left)

    @contextmanager
    def open(self, mirror: GitDir, object_format: str) -> Iterator[GitDir]:
        """An empty store whose missing objects are looked up in ``mirror``; gone when the block ends."""
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="q-") as path:
            store = GitDir(Path(path) / "git")
            store.create(object_format)
            info = store.path / "objects" / "info"
            info.mkdir(exist_ok=True)
            (info / "alternates").write_text(f"{mirror.path / 'objects'}\n")
            yield store


def take(store: GitDir, pack: bytes, policy: Policy) -> tuple[Finding, ...]:
    """Imports a pack with git's strict checks under limits. Empty when it went in, otherwise why not.

    It is read ahead first, so that a bomb never meets git; commits and tags in it are refused, not dropped.
    """
    most = policy.max_pack_bytes
    if len(pack) > most:
        return (_fatal("pack-too-large", f"the pack has {len(pack)} bytes, {most} are allowed"),)
    if not pack:
        return ()  # every object is the base's own: the walk will say whether that is true
    if problem := survey(pack, room_for(policy), store.hash_bytes):
        return (problem,)
    try:
        store.run(
            "index-pack",
            "--strict",  # and no --fix-thin: a delta could copy from any object of the mirror, other branches' included
            "--stdin",
            f"--max-input-size={most}",
            stdin=[pack],
            limits=STRICT,
        )
    except GitError as error:
        if _ELSEWHERE.search(str(error)):
            return (foreign(),)
        return (_fatal("pack-rejected", str(error).replace(str(store.path), "the quarantine")[:1000]),)
    return ()


def _fatal(rule: str, message: str) -> Finding:
    return Finding(rule=rule, severity="fatal", message=message, mend=_MEND)
