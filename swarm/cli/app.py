"""The `swarm` command: which commands there are, how they are found, and how everything that goes wrong is shown."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from pool.errors import PoolError
from sandbox.errors import SandboxError
from swarm.cli import screen
from swarm.cli.crash import keep
from swarm.cli.exits import Code, code_of, parted, short
from swarm.errors import SwarmError


class Entry(NamedTuple):
    """A command as the help lists it, and the module of this folder that has it."""

    module: str
    help: str
    panel: str


_TASKS, _WATCH, _SETUP = "Tasks", "Watching", "Setting up and serving"
COMMANDS: dict[str, Entry] = {
    "submit": Entry("submit", "Hand in a task.", _TASKS),
    "cancel": Entry("tasks", "Stop a task; what it left is kept.", _TASKS),
    "pause": Entry("verbs", "Stop working on a task for now.", _TASKS),
    "priority": Entry("verbs", "Give a task that waits in the queue another priority.", _TASKS),
    "resume": Entry("verbs", "Go on with a paused task.", _TASKS),
    "retry": Entry("verbs", "Put a task that ended badly back into the queue.", _TASKS),
    "fork": Entry("verbs", "A new task that goes on from where another stood.", _TASKS),
    "message": Entry("verbs", "Tell the agent that works on a task something.", _TASKS),
    "list": Entry("tasks", "List tasks, the newest first.", _WATCH),
    "show": Entry("tasks", "Show one task: state, attempts, tests, pull request.", _WATCH),
    "diff": Entry("tasks", "Print what a task changed, as a unified diff.", _WATCH),
    "follow": Entry("follow", "Watch a task until it ends.", _WATCH),
    "logs": Entry("follow", "Print a task's journal.", _WATCH),
    "status": Entry("tasks", "Show the daemon, its queue and what it stands on.", _WATCH),
    "queue": Entry("queue", "Show what waits, where it stands and why.", _WATCH),
    "schedule": Entry("schedule", "Have tasks made again and again.", _TASKS),
    "breaker": Entry("breaker", "What is left alone because the machinery fails on it.", _WATCH),
    "time": Entry("spending", "Show where the time went: of one task, or of all by day.", _WATCH),
    "budget": Entry(
        "spending", "Show what was spent today by each repository, each user and all, and what may be.", _WATCH
    ),
    "salvage": Entry("salvage", "What attempts left behind.", _WATCH),
    "transcript": Entry("transcript", "Read, check and hand on what happened in an attempt.", _WATCH),
    "export": Entry("replay", "Write an attempt into one file.", _WATCH),
    "replay": Entry("replay", "Replay an attempt offline: the same tree again?", _WATCH),
    "eval": Entry("evaluate", "Try strategies on cases with known answers, and report.", _SETUP),
    "strategies": Entry("strategies", "List the ways to work that `swarm submit --strategy` takes.", _SETUP),
    "agents": Entry("agents", "List the agents that `swarm submit --agent` takes, or show how one is set up.", _SETUP),
    "init": Entry("init", "Find model servers on this machine and write a commented swarm.toml.", _SETUP),
    "config": Entry("configure", "Check and explain the settings.", _SETUP),
    "doctor": Entry("doctor", "Examine this installation and say what to mend.", _SETUP),
    "daemon": Entry("daemon", "Run the daemon in the foreground.", _SETUP),
    "token": Entry("token", "Who may call the daemon over TCP.", _SETUP),
    "mcp": Entry(
        "mcp.command", "Serve MCP on standard input and output, so that other agents can hand in tasks.", _SETUP
    ),
    "pool": Entry("pool.group", "The model servers.", _SETUP),
    "sandbox": Entry("sandbox.group", "The sandboxes.", _SETUP),
    "repository": Entry("repository.group", "What is found in a repository: how it is tested.", _SETUP),
    "help": Entry("topics", "Explain exit codes or task files.", _SETUP),
}


class LazyGroup(TyperGroup):
    """Loads a command's module when that command is called: listing tasks must not import engine, Docker and SDK."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in COMMANDS.items():
            self.add_command(TyperCommand(name=name, help=entry.help, rich_help_panel=entry.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in the place of its entry, then go on as usual."""
        if args and (entry := COMMANDS.get(args[0])):
            # The one import that is not at the top of a file: it makes `swarm --help` and `swarm list` quick.
            group = get_group(importlib.import_module(f"swarm.cli.{entry.module}").app)
            command = group.commands.get(args[0], group)
            command.name = args[0]
            self.add_command(command)
        return super().resolve_command(ctx, args)


_EPILOG = f"Exit codes: {short()}. What each means: swarm help exit-codes"

app = typer.Typer(
    cls=LazyGroup,
    name="swarm",
    no_args_is_help=True,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:  # noqa: FBT001  # Typer calls it with the flag's value
    if asked:
        screen.say(f"swarm {version('agent-swarm')}")
        raise typer.Exit


@app.callback()
def swarm(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="The swarm.toml to read.", show_default=False, metavar="PATH", readable=False
        ),
    ] = None,
    _shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Coding agents on your own models: tasks in, pull requests out.

    A first time: swarm init, swarm doctor, swarm daemon, then swarm submit --repo NAME "what to do" --wait.
    """
    ctx.obj = config


# For errors of the rooms below, which know what is wrong but not which command shows more.
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Every error is shown on one screen, none as a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        get_command(app).main(args=words, prog_name="swarm")
    except SystemExit as end:
        return _flushed(end.code if isinstance(end.code, int) else Code.OK if end.code is None else Code.FAULT)
    except (SwarmError, PoolError, SandboxError) as error:
        code = code_of(error)
        screen.failure(*parted(error), code, as_json="--json" in words)
        return _flushed(code)
    except Exception as error:  # noqa: BLE001  # the last door: a traceback goes to a file, never to a person
        _unexpected(error, as_json="--json" in words)
        return _flushed(Code.UNEXPECTED)
    return _flushed(Code.OK)


def _flushed(code: int) -> int:
    """The code, once standard output is written out; a reader that went away is no error of ours."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        screen.hush()
        return Code.PIPE
    return int(code)


def _unexpected(error: Exception, *, as_json: bool) -> None:
    log = keep(error)
    message = f"this is a fault in swarm itself ({type(error).__name__}: {error})"
    mend = f"the details are in {log}; please report them" if log else "run it again; no log could be written"
    screen.failure(message, mend, Code.UNEXPECTED, as_json=as_json)
