"""What each tool takes, judged strictly.

The docstrings and descriptions are what a model reads, in every prompt: short, and nothing but what it needs.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

_LONG = 4096
Path = Annotated[str, Field(min_length=1, max_length=_LONG, description="path relative to the repository's root")]
Folder = Annotated[str, Field(max_length=_LONG, description="folder or file to look in; everywhere if absent")]


def _as_text(value: Any) -> Any:
    """A list as one item a line, as models give it who know another agent's list."""
    if not isinstance(value, list):
        return value
    return "\n".join(item if isinstance(item, str) else json.dumps(item) for item in value)


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
    """Run a shell command, without network, and get its output. Folder and exported variables stay for the next call;
    it begins at the repository's root. It cannot ask back."""

    model_config = ConfigDict(json_schema_extra={"required": ["command"]})

    command: str = Field(default="", max_length=50_000, description="a command line or a script")
    timeout: float | None = Field(default=None, gt=0, description="seconds")
    restart: bool = Field(default=False, description="first go back to the root and the first variables")

    @model_validator(mode="after")
    def _something_to_do(self) -> Shell:
        if not self.command.strip() and not self.restart:
            raise ValueError("command is empty")
        return self


class View(Arguments):
    """Show a file with line numbers, or a part of it, or list a folder."""

    path: Path
    first: int | None = Field(default=None, ge=1, description="first line to show")
    last: int | None = Field(default=None, ge=1, description="last line to show")

    @model_validator(mode="after")
    def _in_order(self) -> View:
        if self.first and self.last and self.last < self.first:
            raise ValueError("last comes before first")
        return self


class Edit(Arguments):
    """Replace one place of a file. The search text must match exactly one place; copy whole lines, without numbers."""

    path: Path
    search: str = Field(description="the present text, as many lines as make it unique")
    replace: str = Field(description="the text to put in its place; empty removes it")
    all: bool = Field(default=False, description="replace every place that holds exactly this text")


class EditLines(Arguments):
    """Replace the lines first to last of a file, by the numbers that view shows. To insert before line N, give first N
    and last N-1."""

    path: Path
    first: int = Field(ge=1, description="first line to replace")
    last: int | None = Field(default=None, ge=0, description="last line to replace; first if absent")
    replace: str = Field(description="the new lines, without numbers; empty removes them")
    expect: str | None = Field(default=None, description="what these lines hold now; refused if they do not")

    @model_validator(mode="after")
    def _in_order(self) -> EditLines:
        if self.last is not None and self.last < self.first - 1:
            raise ValueError("last comes before first")
        return self


class Write(Arguments):
    """Write a whole file, new or in place of what is there. Give all of it: nothing is filled in."""

    path: Path
    content: str


class ApplyPatch(Arguments):
    """Apply a patch to several files at once: a unified diff, or the form between *** Begin Patch and *** End Patch.
    All of it or nothing is applied."""

    patch: str = Field(min_length=1, max_length=2_000_000)


class Glob(Arguments):
    """Find files by name, such as src/**/*.py. A pattern without a slash is looked for in all folders."""

    pattern: str = Field(min_length=1, max_length=1000)
    path: Folder | None = None


class Grep(Arguments):
    """Search the files' lines with a regular expression. What git ignores and binary files are left out."""

    pattern: str = Field(min_length=1, max_length=2000, description="a regular expression")
    path: Folder | None = None
    glob: str | None = Field(default=None, min_length=1, max_length=1000, description="only files like *.py")
    context: int = Field(default=0, ge=0, le=20, description="lines to show around each match")
    ignore_case: bool = False


class RepoMap(Arguments):
    """Show the repository's most important files with their classes and functions."""

    path: Folder | None = None
    about: str = Field(default="", max_length=2000, description="names or words that matter most now")


class RunTests(Arguments):
    """Run the project's tests and see which fail, why, and what changed since the last run."""

    only: str | None = Field(
        default=None, min_length=1, max_length=1000, description="a test file, test id or word in test names"
    )


class TaskList(Arguments):
    """Keep your own list of steps. Give the whole list each time."""

    items: Annotated[str, BeforeValidator(_as_text)] = Field(
        max_length=20_000, description="one step a line: [ ] to do, [>] doing, [x] done"
    )


class Ask(Arguments):
    """Ask a person, only where nothing but a person's answer helps. This stops the work until they answer."""

    question: str = Field(min_length=1, max_length=4000, description="what you need to know, and what you found out")


class Finish(Arguments):
    """Say that the task is done, once the tests pass. This ends the work."""

    title: str = Field(min_length=1, max_length=200, description="one line, as the title of a pull request")
    summary: str = Field(default="", max_length=10_000, description="what was changed and why")
