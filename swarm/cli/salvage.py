"""`swarm salvage`: what attempts left behind that did not become a pull request."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from swarm.cli import door, screen, view
from swarm.cli.door import ConfigOption, JsonOption
from swarm.types import Attempt, TaskState, TaskView

app = typer.Typer(no_args_is_help=True)


@app.callback()
def salvage() -> None:
    """What attempts left behind."""


@app.command("list")
def list_salvage(
    ctx: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Those of delivered tasks too.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Look at this many tasks.")] = 200,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List salvage refs, the newest task first; they lie in the daemon's own git folder of the repository."""
    found = door.ask(door.daemon(ctx, config), lambda client: client.tasks(None, limit))
    left = [(task, attempt) for task in found for attempt in _left(task, every=every)]
    if json:
        screen.document([_entry(task, attempt) for task, attempt in left])
    elif left:
        rows = [_row(task, attempt) for task, attempt in left]
        screen.table(("task", "attempt", "ended", "age", "repository", "ref"), rows)
        screen.hint("look into one with: swarm diff TASK")
    else:
        screen.hint("nothing was left behind" + ("" if every else "; --all shows what delivered tasks left too"))


def _left(task: TaskView, *, every: bool) -> list[Attempt]:
    if task.state is TaskState.DELIVERED and not every:
        return []
    return [attempt for attempt in task.attempts if attempt.salvage]


def _entry(task: TaskView, attempt: Attempt) -> dict[str, object]:
    return {
        "task": task.task.id,
        "state": task.state.value,
        "repository": task.task.request.repository,
        "attempt": attempt.id,
        "number": attempt.number,
        "ending": attempt.ending,
        "ended": attempt.ended,
        "ref": attempt.salvage,
    }


def _row(task: TaskView, attempt: Attempt) -> tuple[str, ...]:
    ended = attempt.ended or attempt.started
    repository = task.task.request.repository
    ending = attempt.ending or "running"
    return task.task.id, str(attempt.number), ending, view.age(time.time() - ended), repository, attempt.salvage or ""
