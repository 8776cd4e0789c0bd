"""The broker's own copy of each granted base, and the packs that it serves from there."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from broker.errors import AbsentError, GitError
from broker.forge.base import Forge
from broker.gitdir import GitDir, Limits

_LARGE = Limits(seconds=600.0, cpu=600, memory=8 << 30)
_CHUNK = 1 << 20


class Mirror:
    """One bare repository per name. What was granted stays there, whatever happens to the branch on the forge."""

    def __init__(self, path: Path, forge: Forge) -> None:
        self.git = GitDir(path)
        self._forge = forge
        self._lock = threading.Lock()  # two fetches at once would trip over each other's ref locks

    def refresh(self, base: str) -> str:
        """Brings the base branch's present commit in and returns it. Raises AbsentError if there is no such branch."""
        with self._lock:
            self.git.create(self._forge.object_format())
            commit = self._forge.fetch(base, self.git)
            if commit is None:
                raise AbsentError(f"there is no branch {base!r} on the forge", "name a branch that exists")
            self.git.run("update-ref", f"refs/bases/{commit}", commit)
        return commit

    def pack(self, commit: str, have: Sequence[str]) -> IO[bytes]:
        """A pack of all that the commit reaches, less what its ancestors in ``have`` reach; rewound, the caller closes.

        Ids in ``have`` that are not ancestors of the commit are ignored: they would tell what else the mirror holds.
        """
        known = [one for one in have if self.git.commit_of(one) == one and self._is_ancestor(one, commit)]
        wanted = "".join([f"{commit}\n", *(f"^{one}\n" for one in known)]).encode()
        spool = tempfile.TemporaryFile(dir=self.git.path)  # noqa: SIM115 - handed to the caller
        try:
            for chunk in self.git.stream(
                "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset", stdin=[wanted], limits=_LARGE
            ):
                spool.write(chunk)
        except GitError:
            spool.close()
            raise
        spool.seek(0)
        return spool

    def _is_ancestor(self, one: str, commit: str) -> bool:
        return self.git.succeeds("merge-base", "--is-ancestor", "--end-of-options", one, commit)
