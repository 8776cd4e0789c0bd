"""`swarm pool`: how the model servers stand, and the commands about them."""

from __future__ import annotations

import typer

from swarm.cli.pool.bench import bench
from swarm.cli.pool.doctor import doctor
from swarm.cli.pool.explain import explain
from swarm.cli.pool.members import add, admit, drain, remove
from swarm.cli.pool.plan import plan
from swarm.cli.pool.recipe import recipe
from swarm.cli.pool.serve import serve
from swarm.cli.pool.status import status
from swarm.cli.pool.up import up

app = typer.Typer(no_args_is_help=True)
app.command()(status)
app.command()(doctor)
app.command()(explain)
app.command()(add)
app.command()(drain)
app.command()(admit)
app.command()(remove)
app.command()(plan)
app.command()(recipe)
app.command()(serve)
app.command()(up)
app.command()(bench)


@app.callback()
def pool() -> None:
    """The model servers."""
