"""`swarm submit`: one request from words, file and options, and a capability that the broker grants to the person."""

from __future__ import annotations

import os
from collections.abc import Mapping
from json import loads as json_of
from pathlib import Path
from typing import Annotated, Any

import typer

from swarm.agents import strategy_of
from swarm.cli import batches, door, screen, view, watch
from swarm.cli.batch import Sheet
from swarm.cli.batches import is_batch
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
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
    instructions: Annotated[str | None, door.words("What to do, in plain words")] = None,
    repo: Annotated[str | None, typer.Option("--repo", "-r", help="The broker's name of the repository.")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="A task file, or NAME.jsonl as a batch (swarm help task-files); - is stdin."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the pull request.")] = None,
    base: Annotated[str | None, typer.Option(help="Branch to aim at.")] = None,
    path: Annotated[list[str] | None, typer.Option("--path", "-p", help="Where to look first; repeatable.")] = None,
    test_command: Annotated[str | None, typer.Option(help="Tells whether the work is good.")] = None,
    changes_tests: Annotated[
        bool,
        typer.Option(
            "--changes-tests",
            help="It is to change what is tested: the base's own tests may fail where it changes them.",
        ),
    ] = False,
    strategy: Annotated[
        str | None,
        typer.Option(help="How to work: see swarm strategies; or cli:NAME for an agent.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            help="The agent that does the work, a shipped one or of agents.NAME; short for --strategy cli:NAME."
        ),
    ] = None,
    tier: Annotated[str | None, typer.Option(help="Tier of models to start with.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Turns of the agent.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens read and written.")] = None,
    max_wall: Annotated[float | None, typer.Option(min=1, help="Seconds of wall clock.")] = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="Tries, the first one included.")] = None,
    max_gpu_seconds: Annotated[float | None, typer.Option(min=0.001, help="Seconds on an engine times GPUs.")] = None,
    max_money: Annotated[float | None, typer.Option(min=0.000001, help="What its model calls may cost.")] = None,
    max_idle: Annotated[float | None, typer.Option(min=1, help="Seconds in which nothing answers.")] = None,
    priority: Annotated[
        int | None, typer.Option(min=0, max=100, help="Larger is sooner; a minute of waiting makes up for a point.")
    ] = None,
    needs: Annotated[
        list[str] | None, typer.Option("--needs", help="A task to be delivered first, by its whole id; repeatable.")
    ] = None,
    mutex: Annotated[str | None, typer.Option(help="No two tasks with the same word run at a time.")] = None,
    requires: Annotated[
        list[str] | None, typer.Option("--requires", help="A label that its host must have, as gpu; repeatable.")
    ] = None,
    expires: Annotated[
        float | None, typer.Option(min=1, help="Seconds after which it leaves the queue if nobody has begun it.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="Hand in the file as a batch of this name: one JSON object a line.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Of a batch, hand in what can be, though some lines are wrong.")
    ] = False,
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
        "instructions": instructions,
        "repository": repo,
        "title": title,
        "base": base,
        "paths": tuple(path or ()),
        "test_command": test_command,
        "changes_tests": changes_tests or None,
        "strategy": _way(strategy, agent),
        "tier": tier,
        "priority": priority,
        "needs": tuple(needs or ()),
        "mutex": mutex,
        "requires": tuple(requires or ()),
        "expires": expires,
    }
    limits = {"steps": max_steps, "tokens": max_tokens, "wall": max_wall, "attempts": attempts}
    limits |= {"gpu_seconds": max_gpu_seconds, "money": max_money, "idle": max_idle}
    if file is not None and is_batch(file, batch):
        if instructions is not None:
            mend = "leave the words out, or hand in one task without --batch"
            raise TaskError("each line of a batch has instructions of its own", mend)
        sheet = Sheet(batch or Path(file).name, settings, given, limits)
        raise typer.Exit(_batch(sheet, file, keep_going=keep_going, wait=wait, json=json))
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


def read_task(file: str | None, given: Mapping[str, Any]) -> TaskFile:
    """What a task file says, with what the command line says put over it. Raises ConfigError."""
    return merge(_file(file), given, {})


def _file(name: str | None) -> TaskFile:
    if name is None:
        return TaskFile()
    if name == "-":
        return _one_task(parse("standard input", door.typed("standard input")))
    path = Path(name)
    try:
        with path.open("rb") as file:
            return parse(name, file.read(LIMIT).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: byte {error.start} is not UTF-8", "save the file as UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{name}: {os.strerror(error.errno or 0)}", "name a task file that you may read") from None


def _one_task(piped: TaskFile) -> TaskFile:
    """What was piped in. Raises ConfigError for lines of a batch, which would be one task's words."""
    try:
        line = json_of((piped.instructions or "").strip().partition("\n")[0])
    except ValueError:
        return piped
    if isinstance(line, dict) and "instructions" in line:
        raise ConfigError("standard input has a batch's lines", "name the batch: swarm submit --file - --batch NAME")
    return piped


async def _hand_in(settings: Settings, request: TaskRequest, held: Right | None) -> TaskView:
    async with DaemonClient(settings.daemon.socket) as daemon:
        return await handed_in(daemon, settings, request, held)


def _batch(sheet: Sheet, file: str, *, keep_going: bool, wait: bool, json: bool) -> Code:
    """Hand in a batch and, where that is wanted, wait for its end; the exit code."""
    tally = door.run(batches.hand_in(sheet, file, keep_going=keep_going))
    code = Code.TASK if tally.bad else Code.OK
    bad = sorted(tally.bad, key=lambda one: one.line)
    facts: dict[str, object] = {"batch": sheet.name, "new": tally.new, "known": tally.known}
    facts["bad"] = [{"line": one.line, "error": str(one.error), "mend": one.error.mend} for one in bad]
    if not json:
        screen.say(tally.text(sheet.name))
        for one in bad[:20]:
            screen.say(f"  {one.error}")
        screen.hint(f"watch it: swarm status --batch {sheet.name}") if not wait else None
    if wait:
        counts = door.run(batches.until_end(DaemonClient(sheet.settings.daemon.socket), sheet.name))
        code = code or batches.code_of(counts)
        facts["counts"] = {state.value: count for state, count in counts.items()}
        screen.say(f"batch {sheet.name}: {batches.told(counts)}") if not json else None
    screen.document(facts) if json else None
    return code


def _announce(made: TaskView, *, json: bool) -> None:
    if json:
        screen.document(made.model_dump(mode="json"))
        return
    request = made.task.request
    at = f" at {request.base_commit[:12]}" if request.base_commit else ""
    screen.say(f"task {made.task.id} {made.state.value}: {view.title(made)}")
    screen.say(f"  {request.repository}, base {request.base or 'default'}{at}")
