"""The tools as data: names, descriptions, arguments and their JSON schemas."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pool.types import ToolSpec

Path = Annotated[str, Field(min_length=1, max_length=4096, description="path relative to the repository's root")]


class Arguments(BaseModel):
    """Base of all arguments: unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("path", "command", mode="after", check_fields=False)
    @classmethod
    def _no_nul(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("a NUL character cannot be in it")
        return value


class Shell(Arguments):
    """Run a shell command at the repository's root, without network, and get its output. It cannot ask back."""

    command: str = Field(min_length=1, max_length=50_000, description="run through /bin/sh")
    timeout: float | None = Field(default=None, gt=0, description="seconds; the sandbox's own limit where absent")


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


class Write(Arguments):
    """Write a whole file, new or in place of what is there."""

    path: Path
    content: str


class RunTests(Arguments):
    """Run the project's tests and see how they end."""


class Finish(Arguments):
    """Say that the task is done, once the tests pass. This ends the work."""

    title: str = Field(min_length=1, max_length=200, description="one line, as the title of a pull request")
    summary: str = Field(default="", max_length=10_000, description="what was changed and why")


TOOLS: dict[str, type[Arguments]] = {
    "shell": Shell,
    "view": View,
    "edit": Edit,
    "write": Write,
    "run_tests": RunTests,
    "finish": Finish,
}


@cache
def specs(*, testable: bool) -> tuple[ToolSpec, ...]:
    """What is offered to the model; ``run_tests`` only where a test command is known."""
    return tuple(
        ToolSpec(name=name, description=" ".join((tool.__doc__ or "").split()), parameters=_schema(tool))
        for name, tool in TOOLS.items()
        if testable or name != "run_tests"
    )


def _schema(tool: type[Arguments]) -> dict[str, Any]:
    """A plain schema: without titles, and optional values without null, which some servers' grammars stumble over."""
    schema = tool.model_json_schema()
    properties = {}
    for name, field in schema.get("properties", {}).items():
        plain = {key: value for key, value in field.items() if key not in ("title", "default", "anyOf")}
        for option in field.get("anyOf", ()):
            if option.get("type") != "null":
                plain = {**option, **plain}
        properties[name] = plain
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }
