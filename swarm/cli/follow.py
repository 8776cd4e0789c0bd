"""`swarm follow` and `swarm logs`: a task as it goes, and its journal so far."""

from __future__ import annotations

from typing import Annotated

import typer

from swarm.cli import door, screen, watch
from swarm.cli.door import ConfigOption, JsonOption, TaskArgument
from swarm.cli.told import told

app = typer.Typer()


@app.command()
def follow(ctx: typer.Context, task: TaskArgument, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Watch a task until it ends; the exit code tells how. Ctrl-C leaves the task running."""
    raise typer.Exit(watch.until_end(door.daemon(ctx, config), task, watch.show(as_json=json)))


@app.command()
def logs(
    ctx: typer.Context,
    task: TaskArgument,
    after: Annotated[int, typer.Option("--after", min=0, help="Only lines after this number.")] = 0,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Print a task's journal; with --json, one object a line."""
    for step in door.ask(door.daemon(ctx, config), lambda client: client.steps(task, after)):
        if json:
            screen.json_line(step.model_dump(mode="json"))
        else:
            screen.say(f"{step.seq:>5}  {told(step, width=1000)}")
