"""`swarm breaker`: what is left alone because the machinery fails on it, and a person's word that it is mended."""

from __future__ import annotations

from typing import Annotated

import typer

from swarm.cli import door, screen
from swarm.cli.clean import one_line
from swarm.cli.door import ConfigOption, JsonOption
from swarm.scheduling.shown import BreakerView

app = typer.Typer(no_args_is_help=True, help="What is left alone because the machinery fails on it.")
HEADERS = ("name", "failures", "state", "last failure")


@app.command("list")
def list_breakers(ctx: typer.Context, config: ConfigOption = None, json: JsonOption = False) -> None:
    """List repositories and images on which the machinery failed."""
    found = door.ask(door.daemon(ctx, config), lambda client: client.queue(1)).breakers
    if json:
        screen.document([one.model_dump(mode="json") for one in found])
    elif found:
        screen.table(HEADERS, [row(one) for one in found])
    else:
        screen.hint("no failure is counted for any repository or image")


@app.command()
def reset(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="repository:NAME or image:NAME, as listed.", metavar="NAME")],
    config: ConfigOption = None,
) -> None:
    """Forget the failures of one, so that its tasks start again at once."""
    door.ask(door.daemon(ctx, config), lambda client: client.reset_breaker(name))
    screen.say(f"{name}: its failures are forgotten, and its tasks start again")


def row(one: BreakerView) -> tuple[str, ...]:
    """One line under HEADERS."""
    state = one_line(one.reason, 200) if one.reason else "half open" if one.until is not None else "closed"
    return one.name, str(one.failures), state, one_line(one.last, 200)
