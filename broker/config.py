"""The settings: one broker.toml that only the broker's user can read. Policy lives here and nowhere else."""

from __future__ import annotations

import difflib
import os
import pwd
import re
import stat
import tomllib
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from broker.errors import ConfigError
from broker.wire import Name

PROTECTED_PATHS = (
    # what a forge or a CI system executes or obeys
    ".github", ".gitlab", ".gitlab-ci.yml", ".gitea", ".forgejo", ".circleci", ".buildkite", ".azure-pipelines",
    "azure-pipelines.yml", ".travis.yml", ".drone.yml", ".woodpecker", ".woodpecker.yml", ".cirrus.yml", "Jenkinsfile",
    "bitbucket-pipelines.yml", "appveyor.yml", "CODEOWNERS",
    # what git itself obeys
    ".gitmodules", ".gitattributes", ".gitignore", ".gitconfig", ".mailmap", ".lfsconfig",
    # what the next agent obeys
    "AGENTS.md", "CLAUDE.md", "GEMINI.md", "QWEN.md", "copilot-instructions.md", ".cursorrules", ".windsurfrules",
    ".aider.conf.yml", ".mcp.json",
    # hooks and other folders that tools run from: every folder at the top whose name starts with a dot
    ".husky", ".githooks", ".pre-commit-config.yaml", ".*/*",
    # what decides which foreign code is installed
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", ".npmrc",
    "pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock",
    "go.mod", "go.sum", "Cargo.toml", "Cargo.lock", "Gemfile", "Gemfile.lock", "composer.json", "composer.lock",
    "pom.xml", "build.gradle", "build.gradle.kts", "gradle-wrapper.properties", "SECURITY.md",
)  # fmt: skip

_BRANCH_PREFIX = re.compile(r"(?:[a-z0-9][a-z0-9_-]*/)+")
Bytes = Annotated[int, Field(ge=1, le=1 << 32)]


class Settings(BaseModel):
    """Base of all settings: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Policy(Settings):
    """What a proposal may change. Judged by the broker on the objects that it would push."""

    protected_paths: tuple[str, ...] = Field(
        default=PROTECTED_PATHS,
        description="never changed by a proposal; a name without a slash matches at any depth, with one from the top; "
        "case is ignored; replaces the default list",
    )
    allowed_paths: tuple[str, ...] = Field(default=(), description="if not empty, nothing else may be changed")
    max_files: int = Field(default=100, ge=1, le=10_000, description="files that one proposal may change")
    max_file_bytes: Bytes = Field(default=256 * 1024, description="size of one changed file")
    max_total_bytes: Bytes = Field(default=1024 * 1024, description="size of all changed files together")
    max_pack_bytes: Bytes = Field(default=20 * 1024 * 1024, description="size of the pack as it arrives")
    allow_symlinks: bool = Field(default=False, description="whether symbolic links may be added or changed")
    allow_submodules: bool = Field(default=False, description="whether submodule pointers may be added or changed")
    allow_executables: bool = Field(default=False, description="whether a file may become executable")
    binary_paths: tuple[str, ...] = Field(default=(), description="where binary files may be changed; nowhere if empty")
    secrets: Literal["block", "off"] = Field(default="block", description="what a secret in an added line leads to")
    hidden_text: Literal["block", "off"] = Field(
        default="block", description="what bidirectional, invisible or control characters in an added line lead to"
    )
    title_prefix: str = Field(default="[agent] ", max_length=40, description="put before every pull request's title")


class Repository(Settings):
    """A repository, its forge and its policy. Neither an address nor a policy ever comes over the socket."""

    forge: Literal["local"] = Field(description="kind of forge: local is a bare repository on this machine")
    path: Path = Field(description="the bare repository; owned by the broker's user")
    default_base: str = Field(default="main", max_length=200, description="branch that is aimed at if none is named")
    branch_prefix: str = Field(default="swarm/", max_length=80, description="every pushed branch starts with this")
    credential_file: Path | None = Field(
        default=None, description="file that holds the forge's token; mode 0600; opened for each push and not kept"
    )
    policy: Policy = Field(default=Policy(), description="what a proposal may change")

    @field_validator("branch_prefix")
    @classmethod
    def _prefix_is_a_folder(cls, value: str) -> str:
        if not _BRANCH_PREFIX.fullmatch(value):
            raise ValueError("must be lower-case words, each ended by a slash, such as swarm/")
        return value

    @field_validator("path", "credential_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value


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


class BrokerConfig(Settings):
    """One broker.toml."""

    socket: Path = Field(description="unix socket that the broker listens on")
    state: Path = Field(description="folder of the signing key, mirrors, outbox and log; the broker's user owns it")
    socket_group: str | None = Field(
        default=None, description="group that may connect; without one the uid alone counts"
    )
    roles: Roles = Field(description="who may do what")
    identity: Identity = Field(default=Identity(), description="author of the commits")
    repositories: dict[Name, Repository] = Field(min_length=1, description="repositories by the name used in tasks")
    max_body_bytes: Bytes = Field(
        default=64 * 1024 * 1024, description="largest proposal that is read at all; larger ones get a 413"
    )
    outbox_entries: int = Field(default=1000, ge=1, description="proposals kept; when full, new ones are turned away")
    outbox_bytes: int = Field(default=1 << 30, ge=1, description="their size together")
    drain_seconds: float = Field(default=30.0, ge=0, description="time to finish running calls after SIGTERM")

    @field_validator("socket", "state")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        if not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value


def load(path: Path) -> BrokerConfig:
    """Reads a broker.toml. Raises ConfigError with everything that is wrong, each with its place."""
    text = read_private(path)
    try:
        raw = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", "correct the line named above") from None
    try:
        return BrokerConfig.model_validate(raw)
    except ValidationError as error:
        lines = "\n".join(f"  {_line(detail)}" for detail in error.errors(include_url=False, include_input=False))
        mend = "swarm-broker config fields lists every key and what it means"
        raise ConfigError(f"{path} is wrong:\n{lines}", mend) from None


def read_private(path: Path, limit: int = 1 << 20) -> bytes:
    """Reads a file that this user owns and nobody else can read. Raises ConfigError otherwise."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", _mend_for(path, error)) from None
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a plain file")
        if info.st_uid != os.geteuid():
            raise ConfigError(
                f"{path} belongs to uid {info.st_uid}, not to the broker's", f"chown {os.geteuid()} {path}"
            )
        if info.st_mode & 0o077:
            raise ConfigError(f"{path} can be read by other users", f"chmod 600 {path}")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ConfigError(f"{path} is longer than {limit} bytes")
    return data


def _mend_for(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"swarm-broker init --config {path} writes one"
    if isinstance(error, PermissionError):
        return f"run as the broker's user, who should own it (chmod 600 {path})"
    return "it must be a plain file, not a link"


def warnings(config: BrokerConfig, uid: int) -> tuple[str, ...]:
    """What is allowed but weakens the wall between the broker and its callers; ``uid`` is the broker's own."""
    both = sorted(set(config.roles.person) & set(config.roles.coordinator))
    found = [f"uid {user} is both person and coordinator: it can grant to itself" for user in both]
    if uid in config.roles.coordinator:
        found.append(f"the coordinator runs as the broker's own uid {uid}: it can read the credential")
    return tuple(found)


def obstacles(config: BrokerConfig, uid: int) -> tuple[str, ...]:
    """Repositories that `serve` would refuse, run as ``uid``, each with the mend."""
    found = []
    for name, repository in config.repositories.items():
        place = f"repositories.{name}.path = {repository.path}"
        try:
            owner = (repository.path / "HEAD").stat().st_uid
        except OSError as error:
            found.append(f"{place} is no bare repository that can be read ({error.strerror}): git init --bare it")
            continue
        if owner != uid:
            found.append(f"{place} belongs to uid {owner}: chown -R {uid} {repository.path}")
    return tuple(found)


def _line(detail: Any) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    if detail["type"] != "extra_forbidden":
        return f"{place}: {detail['msg']}"
    near = difflib.get_close_matches(str(detail["loc"][-1]), _names_at(detail["loc"][:-1]), n=1, cutoff=0.5)
    return f"{place}: unknown key" + (f", did you mean {near[0]}?" if near else "")


def _names_at(loc: tuple[int | str, ...]) -> list[str]:
    here: Any = BrokerConfig
    for part in loc:
        if isinstance(here, type) and issubclass(here, BaseModel):
            here = here.model_fields[str(part)].annotation
        elif get_origin(here) is dict:
            here = get_args(here)[1]
    return list(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []


def fields(model: type[BaseModel] = BrokerConfig, place: str = "") -> list[tuple[str, str, str]]:
    """Every key as (dotted name, default, meaning), in the order of the file."""
    rows: list[tuple[str, str, str]] = []
    for name, field in model.model_fields.items():
        inner, here = _model_in(field.annotation), f"{place}{name}"
        if inner is None:
            rows.append((here, "required" if field.is_required() else _short(field.default), field.description or ""))
        else:
            step = ".NAME." if get_origin(field.annotation) is dict else "."
            rows += fields(inner, here + step)
    return rows


def _model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation]
    if get_origin(annotation) in (dict, Union, types.UnionType, Annotated):
        candidates = list(get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _short(value: Any) -> str:
    text = str(list(value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
