"""One case of an evaluation: a repository, what is asked of it, and the hidden tests that tell whether it was done.

Pure data. What belongs to `hidden` and `solution` never enters the sandbox in which an agent works.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from sandbox.trees.names import above, git_among, normal
from swarm.types import AMOUNT, Frozen

COMMAND = "command"  # the one test of a command that does not tell its tests apart, as `checks.run_tests` names it
LONGEST_NAME = 255  # bytes of one part of a path, which is what file systems take


def _plain(path: str) -> str:
    raw = path.encode("utf-8", "surrogateescape")
    if normal(raw) != raw or git_among(raw.split(b"/")) is not None:
        raise ValueError(f"{path!r} is no plain path relative to the workspace")
    if max(map(len, raw.split(b"/"))) > LONGEST_NAME:
        raise ValueError(f"{path[:40]!r}... has a name of over {LONGEST_NAME} bytes in it, which no file system takes")
    return path


def _text(text: str) -> str:
    """What programs take as an argument and JSON as a text."""
    if "\0" in text:
        raise ValueError("it holds a NUL character, which no program can be given")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("it holds half of a character, which is no text")
    return text


def _variable(name: str) -> str:
    if not name or "=" in name:
        raise ValueError(f"{name!r} is no name of an environment variable")
    return name


_TEXT = AfterValidator(_text)
Text = Annotated[str, _TEXT]
Filled = Annotated[str, Field(min_length=1), _TEXT]
Variable = Annotated[Text, AfterValidator(_variable)]


class File(Frozen):
    """One file. ``path`` is relative to the workspace, with ``/`` between its parts."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    path: str
    content: bytes
    executable: bool = False

    _path = field_validator("path")(_plain)


def _side_by_side(files: tuple[File, ...]) -> tuple[File, ...]:
    """Refuses two files of one path, and one that would lie below another as if that were a folder."""
    known: set[bytes] = set()
    for file in files:
        path = file.path.encode("utf-8", "surrogateescape")
        if path in known:
            raise ValueError(f"{file.path!r} is there twice")
        known.add(path)
    for path in known:
        if (blocked := next((each for each in above(path) if each in known), None)) is not None:
            shown = [each.decode("utf-8", "backslashreplace") for each in (path, blocked)]
            raise ValueError(f"{shown[0]!r} cannot lie below {shown[1]!r}, which is a file")
    return files


Files = Annotated[tuple[File, ...], AfterValidator(_side_by_side)]


class GitSource(Frozen):
    """A commit of a git directory on this machine (a bare one, or the ``.git`` of a clone). Its history stays there."""

    git: Path
    commit: str = Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")


class FolderSource(Frozen):
    """A folder on this machine: what its checkout tracks, or all of a plain one; any ``.git`` stays out."""

    folder: Path


Name = Annotated[str, Field(min_length=1, max_length=2000), _TEXT]


class Hidden(Frozen):
    """The tests that judge, put into a fresh sandbox beside the sealed tree, over whatever lies at their paths.

    ``fail_to_pass`` and ``pass_to_pass`` are names as `swarm.checks.run_tests` tells them: the ids of pytest's JUnit
    report (``tests/test_a.py::test_b``), those of ``unittest -v``, or "command" for the whole. Where a set knows none,
    they are found by running base and reference solution; where there is no solution either, the command's exit code
    decides. ``paths``, where given, are the only paths of the agent's work that count: everything else is the base's
    (exact, or a folder with a final ``/``).
    """

    files: Files = ()
    patch: Text = Field(default="", description="a unified diff on the base, applied with git apply before the files")
    removed: tuple[str, ...] = Field(default=(), description="paths that are taken away first")
    command: Filled = Field(description="run through /bin/sh in the workspace; exit code 0 is good")
    env: dict[Variable, Text] = Field(default_factory=dict)
    seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False, description="how long one run may take")
    fail_to_pass: tuple[Name, ...] = ()
    pass_to_pass: tuple[Name, ...] = ()
    paths: tuple[str, ...] = ()

    @field_validator("removed", "paths")
    @classmethod
    def _all_plain(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            _plain(path.removesuffix("/"))
        return paths


class Solution(Frozen):
    """A reference solution, as one of: whole new files, a unified diff on the base, or a shell script."""

    files: Files = ()
    patch: Text = ""
    script: Text = ""

    @model_validator(mode="after")
    def _one_of_them(self) -> Solution:
        if sum(map(bool, (self.files, self.patch, self.script))) != 1:
            raise ValueError("a solution is one of files, patch and script")
        return self


class Allowance(Frozen):
    """What one try at a case may spend; None leaves it to the run's settings. ``wall`` is in seconds."""

    steps: int | None = Field(default=None, gt=0, le=AMOUNT)
    tokens: int | None = Field(default=None, gt=0, le=AMOUNT)
    wall: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Case(Frozen):
    """One case. ``id`` is unique in its set and may hold anything printable; nothing is ever named by it unescaped.

    The repository is ``files``, or ``source``. ``test_command`` is what the agent may run, None where it is told of
    none. ``image`` and ``setup`` are as in [repositories.NAME] of swarm.toml. ``blocked`` says why it cannot be run
    or judged here (no image was given for it, its tests need the network): it is told as such, and never as failed.
    """

    id: str = Field(min_length=1, max_length=200)
    statement: Annotated[str, Field(min_length=1, max_length=100_000), _TEXT]
    title: Annotated[str, Field(max_length=200), _TEXT] = ""
    files: Files = ()
    source: GitSource | FolderSource | None = None
    hidden: Hidden
    test_command: Text | None = None
    image: Filled | None = None
    setup: tuple[Text, ...] = ()
    setup_network: Literal["packages", "none"] = "packages"
    solution: Solution | None = None
    allowance: Allowance = Allowance()
    look_first: tuple[Text, ...] = Field(default=(), description="paths that the agent is told to look at first")
    labels: dict[Text, Text] = Field(default_factory=dict, description="facts to group by, as the kind of bug")
    blocked: Text = ""

    @property
    def heading(self) -> str:
        """Its title, or the first line of its statement."""
        return self.title or self.statement.strip().partition("\n")[0][:200]

    @field_validator("id")
    @classmethod
    def _printable(cls, text: str) -> str:
        if not text.isprintable() or text != text.strip():
            raise ValueError(f"{text!r} is no id: it holds what cannot be printed, or begins or ends with a space")
        return text

    @model_validator(mode="after")
    def _has_a_repository(self) -> Case:
        if bool(self.files) == bool(self.source):
            raise ValueError(f"case {self.id!r} needs either files or a source")
        return self

    @property
    def digest(self) -> str:
        """Names exactly this case, hidden tests and all: SHA-256 as hexadecimal digits. A source counts by its name."""
        try:
            told = self.model_dump_json()
        except PydanticSerializationError:  # a name of a file that is not UTF-8
            told = json.dumps(self.model_dump(mode="json"))
        return hashlib.sha256(told.encode()).hexdigest()


class CaseSet(Protocol):
    """A set of cases: where it comes from, under what licence, and its cases in an order that is always the same."""

    @property
    def name(self) -> str:
        """As a person writes it, and as reports name it."""

    @property
    def origin(self) -> str:
        """Where it comes from, in a line: a project, a package and its version, a folder of the user's."""

    @property
    def licence(self) -> str:
        """Of its content, as an SPDX expression; "unknown" for a user's own folder that does not say."""

    def cases(self) -> Iterable[Case]:
        """The cases, made as they are asked for. Raises EvaluationError naming the file, the reason and the mend."""
