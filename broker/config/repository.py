"""A repository: which forge, where, with which key, under which policy, and what there may start and follow work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from broker.config.base import Settings
from broker.config.credential import Credential
from broker.config.policy import Label, Policy

ForgeKind = Literal["local", "github", "gitea", "gitlab"]
_BRANCH_PREFIX = re.compile(r"(?:[a-z0-9][a-z0-9_-]*/)+")
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class Intake(Settings):
    """What on the forge starts a task. Off unless a label or a command is named."""

    label: Label | None = Field(default=None, description="an issue that bears it becomes a task")
    command: str | None = Field(
        default=None, pattern=r"^/[a-z][a-z0-9-]{0,30}$", description='a comment that begins with it, such as "/swarm"'
    )
    permission: Literal["triage", "write", "maintain", "admin"] = Field(
        default="write", description="what the forge must say that the sender has, at least"
    )
    max_per_day: int = Field(default=20, ge=1, le=1000, description="tasks that may start in this way in a day")


class Follow(Settings):
    """What happens to a pull request of the broker's own after it was opened."""

    reviews: bool = Field(default=True, description="whether review comments of permitted people become events")
    checks: bool = Field(default=True, description="whether failing checks become events")
    conflicts: bool = Field(default=True, description="whether a conflict with the base becomes an event")
    max_rounds: int = Field(default=3, ge=0, le=20, description="updates of one pull request; then it needs a human")
    status_comment: bool = Field(default=True, description="whether one comment tells how far the work is")
    poll_seconds: float = Field(default=60.0, ge=1, le=86_400, description="between two looks at the forge")


class Repository(Settings):
    """A repository, its forge and its policy. Neither an address nor a policy ever comes over the socket."""

    forge: ForgeKind = Field(description="kind of forge: local is a bare repository on this machine")
    path: Path | None = Field(default=None, description="local: the bare repository; owned by the broker's user")
    url: str | None = Field(
        default=None, description="elsewhere: the repository's web address, such as https://git.example.org/team/web"
    )
    api: str | None = Field(default=None, description="address of the forge's API, where it is not the usual one")
    git: str | None = Field(default=None, description="address that git pushes to, where it is not the url")
    ca_file: Path | None = Field(
        default=None, description="certificates that the forge is trusted by, instead of the usual"
    )
    credential: Credential | None = Field(
        default=None, description="for the forge's API, and for git if no other is named"
    )
    push_credential: Credential | None = Field(default=None, description="for git alone")
    default_base: str = Field(default="main", max_length=200, description="branch that is aimed at if none is named")
    branch_prefix: str = Field(default="swarm/", max_length=80, description="every pushed branch starts with this")
    visibility: Literal["forge", "private", "public"] = Field(
        default="forge",
        description="who can read it: as the forge says, or as said here; what is unknown counts as worst",
    )
    enabled: bool = Field(default=True, description="false stops grants and deliveries, and nothing else")
    policy: Policy = Field(default=Policy(), description="what a proposal may change")
    intake: Intake = Field(default=Intake(), description="what on the forge starts a task")
    follow: Follow = Field(default=Follow(), description="what happens to a pull request afterwards")

    @field_validator("branch_prefix")
    @classmethod
    def _prefix_is_a_folder(cls, value: str) -> str:
        if not _BRANCH_PREFIX.fullmatch(value):
            raise ValueError("must be lower-case words, each ended by a slash, such as swarm/")
        return value

    @field_validator("path", "ca_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @field_validator("url", "api", "git")
    @classmethod
    def _safe_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise ValueError("must be an https address; plain http is for loopback alone")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must hold no user, password, query or fragment")
        return value.rstrip("/").removesuffix(".git")

    @model_validator(mode="after")
    def _names_a_repository(self) -> Self:
        steps = [step for step in urlsplit(self.url or "").path.split("/") if step]
        if self.url is not None and (len(steps) < 2 or (self.forge == "github" and len(steps) != 2)):
            raise ValueError(f"url = {self.url} is no address of a repository: https://HOST/OWNER/NAME")
        return self

    @model_validator(mode="after")
    def _place(self) -> Self:
        if self.forge == "local" and (self.path is None or self.url is not None):
            raise ValueError("a local repository needs path, and no url")
        if self.forge != "local" and (self.url is None or self.path is not None):
            raise ValueError(f"a repository on {self.forge} needs url, and no path")
        if self.forge != "local" and self.credential is None:
            raise ValueError(f"a repository on {self.forge} needs a credential")
        if self.forge != "github" and any(one and one.app for one in (self.credential, self.push_credential)):
            raise ValueError(f"a GitHub App is for github; a repository on {self.forge} takes a token")
        return self
