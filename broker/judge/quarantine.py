"""Where an untrusted pack meets git: a fresh object store per proposal that sees the mirror but is seen by nobody."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.errors import GitError
from broker.gitdir import STRICT, GitDir
from broker.wire import Finding

# What the strict parser says about a pack, in the words of the rule that it breaks.
_MEND = "seal the tree again from the granted base"


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


def take(store: GitDir, pack: bytes, max_bytes: int) -> tuple[Finding, ...]:
    """Imports a pack with git's strict checks under limits. Empty when it went in, otherwise why not."""
    if len(pack) > max_bytes:
        message = f"the pack has {len(pack)} bytes, {max_bytes} are allowed"
        return (Finding(rule="pack-too-large", message=message, mend="propose a smaller change"),)
    if not pack:
        return ()  # every object is the base's own: the walk will say whether that is true
    try:
        store.run(
            "index-pack",
            "--strict",  # and no --fix-thin: a delta could copy from any object of the mirror, other branches' included
            "--stdin",
            f"--max-input-size={max_bytes}",
            stdin=[pack],
            limits=STRICT,
        )
    except GitError as error:
        said = str(error).replace(str(store.path), "the quarantine")
        return (Finding(rule="pack-rejected", message=said[:1000], mend=_MEND),)
    return ()
