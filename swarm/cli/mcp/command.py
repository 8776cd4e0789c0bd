"""`swarm mcp`: an MCP server on standard input and output, for the agents of others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from swarm.cli import door
from swarm.cli.door import ConfigOption
from swarm.client import DaemonClient
from swarm.errors import ConfigError

app = typer.Typer()


@app.command()
def mcp(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="The daemon of another machine, as https://HOST:PORT.", show_default=False)
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with a token of it, see: swarm token add.", show_default=False)
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="PEM file of the authority of its certificate.", show_default=False)
    ] = None,
    look_only: Annotated[bool, typer.Option("--look-only", help="Offer only the tools that change nothing.")] = False,
    config: ConfigOption = None,
) -> None:
    """Serve MCP on standard input and output, so that other agents can hand in tasks and watch them.

    A task is handed in with your own right: the broker is asked as you, as by swarm submit.
    """
    settings = door.loaded(ctx, config).settings
    if url is None:
        if token_file or ca:
            raise ConfigError("--token-file and --ca belong to --url", "give it too, or leave them out")
        client = partial(DaemonClient, settings.daemon.socket)
    else:
        client = partial(DaemonClient, url, token=_token(token_file), ca=ca)
    try:
        from swarm.cli.mcp.server import mcp_server  # noqa: PLC0415  an extra
    except ModuleNotFoundError as error:
        if error.name not in {"mcp", "mcp_types"}:
            raise
        raise ConfigError("the MCP SDK is not installed", "pip install 'agent-swarm[mcp]'") from None
    door.run(mcp_server(settings, client, look_only=look_only).run_stdio_async())


def _token(path: Path | None) -> str:
    if path is None:
        raise ConfigError("--url needs a token", "name the file that holds it with --token-file")
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", "name a file with the token alone in it") from None
