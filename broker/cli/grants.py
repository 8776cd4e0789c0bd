"""A person's verbs on grants: give, list, revoke."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from broker.cli.screen import DEFAULT_SOCKET, Json, Socket, as_json, aside, out, say, table
from broker.client import Client
from broker.wire import GrantRequest

commands = typer.Typer()
group = typer.Typer(no_args_is_help=True, help="Rights that were given and are still good.")


@commands.command()
def grant(
    repository: Annotated[str, typer.Argument(help="name in broker.toml")],
    task: Annotated[str, typer.Argument(help="the task's id; the branch is named after it")],
    base: Annotated[str | None, typer.Option(help="branch to aim at")] = None,
    uses: Annotated[int, typer.Option(help="proposals that may be judged under it")] = 1,
    days: Annotated[float, typer.Option(min=0.001, max=90, help="how long it is good")] = 7.0,
    issue: Annotated[int | None, typer.Option(help="the task's own issue: read for it, and closed by it")] = None,
    read: Annotated[list[str] | None, typer.Option(help="another repository that may be mirrored; repeat it")] = None,
    standing: Annotated[
        bool, typer.Option("--standing", help="for later: --uses tasks named TASK-..., each on the base as it is then")
    ] = False,
    socket: Socket = DEFAULT_SOCKET,
    json: Json = False,
) -> None:
    """Give the right to propose one task's result; prints the capability."""
    asked = GrantRequest(repository=repository, task=task, base=base, uses=uses, seconds=int(days * 86400),
                         issue=issue, reads=tuple(read or ()), standing=standing)  # fmt: skip
    with Client(socket) as client:
        given = client.grant(asked)
    if json:
        as_json(given)
    else:
        aside(f"grant {given.id}: base {given.base} at {given.base_commit}, branch {given.branch}")
        out.print(given.capability, markup=False)


@group.command("list")
def grants_list(socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """All that are still good, newest first."""
    with Client(socket) as client:
        found = client.grants()
    if json:
        as_json(found)
        return
    rows = [
        (one.id, one.repository, one.task, one.branch, f"{one.used} of {one.uses}", one.by, _day(one.expires))
        for one in found.grants
    ]
    table(("grant", "repository", "task", "branch", "used", "by", "until"), rows)


@commands.command()
def revoke(
    grant: Annotated[str, typer.Argument(help="its id, as grants list shows it")],
    socket: Socket = DEFAULT_SOCKET,
    json: Json = False,
) -> None:
    """End a grant: nothing more is judged, read or delivered under it."""
    with Client(socket) as client:
        ended = client.revoke(grant)
    as_json(ended) if json else say(f"revoked {ended.id}: {ended.repository}, task {ended.task}")


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
