"""A bare repository of a test's forge: what arrived at it is logged by a pre-receive hook, which can refuse too."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PEOPLE = {
    f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in (("NAME", "a"), ("EMAIL", "a@b"))
}
_ROLES = ("author", "committer")
PROTECTED_BRANCH = (
    "error: GH013: Repository rule violations found for refs/heads/{branch}.\n"
    "Review all repository rules at http://127.0.0.1/rules\n"
    "- Changes must be made through a pull request.\n"
)

_HOOK = """#!/bin/sh
# One line of JSON a push, with all its refs; written although the push is refused.
refs=
while read -r old new ref; do
  refs="$refs${refs:+,}{\\"ref\\":\\"$ref\\",\\"old\\":\\"$old\\",\\"new\\":\\"$new\\"}"
done
echo "{\\"options\\":${GIT_PUSH_OPTION_COUNT:-0},\\"user\\":\\"$REMOTE_USER\\",\\"refs\\":[$refs]}" >>"$GIT_DIR/arrived"
[ ! -s "$GIT_DIR/refuse" ] || { cat "$GIT_DIR/refuse" >&2; exit 1; }
"""


@cache
def _common(path: Path, one: str, other: str) -> str:
    return Bare(path).git("merge-base", one, other)


@dataclass(frozen=True)
class Update:
    """One ref of a push, as the server saw it; all zeros stand for none."""

    ref: str
    old: str
    new: str


@dataclass(frozen=True)
class Push:
    """One push, as the server saw it."""

    user: str
    options: int
    updates: tuple[Update, ...]


@dataclass(frozen=True)
class Bare:
    """One bare repository that a git server shows."""

    path: Path

    @classmethod
    def create(cls, path: Path, object_format: str = "sha1") -> Bare:
        """An empty one that takes pushes, push options too, so that a test can see that none were sent."""
        path.mkdir(parents=True)
        bare = cls(path)
        bare.git("init", "-q", "--bare", "-b", "main", f"--object-format={object_format}", "--template=")
        for key, value in (
            ("http.receivepack", "true"),
            ("receive.advertisePushOptions", "true"),
            ("receive.autogc", "false"),
        ):
            bare.git("config", key, value)
        (path / "hooks").mkdir()
        (path / "hooks" / "pre-receive").write_text(_HOOK)
        (path / "hooks" / "pre-receive").chmod(0o755)
        return bare

    def git(self, *args: str, stdin: str = "") -> str:
        """Git on the repository itself, as its owner."""
        env = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.path), "GIT_CONFIG_GLOBAL": os.devnull, **PEOPLE}
        done = subprocess.run(["git", *args], input=stdin, env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, files: dict[str, str], *parents: str, branch: str | None = None, message: str = "change") -> str:
        """A commit of exactly these files, made on the server; a branch is put on it. No git is started for it."""
        entries = sorted((name.encode(), self._write("blob", text.encode())) for name, text in files.items())
        tree = self._write("tree", b"".join(b"100644 " + name + b"\0" + bytes.fromhex(oid) for name, oid in entries))
        lines = [f"tree {tree}", *(f"parent {one}" for one in parents), *(f"{who} a <a@b> 1 +0000" for who in _ROLES)]
        commit = self._write("commit", ("\n".join(lines) + f"\n\n{message}\n").encode())
        if branch:
            self.set(branch, commit)
        return commit

    def _write(self, kind: str, data: bytes) -> str:
        raw = f"{kind} {len(data)}\0".encode() + data
        oid = hashlib.new("sha256" if "sha256" in (self.path / "config").read_text() else "sha1", raw).hexdigest()
        file = self.path / "objects" / oid[:2] / oid[2:]
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(zlib.compress(raw, 1))
        return oid

    def set(self, branch: str, commit: str) -> None:
        """Puts a branch on a commit, whatever it was on before."""
        ref = self.path / "refs" / "heads" / branch
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(f"{commit}\n")

    def take(self, other: Path) -> None:
        """All objects of another bare repository."""
        shutil.copytree(other / "objects", self.path / "objects", dirs_exist_ok=True)

    def common(self, one: str, other: str) -> str:
        """The merge base of two commits."""
        return one if one == other else _common(self.path, one, other)

    def packed(self, tree: str, base: str) -> bytes:
        """A pack of what a tree has beyond a commit."""
        env = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.path)}
        command = ["git", "pack-objects", "-q", "--stdout", "--revs"]
        wanted = f"{tree}\n^{base}\n".encode()
        return subprocess.run(command, input=wanted, env=env, capture_output=True, check=True).stdout

    def refs(self) -> dict[str, str]:
        """Every ref and what it is on."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)

    def head(self, branch: str) -> str | None:
        """The commit of a branch; these repositories are never packed."""
        ref = self.path / "refs" / "heads" / branch
        return ref.read_text().strip() if branch and ref.is_file() else None

    def arrived(self) -> list[Push]:
        """Every push that reached the hook, in order, the refused ones too."""
        log = self.path / "arrived"
        told = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [Push(one["user"], one["options"], tuple(Update(**ref) for ref in one["refs"])) for one in told]

    def refuse(self, words: str = "") -> None:
        """Every push from now on is refused with these words, as by a protected branch; none are refused again."""
        (self.path / "refuse").write_text(words)
