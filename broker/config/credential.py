"""Where a secret lies. The settings name places and commands, never the secret itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from broker.config.base import Settings


class Source(Settings):
    """One place of a secret: exactly one of the keys."""

    file: Path | None = Field(
        default=None, description="file that holds it; mode 0600, the broker's user's; opened for each use and not kept"
    )
    keyring: str | None = Field(
        default=None, pattern=r"^[^/]+/[^/]+$", description='entry of the keyring, as "service/user"'
    )
    command: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="command that prints it; an absolute path and its arguments, no shell"
    )

    @field_validator("file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @field_validator("command")
    @classmethod
    def _no_search(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and not value[0].startswith("/"):
            raise ValueError("must begin with the absolute path of a program")
        return value

    @field_validator("command", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError('must be a list of words, such as ["/usr/bin/pass", "forge"]')  # noqa: TRY004 - pydantic turns no other into an answer
        return value

    @model_validator(mode="before")
    @classmethod
    def _a_place(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError('say where it lies, never what it is: { file = "/etc/swarm-broker/token" }')  # noqa: TRY004 - as above
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(place is not None for place in (self.file, self.keyring, self.command)) != 1:
            raise ValueError("needs exactly one of file, keyring, command")
        return self


class App(Settings):
    """A GitHub App: its key signs for a token per operation, of least scope, revoked afterwards."""

    id: str = Field(pattern=r"^[A-Za-z0-9.]{1,40}$", description="the App's id or client id")
    installation: int | None = Field(default=None, ge=1, description="its installation; asked of the forge if absent")
    key: Source = Field(description="the private key, PEM")


class Credential(Settings):
    """A token, or the App that tokens are minted by: exactly one."""

    token: Source | None = Field(default=None, description="a personal, project or bot token")
    app: App | None = Field(default=None, description="a GitHub App, instead of token")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.token is None) == (self.app is None):
            raise ValueError("needs exactly one of token, app")
        return self
