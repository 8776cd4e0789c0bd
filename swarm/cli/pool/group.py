"""`swarm pool`: how the model servers stand, and the commands about them."""

from __future__ import annotations

from collections.abc import Callable

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
COMMANDS: tuple[tuple[Callable[..., None], tuple[str, ...]], ...] = (  # in the order of the help, with examples
    (status, ("swarm pool status", "swarm pool status --verbose --direct")),
    (doctor, ("swarm pool doctor", "swarm pool doctor http://127.0.0.1:8000 --quick")),
    (explain, ("swarm pool explain req-1f2e (an answer's header X-Request-Id)",)),
    (add, ("swarm pool add box-2 http://10.0.0.2:8000 --tier strong --key-env BOX_KEY",)),
    (drain, ("swarm pool drain box-2 --wait 60",)),
    (admit, ("swarm pool admit box-2",)),
    (remove, ("swarm pool remove box-2",)),
    (plan, ("swarm pool plan gpt-oss-20b rtx4090", "swarm pool plan ./my-model h100 --count 2 --window 65536")),
    (recipe, ("swarm pool recipe agents --model gpt-oss-120b --gpu h100 --version 0.33.0",)),
    (serve, ("swarm pool serve", "swarm pool serve --endpoint http://127.0.0.1:8000 --port 9000")),
    (up, ("swarm pool up --embedded", "swarm pool up agents --model gpt-oss-20b --gpu h100 --count 1 --join")),
    (bench, ("swarm pool bench --url http://127.0.0.1:8000", "swarm pool bench --tier default --trace sample")),
)
for command, examples in COMMANDS:
    app.command(epilog="\n\n".join(f"Example: {one}" for one in examples))(command)


@app.callback(
    epilog="A first time: swarm pool doctor URL, then swarm pool serve --endpoint URL; without a server: up --embedded"
)
def pool() -> None:
    """The model servers: look at them, plan, launch and measure them, and put one address in front of all."""
