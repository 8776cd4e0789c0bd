"""The canary: a fake credential that lies where an intruder would look, and what happens when it is seen again."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from broker.config.base import Settings


class Canary(Settings):
    """Off unless a file is named. `swarm-broker canary plant` makes it."""

    file: Path = Field(description="where it lies, such as .git-credentials in the home of the daemon's user")
    stop: bool = Field(default=True, description="whether grants and deliveries stop everywhere once it is seen")
    command: tuple[str, ...] = Field(
        default=(), description="a command that is run then, with where it was seen as its last argument; no shell"
    )

    @field_validator("file")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        if not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @field_validator("command")
    @classmethod
    def _no_search(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not value[0].startswith("/"):
            raise ValueError("must begin with the absolute path of a program")
        return value
