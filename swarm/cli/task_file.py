"""A task written in a file: TOML between `+++` lines and then the instructions, or one plain `.toml` file."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from pydantic import Field, ValidationError

from swarm.config_text import Problem, problems
from swarm.errors import ConfigError
from swarm.types import STRATEGY, Frozen, Label

FENCE = "+++"
FORMAT = """A task file is Markdown with settings in TOML between two lines of +++, all of them optional:

    +++
    repository = "sample"
    test_command = "python3 -m pytest -q"
    paths = ["sample/clamp.py"]

    [budget]
    steps = 30
    +++
    The upper bound of `clamp` is wrong: clamp(11, 0, 10) should be 10.

A file whose name ends in .toml holds the instructions too, as: instructions = \"\"\"...\"\"\"
What the command line says goes before what the file says. Keys:
"""


class BudgetPart(Frozen):
    """What of the budget the file sets; the rest comes from the settings."""

    steps: int | None = Field(default=None, gt=0, description="turns of the agent")
    tokens: int | None = Field(default=None, gt=0, description="tokens read and written by the models")
    wall: float | None = Field(default=None, gt=0, description="seconds of wall clock")
    attempts: int | None = Field(default=None, gt=0, description="tries, the first one included")
    gpu_seconds: float | None = Field(default=None, gt=0, description="seconds on an engine, times its GPUs")
    money: float | None = Field(default=None, gt=0, description="what its calls cost by [prices]")
    idle: float | None = Field(default=None, gt=0, description="seconds without a model's answer or a tool's output")
    rounds: int | None = Field(default=None, ge=0, description="further tasks on its pull request, as after a review")


class TaskFile(Frozen):
    """What a task file may say."""

    instructions: str | None = Field(default=None, max_length=100_000, description="what to do, in plain words")
    repository: str | None = Field(default=None, description="the broker's name of the repository")
    title: str | None = Field(default=None, max_length=200, description="title of the pull request")
    base: str | None = Field(default=None, description="branch to aim at")
    test_command: str | None = Field(default=None, description="tells whether the work is good")
    strategy: str | None = Field(
        default=None,
        pattern=STRATEGY,
        description="how to work: the name of a strategy (swarm strategies), or cli:NAME for an agent",
    )
    tier: str | None = Field(default=None, description="tier of models to start with")
    paths: tuple[str, ...] = Field(default=(), description="where to look first, relative to the repository")
    changes_tests: bool = Field(
        default=False, description="it is to change what is tested: the base's own tests may fail where it changes them"
    )
    priority: int = Field(default=50, ge=0, le=100, description="larger is sooner; waiting makes up for less of it")
    needs: tuple[str, ...] = Field(
        default=(), max_length=50, description="ids of tasks to be delivered first, whose results it is told"
    )
    mutex: str | None = Field(
        default=None, min_length=1, max_length=200, description="no two tasks with the same word run at a time"
    )
    requires: tuple[Label, ...] = Field(
        default=(), max_length=20, description="labels that its host must have, as gpu or arch=aarch64"
    )
    expires: float | None = Field(default=None, gt=0, description="seconds after which it leaves the queue unclaimed")
    budget: BudgetPart = Field(default=BudgetPart(), description="what may be spent")


def parse(name: str, text: str) -> TaskFile:
    """Read a task file's text; ``name`` tells its kind and is named in errors. Raises ConfigError."""
    if name.endswith(".toml"):
        return _task(name, text, {})
    front, body, skipped = _split(name, text)
    # Blank lines in front keep the numbers of lines in errors those of the file.
    return _task(name, "\n" * skipped + front, {"instructions": body.strip()})


def bad_path(path: str) -> str | None:
    """Why a hint may not be a path inside a repository; None when it may."""
    if not path or not path.isprintable():
        return "holds control or other unprintable characters" if path else "is empty"
    if path.startswith(("/", "~")) or "\\" in path:
        return "must be relative to the repository's root, with / between folders"
    parts = path.split("/")
    if ".." in parts:
        return "leads out of the repository with .."
    return "points into .git" if parts[0].lower() == ".git" else None


def _split(name: str, text: str) -> tuple[str, str, int]:
    """Front matter, body, and how many lines the front matter is down."""
    lines = text.lstrip("\ufeff").splitlines()
    start = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not lines or lines[start].strip() != FENCE:
        return "", text, 0
    ends = (number for number, line in enumerate(lines) if number > start and line.strip() == FENCE)
    end = next(ends, None)
    if end is None:
        raise ConfigError(f"{name}: line {start + 1}: {FENCE} opens settings that no second {FENCE} closes", _MEND)
    return "\n".join(lines[start + 1 : end]), "\n".join(lines[end + 1 :]), start + 1


_MEND = "see: swarm help task-files"


def _task(name: str, text: str, more: dict[str, Any]) -> TaskFile:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: is not TOML: {error}", _MEND) from None
    if more and "instructions" in raw:
        raise ConfigError(f"{name}: instructions stand below the second {FENCE}, not between the two", _MEND)
    try:
        return TaskFile.model_validate_json(json.dumps(raw | more, default=str), strict=True)
    except ValidationError as error:
        raise _refused(name, problems(error, TaskFile, text)) from None


def _refused(name: str, found: tuple[Problem, ...]) -> ConfigError:
    listed = "\n".join(f"  {problem}" for problem in found[:12])
    return ConfigError(f"{name}: is no usable task file\n{listed}", _MEND)
