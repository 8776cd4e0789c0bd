"""Rows in the form of SWE-bench (Jimenez et al. 2023, arXiv:2310.06770): ``swe:FILE``, JSON or JSONL that the user has.

A row has instance_id, repo, base_commit, problem_statement, patch, test_patch, FAIL_TO_PASS, PASS_TO_PASS (lists, or
lists as JSON text) and version; environment_setup_commit and whatever else it has is passed over. test_patch is applied
when it is judged and never before; the checkout has no history past base_commit. SWE-bench keeps the test commands in
its harness: a row may bring its own as test_cmd, else the files of test_patch are run with pytest.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarm.errors import EvaluationError
from swarm.evaluation.case import Case, GitSource
from swarm.evaluation.sets.given import Given
from swarm.evaluation.sets.reading import folder, made, plain, refuse, rows, whole, words

NAME = "swe"
SECONDS = 1800.0
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_TOUCHED = re.compile(r"^\+\+\+ b/(.+?)\t?$", re.MULTILINE)
_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_LAZY_FETCH": "1",  # a clone without its blobs would ask the network
    "GIT_TERMINAL_PROMPT": "0",
    "PATH": "/usr/bin:/bin:/usr/local/bin",
}


class SweRows:
    """The rows of a file."""

    licence = "unknown"

    def __init__(self, path: Path, given: Given) -> None:
        self._path = whole(path)
        if not self._path.is_file():
            refuse(self._path, "is not there", "name a JSON or JSONL file of rows as SWE-bench has them")
        if given.repositories is None:
            mend = "name a folder of bare clones, as owner__name.git, with --repositories"
            raise EvaluationError(f"rows of {self._path} need their repositories", mend)
        self._repositories = folder(given.repositories, "git repositories, as owner__name.git")
        self._given = given
        self.name = f"{NAME}:{path}"
        self.origin = f"rows of {self._path}"

    def cases(self) -> Iterator[Case]:
        """The rows in their order. Raises EvaluationError."""
        for where, row in rows(self._path):
            yield self._case(where, row)

    def _case(self, where: str, row: dict[str, Any]) -> Case:
        name, repo, commit = (_text(row, key, where) for key in ("instance_id", "repo", "base_commit"))
        if not _REPO.match(repo) or not _COMMIT.match(commit):
            refuse(where, f"repo {repo!r} is no owner/name, or {commit!r} no whole commit", "mend the row")
        test_patch, version = _text(row, "test_patch", where), str(row.get("version") or "")
        touched = [plain(path, where) for path in _TOUCHED.findall(test_patch)]
        fails, passes = _names(row, "FAIL_TO_PASS", where), _names(row, "PASS_TO_PASS", where)
        command = row.get("test_cmd") or _pytest(touched)
        git, blocked = self._repository(repo, commit)
        return made(
            where,
            id=name,
            title=f"{repo}: {name}",
            statement=_text(row, "problem_statement", where),
            source=GitSource(git=git, commit=commit),
            image=self._given.image_of(name, repo=repo.replace("/", "__"), version=version),
            hidden={
                "patch": test_patch,
                "command": command,
                "env": {"PYTHONPATH": "src:."},  # before what the image has installed from another place
                "seconds": SECONDS,
                "fail_to_pass": fails,
                "pass_to_pass": passes,
            },
            solution={"patch": row["patch"]} if row.get("patch") else None,
            labels={"repo": repo, **({"version": version} if version else {})},
            blocked="; ".join(filter(None, (blocked, _unjudged(row, fails)))),
        )

    def _repository(self, repo: str, commit: str) -> tuple[Path, str]:
        """Where a repository lies, and why it cannot be used, empty where it can."""
        owner, name = repo.split("/")
        shapes = (
            f"{owner}__{name}.git",
            f"{owner}__{name}",
            f"{owner}/{name}.git",
            f"{owner}/{name}",
            f"{name}.git",
            name,
        )
        for shape in shapes:
            place = self._repositories / shape
            git = place / ".git" if (place / ".git").is_dir() else place
            if (git / "objects").is_dir():
                has = _has(git, commit)
                return git, "" if has else f"the repository {shape} has no commit {commit[:12]}; fetch it there"
        return self._repositories / shapes[0], f"no repository {repo} in {self._repositories}; clone it as {shapes[0]}"


def _has(git: Path, commit: str) -> bool:
    asked = ["git", f"--git-dir={git}", "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        return subprocess.run(asked, env=_GIT, capture_output=True, check=False, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        refuse(git, f"git did not tell within a minute whether it has the commit {commit[:12]}", "see to its disk")


def _pytest(touched: list[str]) -> str:
    tests = [path for path in touched if path.endswith(".py")]
    return f"python3 -m pytest -rA {words(tests)}" if tests else "false"


def _unjudged(row: dict[str, Any], fails: tuple[str, ...]) -> str:
    if row.get("test_cmd") or all("::" in name for name in fails):
        return ""
    return "its tests are none of pytest's, and the row brings no test_cmd"


def _names(row: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = row.get(key, [])
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        refuse(where, f"{key} is no list of names", "write it as a list, or as one in JSON text")
    return tuple(found)


def _text(row: dict[str, Any], key: str, where: str) -> str:
    found = row.get(key)
    if not isinstance(found, str) or not found.strip():
        refuse(where, f"has no {key}", f"a row needs {key} as text")
    return found
