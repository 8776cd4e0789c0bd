"""`swarm help`: what fits no command's own help."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from swarm.cli import screen
from swarm.cli.door import JsonOption
from swarm.cli.exits import MEANINGS, table
from swarm.cli.task_file import FORMAT, TaskFile
from swarm.config_docs import explain

app = typer.Typer()


@app.command("help")
def show_help(
    topic: Annotated[Literal["exit-codes", "task-files"] | None, typer.Argument(show_default=False)] = None,
    json: JsonOption = False,
) -> None:
    """Explain exit codes or task files."""
    if topic == "exit-codes":
        if json:
            screen.document({code.name.lower(): {"code": code.value, "meaning": MEANINGS[code]} for code in MEANINGS})
        else:
            screen.say(table())
    elif topic == "task-files":
        docs = explain(TaskFile)
        if json:
            screen.document([doc.model_dump() for doc in docs])
        else:
            screen.say(FORMAT)
            screen.table(("key", "type", "meaning"), [(doc.key, doc.type, doc.description) for doc in docs])
    else:
        screen.say("topics: swarm help exit-codes, swarm help task-files; for a command: swarm COMMAND --help")
