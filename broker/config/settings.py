"""The settings: one broker.toml that only the broker's user can read. Policy lives here and nowhere else."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from broker.config.base import Bytes, Settings
from broker.config.canary import Canary
from broker.config.credential import Source
from broker.config.repository import Repository
from broker.wire import Name

_LONGEST_SOCKET = 107  # bytes: unix(7)


def _uid(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.isdecimal():
        return int(value)
    try:
        return pwd.getpwnam(value).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {value!r} on this machine") from None


class Roles(Settings):
    """Who may do what, by user name or number. The peer's uid is asked of the kernel on every connection."""

    person: tuple[int, ...] = Field(
        min_length=1, description="may grant capabilities, merge, read the log and what was refused"
    )
    coordinator: tuple[int, ...] = Field(min_length=1, description="may mirror, propose, explain and ask for a status")

    @field_validator("person", "coordinator", mode="before")
    @classmethod
    def _names_to_uids(cls, value: Any) -> Any:
        return tuple(_uid(entry) for entry in value) if isinstance(value, list | tuple) else value


class Identity(Settings):
    """Author and committer of every commit that the broker makes."""

    name: str = Field(default="Agent Swarm", pattern=r"^[^<>\n\x00]{1,100}$", description="name in the commit")
    email: str = Field(default="agent-swarm@localhost", pattern=r"^[^<>\s\x00]{1,200}$", description="its address")


class Webhook(Settings):
    """A listener that forges call. What they say is only a hint to look: the broker then asks the forge itself."""

    listen: str = Field(default="127.0.0.1:9911", pattern=r"^[^:/]+:\d{1,5}$", description="address and port")
    secret: Source = Field(description="the secret that the forge signs with")


class BrokerConfig(Settings):
    """One broker.toml."""

    socket: Path = Field(description="unix socket for the coordinator: mirror, propose, status and what follows")
    person_socket: Path | None = Field(
        default=None,
        description="unix socket for people: grant, approve, revoke, stop; person.sock beside the other if absent",
    )
    state: Path = Field(description="folder of the signing key, mirrors, outbox and log; the broker's user owns it")
    socket_group: str | None = Field(
        default=None, description="group that may connect; without one the uid alone counts"
    )
    person_group: str | None = Field(default=None, description="the same, for the socket for people")
    enabled: bool = Field(default=True, description="false stops grants and deliveries in every repository")
    roles: Roles = Field(description="who may do what")
    identity: Identity = Field(default=Identity(), description="author of the commits")
    repositories: dict[Name, Repository] = Field(min_length=1, description="repositories by the name used in tasks")
    max_body_bytes: Bytes = Field(
        default=64 * 1024 * 1024, description="largest proposal that is read at all; larger ones get a 413"
    )
    outbox_entries: int = Field(default=1000, ge=1, description="proposals kept; when full, new ones are turned away")
    outbox_bytes: int = Field(default=1 << 30, ge=1, description="their size together")
    webhook: Webhook | None = Field(
        default=None, description="where the forge tells at once what changed; else polling"
    )
    canary: Canary | None = Field(
        default=None, description="a fake credential that gives an intruder away; none is planted if absent"
    )
    drain_seconds: float = Field(default=30.0, ge=0, description="time to finish running calls after SIGTERM")

    @model_validator(mode="after")
    def _two_sockets(self) -> Self:
        if self.people == self.socket:
            raise ValueError("socket and person_socket must be two: one is the daemon's, one is people's")
        for path in (self.socket, self.people):
            if len(os.fsencode(path)) > _LONGEST_SOCKET:
                raise ValueError(f"{path} is longer than a socket's path may be, {_LONGEST_SOCKET} bytes")
        return self

    @property
    def people(self) -> Path:
        """The socket for people."""
        return self.person_socket or self.socket.with_name("person.sock")

    @field_validator("socket", "person_socket", "state")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value
