"""Policy as data: what a proposal may change and how its pull request looks. One table per repository."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from broker.config.base import Bytes, Reaction, Settings
from broker.config.hours import parse_span, zone_of
from broker.config.protected import PROTECTED_PATHS, WATCHED_PATHS, WORKFLOW_PATHS

Login = Annotated[str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$")]
Pattern = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\\]+$")]
Host = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,5})?$")]
Label = Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[^,\x00-\x1f]+$")]


class Policy(Settings):
    """What a proposal may change. Judged by the broker on the objects that it would push."""

    # --- where
    protected_paths: tuple[Pattern, ...] = Field(
        default=PROTECTED_PATHS,
        description="not changed by a proposal; a name without a slash matches at any depth, one with a slash from the "
        "top; * stays within a name, ** crosses folders, a folder covers what lies in it, case is ignored; replaces "
        "the default list",
    )
    protected: Reaction = Field(default="block", description="what a change of a protected file leads to")
    watched_paths: tuple[Pattern, ...] = Field(
        default=WATCHED_PATHS, description="files that a reviewer looks at twice; written as protected_paths"
    )
    watched: Reaction = Field(default="warn", description="what a change of a watched file leads to")
    workflow_paths: tuple[Pattern, ...] = Field(
        default=WORKFLOW_PATHS, description="files that the forge's CI runs; written as protected_paths"
    )
    allow_workflows: bool = Field(
        default=False,
        description="whether those may change at all; false beats everything, a person's approval too; true leaves "
        "them to the other rules",
    )
    allowed_paths: tuple[Pattern, ...] = Field(
        default=(), description="if not empty, nothing else may be changed; written as protected_paths, but case counts"
    )
    excluded_paths: tuple[Pattern, ...] = Field(
        default=(), description="carved out of the allowed ones; a change there is refused, never left out in silence"
    )
    # --- how much
    max_files: int = Field(default=100, ge=1, le=10_000, description="files that one proposal may change")
    max_file_bytes: Bytes = Field(default=256 * 1024, description="size of one changed file")
    max_total_bytes: Bytes = Field(default=1024 * 1024, description="size of all changed files together")
    max_pack_bytes: Bytes = Field(default=20 * 1024 * 1024, description="size of the pack as it arrives")
    # --- of which kind
    allow_symlinks: bool = Field(default=False, description="whether symbolic links may be added or changed")
    allow_submodules: bool = Field(default=False, description="whether submodule pointers may be added or changed")
    allow_executables: bool = Field(default=False, description="whether a file may become executable")
    binary_paths: tuple[Pattern, ...] = Field(
        default=(), description="where binary files may be changed; nowhere if empty; case counts"
    )
    # --- with which content
    secrets: Reaction = Field(default="block", description="what a secret in an added line leads to")
    hidden_text: Reaction = Field(
        default="block", description="what bidirectional, invisible or control characters in an added line lead to"
    )
    licence_headers: Reaction = Field(default="warn", description="what the removal of a licence header leads to")
    tests_deleted: Reaction = Field(default="warn", description="what the removal of a test or a test file leads to")
    tests_skipped: Reaction = Field(default="warn", description="what a test that is newly skipped leads to")
    # --- to which pull request
    bases: tuple[Pattern, ...] = Field(
        default=(),
        description='branches that may be aimed at, such as "release/*"; the default base alone if empty; case counts',
    )
    draft: bool = Field(default=True, description="whether pull requests are opened as drafts; nobody else can choose")
    title_prefix: str = Field(default="[agent] ", max_length=40, description="put before every pull request's title")
    title_chars: int = Field(
        default=120, ge=40, le=250, description="length at which a title is cut, its prefix included"
    )
    body_chars: int = Field(
        default=60_000, ge=1000, le=60_000, description="length at which the proposal's own description is cut"
    )
    labels: tuple[Label, ...] = Field(default=(), max_length=10, description="put on every pull request")
    reviewers: tuple[Login, ...] = Field(default=(), max_length=10, description="asked for a review, by login")
    team_reviewers: tuple[Login, ...] = Field(default=(), max_length=5, description="asked too; teams of the forge")
    assignees: tuple[Login, ...] = Field(default=(), max_length=5, description="assigned, by login")
    link_hosts: tuple[Host, ...] = Field(
        default=(),
        max_length=50,
        description="hosts that a link in a pull request's words may lead to, beside the forge's own",
    )
    closes_issue: bool = Field(default=True, description="whether the task's own issue, and no other, is closed by it")
    commit_status: bool = Field(default=True, description="whether the verdict is put on the commit as a status")
    expire_days: int = Field(
        default=14, ge=0, le=365, description="days without activity after which the broker closes it; 0 never"
    )
    # --- how often, and when
    max_open_pulls: int = Field(default=10, ge=1, le=1000, description="pull requests of the broker open at a time")
    max_per_hour: int = Field(default=20, ge=1, le=500, description="proposals delivered in an hour")
    max_per_day: int = Field(default=100, ge=1, le=5000, description="proposals delivered in a day")
    hours: tuple[str, ...] = Field(
        default=(),
        max_length=20,
        description='when pull requests may be opened, such as "mon-fri 08:00-18:00"; always if empty',
    )
    timezone: str = Field(default="UTC", max_length=64, description="of the hours")
    # --- who else has a word
    approval: bool = Field(default=False, description="whether a person approves every proposal before it is pushed")
    hook: tuple[str, ...] = Field(
        default=(),
        max_length=32,
        description="a command that is asked too, an absolute path and its arguments, no shell: it gets the facts as "
        "JSON on its standard input; exit 0 approves, 1 refuses, 2 asks a person, anything else refuses",
    )
    hook_seconds: float = Field(default=30.0, gt=0, le=600, description="how long it may take")

    @field_validator("hours")
    @classmethod
    def _readable_hours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for words in value:
            parse_span(words)
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        zone_of(value)
        return value

    @field_validator("hook")
    @classmethod
    def _no_search(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not value[0].startswith("/"):
            raise ValueError("must begin with the absolute path of a program")
        return value
