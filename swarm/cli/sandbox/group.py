"""`swarm sandbox`: where agents work; the commands about it."""

from __future__ import annotations

from collections.abc import Callable

import typer

from swarm.cli.sandbox.doctor import doctor
from swarm.cli.sandbox.explain import explain
from swarm.cli.sandbox.prune import prune
from swarm.cli.sandbox.shell import WithCommand, shell

app = typer.Typer(no_args_is_help=True)
COMMANDS: tuple[tuple[Callable[..., None], tuple[str, ...]], ...] = (  # in the order of the help, with examples
    (shell, ("swarm sandbox shell .", "swarm sandbox shell ./project --keep ../mine.patch -- make test")),
    (explain, ("swarm sandbox explain", "swarm sandbox explain --backend bwrap --verbose")),
    (doctor, ("swarm sandbox doctor", "swarm sandbox doctor --json")),
    (prune, ("swarm sandbox prune", "swarm sandbox prune --yes")),
)
for command, examples in COMMANDS:
    kind = WithCommand if command is shell else None
    app.command(cls=kind, epilog="\n\n".join(f"Example: {one}" for one in examples))(command)


@app.callback(epilog="A first time: swarm sandbox doctor, then swarm sandbox shell . in a checkout")
def sandbox() -> None:
    """The sandboxes: prove what this machine can keep, see what is locked, look inside, and tidy up.

    A sandbox is where an agent edits and tests: no network, no secrets, and limits on all that it can use up.
    """
