"""The operator's verb on the canary: plant it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from broker import canary
from broker.config import loading
from broker.config.repository import ForgeKind
from broker.config.settings import BrokerConfig
from broker.errors import ConfigError

group = typer.Typer(no_args_is_help=True, help="A fake credential that gives an intruder away.")
_DEFAULT = Path("/etc/swarm-broker/broker.toml")


@group.command("plant")
def plant(
    config_file: Annotated[
        Path, typer.Option("--config", "-c", help="the broker.toml", envvar="SWARM_BROKER_CONFIG", readable=False)
    ] = _DEFAULT,
    shape: Annotated[str, typer.Option(help="which forge's credentials it looks like")] = "github",
) -> None:
    """Make a fake credential, put it where [canary] says, and let the broker know it; then restart the broker.

    Run as root where the file lies in another user's home: it is given to the owner of its folder.
    """
    config = _settings(config_file)
    if config.canary is None:
        raise ConfigError(f"{config_file} has no [canary]", 'add: [canary] file = "/home/USER/.git-credentials"')
    shapes: dict[str, ForgeKind] = {"github": "github", "gitea": "gitea", "gitlab": "gitlab"}
    if shape not in shapes:
        raise ConfigError(f"there is no shape {shape!r}", f"one of {', '.join(shapes)}")
    planted = canary.plant(config.canary, config.state, shapes[shape])
    typer.echo(f"planted {planted.file}; the log will name it {planted.hash}. Now restart the broker.")


def _settings(path: Path) -> BrokerConfig:
    """The settings, which only their owner can read: root becomes the owner for that long."""
    me = os.geteuid()
    if me != 0 or not path.exists():
        return loading.load(path)
    os.seteuid(path.stat().st_uid)
    try:
        return loading.load(path)
    finally:
        os.seteuid(me)
