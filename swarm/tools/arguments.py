"""What each tool takes, judged strictly.

The docstrings and descriptions are what a model reads, in every prompt: short, and nothing but what it needs.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

_LONG = 4096
Path = Annotated[str, Field(min_length=1, max_length=_LONG, description="relative to the repository's root")]
Folder = Annotated[str, Field(max_length=_LONG, description="folder or file to look in")]


def _as_text(value: Any) -> Any:
    """A list as one item a line, as models give it who know another agent's list."""
    if not isinstance(value, list):
        return value
    return "\n".join(item if isinstance(item, str) else json.dumps(item) for item in value)


def _positive(value: Any) -> Any:
    """No bound where a model says 0 or less for it."""
    try:
        return value if value is None or float(value) > 0 else None
    except (TypeError, ValueError):
        return value


class Arguments(BaseModel):
    """Base of all arguments: unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("path", "command", "pattern", "glob", "only", mode="after", check_fields=False)
    @classmethod
    def _no_nul(cls, value: str | None) -> str | None:
        if value is not None and "\0" in value:
            raise ValueError("a NUL character cannot be in it")
        return value


class Shell(Arguments):
    """Run a shell command, without network. Folder and exported variables stay for the next call."""

    model_config = ConfigDict(json_schema_extra={"required": ["command"]})

    command: str = Field(default="", max_length=50_000, description="command line or script")
    timeout: Annotated[float | None, BeforeValidator(_positive)] = Field(default=None, description="seconds")
    restart: bool = Field(default=False, description="begin anew at the root")

    @model_validator(mode="after")
    def _something_to_do(self) -> Shell:
        if not self.command.strip() and not self.restart:
            raise ValueError("command is empty")
        return self


class View(Arguments):
    """Show a file with line numbers, or a part of it, or list a folder."""

    path: Path
    first: int | None = Field(default=None, ge=1, description="first line")
    last: int | None = Field(default=None, ge=1, description="last line")

    @model_validator(mode="after")
    def _in_order(self) -> View:
        if self.first and self.last and self.last < self.first:
            raise ValueError("last comes before first")
        return self


class Edit(Arguments):
    """Replace one place of a file. The search text must be there exactly once; copy whole lines, without numbers."""

    path: Path
    search: str = Field(description="the present text")
    replace: str = Field(description="the text to put in its place")
    all: bool = Field(default=False, description="every place that holds exactly this")


class EditLines(Arguments):
    """Replace the lines first to last, by the numbers that view shows. To insert before line N: first N, last N-1."""

    path: Path
    first: int = Field(ge=1)
    last: int | None = Field(default=None, ge=0, description="first if absent")
    replace: str = Field(description="the new lines, without numbers")
    expect: str | None = Field(default=None, description="what these lines hold now")

    @model_validator(mode="after")
    def _in_order(self) -> EditLines:
        if self.last is not None and self.last < self.first - 1:
            raise ValueError("last comes before first")
        return self


class Write(Arguments):
    """Write a whole file, new or in place of the old. Give all of it: nothing is filled in."""

    path: Path
    content: str


class ApplyPatch(Arguments):
    """Change several files by a unified diff or *** Begin Patch: all of it or nothing."""

    patch: str = Field(min_length=1, max_length=2_000_000)


class Glob(Arguments):
    """Find files by name, such as src/**/*.py or *.py."""

    pattern: str = Field(min_length=1, max_length=1000)
    path: Folder | None = None


class Grep(Arguments):
    """Search the files' lines with a regular expression."""

    pattern: str = Field(min_length=1, max_length=2000)
    path: Folder | None = None
    glob: str | None = Field(default=None, min_length=1, max_length=1000, description="only files like *.py")
    context: int = Field(default=0, ge=0, le=20, description="lines around each match")
    ignore_case: bool = False


class RepoMap(Arguments):
    """Show the most important files with their classes and functions."""

    path: Folder | None = None
    about: str = Field(default="", max_length=2000, description="names that matter now")


class RunTests(Arguments):
    """Run the project's tests: which fail, why, and what changed since the last run."""

    only: str | None = Field(
        default=None, min_length=1, max_length=1000, description="test file, test id or word in test names"
    )


class TaskList(Arguments):
    """Keep your list of steps; give all of it each time."""

    items: Annotated[str, BeforeValidator(_as_text)] = Field(
        max_length=20_000, description="one a line: [ ] to do, [>] doing, [x] done"
    )


class Ask(Arguments):
    """Ask a person, where nothing else helps. This stops the work until they answer."""

    question: str = Field(min_length=1, max_length=4000)


class Finish(Arguments):
    """Say that the task is done, once the tests pass. This ends the work."""

    title: str = Field(min_length=1, max_length=200, description="one line")
    summary: str = Field(default="", max_length=10_000, description="what was changed and why")
