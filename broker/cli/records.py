"""What proves what was done: the log, the public key, and whether a pull request is what its statement says."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from broker import audit
from broker.cli import checking, exported
from broker.cli.screen import DEFAULT_CONFIG, DEFAULT_SOCKET, Config, Json, Socket, WrongUseError, as_json, out, say
from broker.client import Client
from broker.config import loading
from broker.errors import AbsentError
from broker.person_wire import LogEntry
from broker.provenance.chain import Shown
from broker.provenance.chain import verify as verify_chain

commands = typer.Typer()
log = typer.Typer(no_args_is_help=True, help="The broker's hash-chained log.")
key = typer.Typer(no_args_is_help=True, help="The broker's key for statements.")
After = Annotated[int, typer.Option(help="only lines with a higher number")]
Time = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="UTC")]


@commands.command()
def verify(
    pull: Annotated[
        str, typer.Argument(help="REPOSITORY#NUMBER or its address; may be left out with --statement")
    ] = "",
    statement: Annotated[
        list[Path] | None, typer.Option(help="a signed statement, to check without a broker; one for each commit")
    ] = None,
    key_file: Annotated[Path | None, typer.Option("--key", help="the public key, as key show printed it")] = None,
    commit: Annotated[str, typer.Option(help="without a broker: the commit that the pull request shows")] = "",
    git: Annotated[Path, typer.Option(help="without a broker: a clone or bare repository that holds it")] = Path(),
    socket: Socket = DEFAULT_SOCKET,
    json: Json = False,
) -> None:
    """Check a pull request link by link: signature, statement, commit, tree, parent, head.

    An updated one has these links for each of its commits, the newest first.
    """
    holds = True
    if statement:
        if key_file is None or not commit:
            raise WrongUseError("--statement needs --key and --commit too", "swarm-broker verify --help")
        files = checking.Files(tuple(statement), key_file, commit, git)
        holds = _told(checking.from_files(files, pull), json=json)
    elif not pull:
        raise WrongUseError("no pull request is named", "swarm-broker verify REPOSITORY#NUMBER")
    else:
        with Client(socket) as client:
            holds = _told(checking.from_broker(client, pull, key_file), json=json)
    raise typer.Exit(0 if holds else 1)


def _told(rounds: Iterator[Shown], *, json: bool) -> bool:
    holds = True
    for number, shown in enumerate(rounds):
        if number and not json:
            say(f"the commit below, {shown.head}:")
        for link in verify_chain(shown):
            holds = holds and link.holds
            if json:
                sys.stdout.write(json_module.dumps({"commit": shown.head, **asdict(link)}) + "\n")
            else:
                say(f"{'ok ' if link.holds else 'NOT'} {link.name}: {link.told}")
    return holds


@commands.command()
def statement(
    repository: Annotated[str, typer.Argument(help="name in broker.toml")],
    number: Annotated[int, typer.Argument(help="the pull request's number")],
    commit: Annotated[str | None, typer.Option(help="an earlier commit of the broker's on it")] = None,
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Print the signed statement about a pull request, to be kept or checked elsewhere."""
    with Client(socket) as client:
        sys.stdout.write(client.provenance(repository, number, commit).decode())


@key.command("show")
def key_show(socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """Print the public key in PEM."""
    with Client(socket) as client:
        found = client.key()
    as_json(found) if json else out.print(found.pem.rstrip(), markup=False)


@log.command("show")
def log_show(after: After = 0, socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """Show the log's lines."""
    with Client(socket) as client:
        for entry in exported.entries(client, after):
            as_json(entry) if json else say(_line(entry))


@log.command("export")
def log_export(after: After = 0, since: Time = None, until: Time = None, socket: Socket = DEFAULT_SOCKET) -> None:
    """Write lines as JSON, and at last a signed head: `log verify --file` checks them without this broker."""
    last = 0
    with Client(socket) as client:
        for entry in exported.entries(client, after, _at(since, 0.0), _at(until, float("inf"))):
            as_json(entry)
            last = entry.number
        if last == 0:
            raise AbsentError("the log has no such lines", "swarm-broker log show")
        sys.stdout.write(client.log_head(last).decode())


@log.command("verify")
def log_verify(
    config_file: Config = DEFAULT_CONFIG,
    file: Annotated[Path | None, typer.Option(help="an export, instead of the log on disk")] = None,
    key_file: Annotated[Path | None, typer.Option("--key", help="with --file: the public key")] = None,
) -> None:
    """Check the chain: of the log on disk, as the broker's user, or of an export."""
    if file is None:
        head = audit.verify(loading.load(config_file).state / "audit.log")
        say(f"{head.number} lines, unbroken; last hash {head.hash}")
        return
    if key_file is None:
        raise WrongUseError("--file needs --key", "swarm-broker key show prints it")
    before, last = exported.verify_export(file, key_file)
    say(f"lines {before.number + 1} to {last.number}, unbroken and signed; last hash {last.hash}")


def _line(entry: LogEntry) -> str:
    fields = " ".join(f"{name}={value}" for name, value in entry.fields.items())
    return f"{entry.number:6} {datetime.fromtimestamp(entry.at, UTC):%Y-%m-%d %H:%M:%S} UTC {entry.event} {fields}"


def _at(time: datetime | None, otherwise: float) -> float:
    return otherwise if time is None else time.replace(tzinfo=UTC).timestamp()
