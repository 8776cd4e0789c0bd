"""`swarm submit`: one request from words, file and options, and a capability that the broker grants to the person."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from swarm.agents import strategy_of
from swarm.cli import door, screen, view, watch
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.request import merge, ready
from swarm.cli.rights import Right, handed_in, read_capability
from swarm.cli.task_file import TaskFile, parse
from swarm.client import DaemonClient
from swarm.config import Settings
from swarm.errors import ConfigError, TaskError
from swarm.types import TaskRequest, TaskView

app = typer.Typer()
LIMIT = 1_000_000  # bytes of a task file


@app.command()
def submit(
    ctx: typer.Context,
    instructions: Annotated[
        str | None, typer.Argument(help="What to do, in plain words; - reads standard input.", show_default=False)
    ] = None,
    repo: Annotated[str | None, typer.Option("--repo", "-r", help="The broker's name of the repository.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="A task file, see: swarm help task-files; - is standard input.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the pull request.")] = None,
    base: Annotated[str | None, typer.Option(help="Branch to aim at.")] = None,
    path: Annotated[list[str] | None, typer.Option("--path", "-p", help="Where to look first; repeatable.")] = None,
    test_command: Annotated[str | None, typer.Option(help="Tells whether the work is good.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="How to work: agent, sampled_repair, auto, or cli:NAME for an agent.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(help="The agent that does the work, one of [agents] or shipped; short for --strategy cli:NAME."),
    ] = None,
    tier: Annotated[str | None, typer.Option(help="Tier of models to start with.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Turns of the agent.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens read and written.")] = None,
    max_wall: Annotated[float | None, typer.Option(min=1, help="Seconds of wall clock.")] = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="Tries, the first one included.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key again gives the same task.")] = None,
    capability: Annotated[
        str | None,
        typer.Option(
            help="Granted before; @FILE reads it, and stays off the list of processes. Default: asked for now."
        ),
    ] = None,
    base_commit: Annotated[str | None, typer.Option(help="The commit that --capability was granted for.")] = None,
    task_id: Annotated[str | None, typer.Option(help="The task that --capability was granted for.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Follow it to its end; the exit code tells how.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Hand in a task.

    The broker is asked, as you, for the right to propose its result; the daemon never gets that right on its own.
    """
    settings = door.loaded(ctx, config).settings
    given = {
        "instructions": _words(instructions),
        "repository": repo,
        "title": title,
        "base": base,
        "paths": tuple(path or ()),
        "test_command": test_command,
        "strategy": _way(strategy, agent),
        "tier": tier,
    }
    limits = {"steps": max_steps, "tokens": max_tokens, "wall": max_wall, "attempts": attempts}
    wanted = merge(_file(file), given, limits)
    held = Right.brought(read_capability(capability), base_commit, task_id)
    made = door.run(_hand_in(settings, ready(wanted, settings, idempotency_key), held))
    if wait:
        _announce(made, json=False) if not json else None
        raise typer.Exit(watch.until_end(DaemonClient(settings.daemon.socket), made.task.id, watch.show(as_json=json)))
    _announce(made, json=json)
    if not json:
        screen.hint(f"watch it: swarm follow {made.task.id}")


def _way(strategy: str | None, agent: str | None) -> str | None:
    if agent is None:
        return strategy
    if strategy not in {None, strategy_of(agent)}:
        raise TaskError(f"--agent {agent} and --strategy {strategy} are two ways to work", "name one of them")
    return strategy_of(agent)


def _words(instructions: str | None) -> str | None:
    return sys.stdin.read(LIMIT) if instructions == "-" else instructions


def _file(name: str | None) -> TaskFile:
    if name is None:
        return TaskFile()
    if name == "-":
        return parse("standard input", sys.stdin.read(LIMIT))
    path = Path(name)
    try:
        with path.open("rb") as file:
            return parse(name, file.read(LIMIT).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: byte {error.start} is not UTF-8", "save the file as UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{name}: {os.strerror(error.errno or 0)}", "name a task file that you may read") from None


async def _hand_in(settings: Settings, request: TaskRequest, held: Right | None) -> TaskView:
    async with DaemonClient(settings.daemon.socket) as daemon:
        return await handed_in(daemon, settings, request, held)


def _announce(made: TaskView, *, json: bool) -> None:
    if json:
        screen.document(made.model_dump(mode="json"))
        return
    request = made.task.request
    at = f" at {request.base_commit[:12]}" if request.base_commit else ""
    screen.say(f"task {made.task.id} {made.state.value}: {view.title(made)}")
    screen.say(f"  {request.repository}, base {request.base or 'default'}{at}")
