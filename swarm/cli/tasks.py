"""Commands that ask the daemon one thing: list, show, diff, status, cancel."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

import typer

from swarm.cli import door, screen, view
from swarm.cli.batches import code_of, members, told
from swarm.cli.door import ConfigOption, JsonOption, TaskArgument
from swarm.cli.exits import Code
from swarm.types import TaskState, TaskView

app = typer.Typer()


@app.command("list")
def list_tasks(
    ctx: typer.Context,
    state: Annotated[TaskState | None, typer.Option("--state", "-s", help="Only tasks in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most this many.")] = 50,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List tasks, the newest first."""
    found = door.ask(door.daemon(ctx, config), lambda client: client.tasks(state, limit))
    if json:
        screen.document([task.model_dump(mode="json") for task in found])
    elif found:
        screen.table(view.HEADERS, [view.row(task, time.time()) for task in found])
    else:
        screen.hint("no tasks; hand one in with: swarm submit")


@app.command()
def show(ctx: typer.Context, task: TaskArgument, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show one task: state, attempts, tests, pull request."""
    _print(door.ask(door.daemon(ctx, config), lambda client: client.task(task)), json=json)


@app.command()
def cancel(ctx: typer.Context, task: TaskArgument, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Stop a task; what it left is kept and can be listed with: swarm salvage list."""
    _answer(door.ask(door.daemon(ctx, config), lambda client: client.cancel(task)), json=json)


@app.command()
def diff(
    ctx: typer.Context,
    task: TaskArgument,
    raw: Annotated[
        bool, typer.Option("--raw", help="Byte for byte, for git apply; may hold control characters.")
    ] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Print what a task changed, as a unified diff without control characters."""
    text = door.ask(door.daemon(ctx, config), lambda client: client.diff(task))
    if json:
        screen.document({"task": task, "diff": text})
    elif raw:
        screen.raw(text)
    elif text:
        screen.say(text.rstrip("\n"))
    else:
        screen.hint(f"task {task} changed nothing")


@app.command()
def status(
    ctx: typer.Context,
    batch: Annotated[str | None, typer.Option(help="How a batch stands; the exit code tells how it ended.")] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show the daemon, its queue and what it stands on; or how a batch stands."""
    if batch is not None:
        raise typer.Exit(_batch(batch, door.ask(door.daemon(ctx, config), lambda client: members(client, batch)), json))
    found = door.ask(door.daemon(ctx, config), lambda client: client.status())
    if json:
        screen.document(found.model_dump(mode="json"))
        return
    screen.say("\n".join(view.daemon(found)))
    if found.endpoints:
        screen.table(view.ENDPOINT_HEADERS, [view.endpoint(one) for one in found.endpoints])


def _batch(name: str, found: tuple[TaskView, ...], json: bool) -> Code:  # noqa: FBT001  # as Typer gives it
    counts = Counter(task.state for task in found)
    if json:
        screen.document({"batch": name, "counts": counts, "tasks": [task.model_dump(mode="json") for task in found]})
    else:
        screen.say(f"batch {name}: {view.many(len(found), 'task')}, {told(counts)}")
        screen.table(view.HEADERS, [view.row(task, time.time()) for task in found])
    return code_of(counts)


def _print(task: TaskView, *, json: bool) -> None:
    if json:
        screen.document(task.model_dump(mode="json"))
    else:
        screen.say("\n".join(view.whole(task)))


def _answer(task: TaskView, *, json: bool) -> None:
    if json:
        screen.document(task.model_dump(mode="json"))
    else:
        screen.say("\n".join(view.summary(task)))
