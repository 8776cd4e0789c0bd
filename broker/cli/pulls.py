"""A person's verbs on pull requests: list, show, merge."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.screen import DEFAULT_SOCKET, Json, Socket, as_json, say, table
from broker.client import Client
from broker.wire import PullRequest

group = typer.Typer(no_args_is_help=True, help="Pull requests that the broker opened.")
Name = Annotated[str, typer.Argument(help="name in broker.toml")]
Number = Annotated[int, typer.Argument(help="the pull request's number")]


@group.command("list")
def pr_list(repository: Name, socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """Pull requests of a repository, newest first."""
    with Client(socket) as client:
        found = client.pulls(repository)
    if json:
        as_json(found)
        return
    rows = [(str(one.number), one.state + " draft" * one.draft, one.branch, one.title) for one in found.pulls]
    table(("no.", "state", "branch", "title"), rows)


@group.command("show")
def pr_show(repository: Name, number: Number, socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """One pull request: words, evidence and diff."""
    with Client(socket) as client:
        view = client.pull(repository, number)
    if json:
        as_json(view)
        return
    _pull(view.pull)
    say(view.pull.body + "\n")
    say(view.diff + ("\n(cut)" if view.cut else ""))


@group.command("merge")
def pr_merge(repository: Name, number: Number, socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """Merge one, fast-forward where possible. On the embedded forge alone: elsewhere you merge on the forge."""
    with Client(socket) as client:
        pull = client.merge(repository, number)
    as_json(pull) if json else _pull(pull)


def _pull(pull: PullRequest) -> None:
    say(f"#{pull.number} {pull.state}: {pull.title}" + (f"  {pull.url}" if pull.url else ""))
    say(f"{pull.branch} ({pull.commit}) onto {pull.base} ({pull.base_commit})")
    if pull.merged_commit:
        say(f"merged as {pull.merged_commit} by {pull.merged_by}")
