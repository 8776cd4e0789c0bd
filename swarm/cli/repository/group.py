"""`swarm repository`: what is found in a repository."""

from __future__ import annotations

import typer

from swarm.cli.repository.examine import examine

app = typer.Typer(no_args_is_help=True)
app.command(epilog="For example: swarm repository examine .   swarm repository examine ../shop --name shop --network")(
    examine
)


@app.callback()
def repository() -> None:
    """What is found in a repository: how it is tested."""
