"""A person's kill switch: stop, go, stops."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.screen import DEFAULT_SOCKET, Json, Socket, as_json, say
from broker.client import Client
from broker.person_wire import Stop, StopRequest, Stops

commands = typer.Typer()
Where = Annotated[str | None, typer.Argument(help="name in broker.toml; every repository if left out")]


@commands.command()
def stop(
    repository: Where = None,
    reason: Annotated[str, typer.Option(help="kept with it, and told to whoever is turned away")] = "",
    socket: Socket = DEFAULT_SOCKET,
    json: Json = False,
) -> None:
    """Stop grants and deliveries, also those under way, until `go`."""
    _set(StopRequest(repository=repository, stopped=True, reason=reason), socket, json=json)


@commands.command()
def go(repository: Where = None, socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """Take a stop back."""
    _set(StopRequest(repository=repository, stopped=False), socket, json=json)


@commands.command("stops")
def stops_list(socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """What is stopped, by whom and why."""
    with Client(socket) as client:
        found = client.stops()
    as_json(found) if json else _show(found)


def _set(request: StopRequest, socket: Socket, *, json: bool) -> None:
    with Client(socket) as client:
        found = client.stop(request)
    as_json(found) if json else _show(found)


def _show(found: Stops) -> None:
    for one in found.stops:
        say(_line(one))
    if not found.stops:
        say("nothing is stopped")


def _line(one: Stop) -> str:
    who = "by broker.toml" if one.by is None else f"by uid {one.by}"
    return f"{one.repository or 'all repositories'}: stopped {who}" + (f": {one.reason}" if one.reason else "")
