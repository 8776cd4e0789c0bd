"""What every command starts with: the options they share, the settings they read, and the loop they run in."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from swarm.client import DaemonClient
from swarm.config import Settings
from swarm.config_file import Loaded, find, load, seek
from swarm.errors import ConfigError, TaskNotFoundError

Result = TypeVar("Result")
TYPED = 1_000_000  # characters of standard input

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The swarm.toml to read.", show_default=False, metavar="PATH", readable=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def _task(value: str) -> str:
    """An id, or the beginning of one: anything else would mean another address of the daemon."""
    if not re.fullmatch(r"[a-z0-9-]{1,64}", value):
        raise TaskNotFoundError(f"{value!r} is no task's id", "list them with: swarm list")
    return value


def _words(value: str | None) -> str | None:
    """What is said, or with - what standard input says."""
    return typed("standard input") if value == "-" else value


def typed(source: str) -> str:
    """Standard input, which errors call ``source``. Raises ConfigError."""
    try:
        return sys.stdin.read(TYPED)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: byte {error.start} is not UTF-8", "send it as UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{source}: {error.strerror or error}", "say it in words, or send it by a pipe") from None


def words(help_: str) -> Any:
    """An argument that is said in words, or with - on standard input."""
    return typer.Argument(
        help=f"{help_}; - reads standard input.", callback=_words, metavar="WORDS", show_default=False
    )


TaskArgument = Annotated[
    str,
    typer.Argument(help="The task's id, or a beginning that no other has.", metavar="TASK", callback=_task),
]


def loaded(ctx: typer.Context, given: Path | None) -> Loaded:
    """The settings: from the command's own --config, the one before the command, or where they are looked for.

    Raises ConfigError.
    """
    path = find(given or ctx.find_root().obj, os.environ, Path.cwd())
    return load(path, os.environ)


def perhaps(ctx: typer.Context, given: Path | None) -> Settings | None:
    """The settings, as `loaded` has them; None where there is no file, for what needs none. Raises ConfigError."""
    path = seek(given or ctx.find_root().obj, os.environ, Path.cwd())
    return None if path is None else load(path, os.environ).settings


def daemon(ctx: typer.Context, given: Path | None) -> DaemonClient:
    """A client of the daemon that the settings name. Raises ConfigError."""
    return DaemonClient(loaded(ctx, given).settings.daemon.socket)


def ask(client: DaemonClient, question: Callable[[DaemonClient], Awaitable[Result]]) -> Result:
    """Put one question to the daemon. Raises DaemonError and TaskError."""

    async def asked() -> Result:
        async with client:
            return await question(client)

    return run(asked())


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's work to its end."""
    return asyncio.run(work)


def interactive() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
