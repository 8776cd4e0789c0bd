"""`swarm daemon`: runs the daemon in the foreground, for a service manager or a terminal."""

from __future__ import annotations

import typer

from swarm.cli import door
from swarm.cli.door import ConfigOption
from swarm.config import missing_keys
from swarm.daemon import run_daemon
from swarm.errors import ConfigError

app = typer.Typer()


@app.command()
def daemon(ctx: typer.Context, config: ConfigOption = None) -> None:
    """Run the daemon in the foreground. SIGTERM drains it, a second one stops it at once."""
    loaded = door.loaded(ctx, config)
    if missing := missing_keys(loaded.settings):
        listed = "\n".join(f"  {problem}" for problem in missing)
        raise ConfigError(f"{loaded.path}: keys are missing\n{listed}", "set them where the daemon is started")
    raise typer.Exit(door.run(run_daemon(loaded.settings)))
