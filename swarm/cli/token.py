"""`swarm token`: who may call the daemon over TCP. A token is shown once; the daemon keeps its hash."""

from __future__ import annotations

from typing import Annotated

import typer

from swarm import tokens
from swarm.answers import Role
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.errors import ConfigError

app = typer.Typer(no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(help="Who calls with it; its tasks are shown under this name.")]


@app.callback()
def token() -> None:
    """Who may call the daemon over TCP ([daemon.tcp] of swarm.toml)."""


@app.command()
def add(
    ctx: typer.Context,
    name: NameArgument,
    role: Annotated[
        Role, typer.Option(help="viewer looks, submitter hands in tasks and moves its own, operator does everything.")
    ] = "submitter",
    per_minute: Annotated[int, typer.Option(min=1, max=1_000_000, help="Requests that it may make in a minute.")] = 600,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token and print it; it cannot be shown again."""
    daemon = door.loaded(ctx, config).settings.daemon
    path = daemon.token_file
    if any(each.name == name for each in daemon.tokens):
        raise ConfigError(f"swarm.toml has a token {name} already", "give this one another name")
    secret, kept = tokens.made(name, role, per_minute)
    tokens.add(path, kept)
    if json:
        screen.document({"name": name, "role": role, "per_minute": per_minute, "token": secret})
    else:
        screen.say(secret)
        screen.hint(f"{name} may call as {role}: Authorization: Bearer TOKEN; {path} keeps only its hash")


@app.command("list")
def list_tokens(ctx: typer.Context, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Who has a token."""
    daemon = door.loaded(ctx, config).settings.daemon
    found = [(each, "swarm.toml") for each in daemon.tokens]
    found += [(each, str(daemon.token_file)) for each in tokens.read(daemon.token_file)]
    if json:
        screen.document([each.model_dump(exclude={"sha256"}) | {"from": where} for each, where in found])
    elif found:
        rows = [(each.name, each.role, str(each.per_minute), where) for each, where in found]
        screen.table(("NAME", "ROLE", "PER MINUTE", "FROM"), rows)
    else:
        screen.hint("no tokens; make one with: swarm token add NAME")


@app.command()
def revoke(ctx: typer.Context, name: NameArgument, config: ConfigOption = None) -> None:
    """Take a token away; a running daemon knows at its next request."""
    tokens.revoke(door.loaded(ctx, config).settings.daemon.token_file, name)
    screen.say(f"{name} may call no more")
