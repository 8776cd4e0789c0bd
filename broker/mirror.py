"""The broker's own copy of each granted base and of its own branches, and the packs that it serves from there."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO

from broker.errors import AbsentError, GitError
from broker.forge.base import Forge
from broker.gitdir import GitDir, Limits

_LARGE = Limits(seconds=600.0, cpu=600, memory=8 << 30)
_CHUNK = 1 << 20
_PACKS = 20  # that may pile up before they become one
_GRACE = "2.days.ago"  # what nothing names any more stays that long: whoever reads it just now may finish


class Mirror:
    """One bare repository per name. What was granted stays there, whatever happens to the branch on the forge.

    Objects of several branches lie in it. A pack holds what one commit reaches and nothing else, so that no other
    branch's objects are ever served with it.
    """

    def __init__(self, path: Path, forge: Forge) -> None:
        self.git = GitDir(path)
        self._forge = forge
        self._lock = threading.Lock()  # two fetches at once would trip over each other's ref locks

    def refresh(self, base: str) -> str:
        """Brings the base branch's present commit in and returns it. Raises AbsentError if there is no such branch."""
        with self._lock:
            commit = self._fetched(base, "name a branch that exists")
            self.git.run("update-ref", f"refs/bases/{commit}", commit)
        return commit

    def head(self, branch: str) -> str:
        """The same for a branch of the broker's own, whoever pushed to it last. Raises AbsentError."""
        with self._lock:
            return self._fetched(branch, "nothing of this task was delivered yet, or its branch was removed")

    def _fetched(self, branch: str, mend: str) -> str:
        if not self.git.exists:
            self.git.create(self._forge.object_format())
        commit = self._forge.fetch(branch, self.git)
        if commit is None:
            raise AbsentError(f"there is no branch {branch!r} on the forge", mend)
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

    def prune(self, commits: Collection[str], over: Collection[str]) -> int:
        """Lets go of bases that are not among ``commits`` and of branches that are ``over``; how many it were.

        Objects that nothing reaches any more go two days later, all others are packed anew. Readers at work are not
        disturbed: git looks again for an object whose pack is gone. The bases' own branches stay as last fetched, so
        that the next fetch is small.
        """
        with self._lock:
            if not (self.git.path / "HEAD").exists():
                return 0
            names = self.git.text("for-each-ref", "--format=%(refname)", "refs/bases/", "refs/heads/").split()
            gone = [name for name in names if _is_over(name, commits, over)]
            if gone:
                self.git.run("update-ref", "--stdin", stdin=["".join(f"delete {name}\n" for name in gone).encode()])
            if gone or len(list(self.git.path.glob("objects/pack/*.pack"))) > _PACKS:
                expire = f"--unpack-unreachable={_GRACE}"
                self.git.run("repack", "--quiet", "-A", "-d", "-n", expire, limits=_LARGE)
                self.git.run("prune", f"--expire={_GRACE}", limits=_LARGE)
        return len(gone)

    def _is_ancestor(self, one: str, commit: str) -> bool:
        return self.git.succeeds("merge-base", "--is-ancestor", "--end-of-options", one, commit)


def _is_over(ref: str, commits: Collection[str], over: Collection[str]) -> bool:
    kind, _, name = ref.removeprefix("refs/").partition("/")
    return name not in commits if kind == "bases" else name in over
