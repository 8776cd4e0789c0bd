"""`swarm daemon`: runs the daemon in the foreground, for a service manager or a terminal."""

from __future__ import annotations

import logging

import typer

from pool.errors import PoolError
from sandbox.errors import SandboxError
from swarm.cli import door
from swarm.cli.door import ConfigOption
from swarm.cli.exits import code_of, parted
from swarm.config import Settings, missing_keys
from swarm.daemon import run_daemon
from swarm.errors import ConfigError, SwarmError

app = typer.Typer()
log = logging.getLogger(__name__)


@app.command()
def daemon(ctx: typer.Context, config: ConfigOption = None) -> None:
    """Run the daemon in the foreground. SIGTERM drains it, a second one stops it at once."""
    loaded = door.loaded(ctx, config)
    if missing := missing_keys(loaded.settings):
        listed = "\n".join(f"  {problem}" for problem in missing)
        raise ConfigError(f"{loaded.path}: keys are missing\n{listed}", "set them where the daemon is started")
    raise typer.Exit(_run(loaded.settings))


def _run(settings: Settings) -> int:
    """The exit code. What ends it is said as everything else that it says: whoever reads JSON gets no other line."""
    try:
        return door.run(run_daemon(settings))
    except (SwarmError, PoolError, SandboxError) as error:
        if settings.telemetry.log_format == "text":
            raise
        log.critical("%s; mend: %s", *parted(error))
        return code_of(error)
