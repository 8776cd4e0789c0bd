"""A person's verbs on kept proposals: list, show, approve, discard; and the coordinator's explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.screen import (
    DEFAULT_COORDINATOR_SOCKET,
    DEFAULT_SOCKET,
    CoordinatorSocket,
    Json,
    Socket,
    as_json,
    findings,
    say,
    table,
)
from broker.client import Client
from broker.person_wire import Approval, KeptProposal
from broker.wire import Receipt, Refusal

commands = typer.Typer()
group = typer.Typer(no_args_is_help=True, help="Proposals that were refused, wait for a person or are unfinished.")
Id = Annotated[str, typer.Argument(help="its id, as proposals list shows it")]


@group.command("list")
def proposals_list(socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """What is kept, newest first."""
    with Client(socket) as client:
        box = client.outbox()
    if json:
        as_json(box)
        return
    rows = [(one.id, one.repository, one.task, one.state, str(one.size)) for one in box.proposals]
    table(("proposal", "repository", "task", "state", "bytes"), rows)
    say(f"room for {box.entries_left} more, {box.bytes_left} bytes")


@group.command("show")
def proposals_show(proposal: Id, socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """One kept proposal with its words, its findings, and what would approve it."""
    with Client(socket) as client:
        kept = client.kept(proposal)
    if json:
        as_json(kept)
        return
    say(f"{kept.id}: {kept.state}, {kept.repository}, task {kept.task}, tree {kept.tree}")
    say(f"{kept.title}\n\n{kept.body}\n")
    if isinstance(kept.verdict, Refusal):
        findings(kept.verdict.findings)
        _way_on(kept, kept.verdict)


def _way_on(kept: KeptProposal, refusal: Refusal) -> None:
    if any(found.severity == "fatal" for found in refusal.findings):
        say("fatal: nobody can approve it")
    elif refusal.digest and kept.size:
        say(f"to have exactly this delivered: swarm-broker proposals approve {kept.id} --digest {refusal.digest}")


@group.command("approve")
def proposals_approve(
    proposal: Id,
    digest: Annotated[str, typer.Option(help="what you looked at, as proposals show names it")],
    note: Annotated[str, typer.Option(help="why; kept in the log")] = "",
    socket: Socket = DEFAULT_SOCKET,
    json: Json = False,
) -> None:
    """Have a kept proposal delivered, exactly as it was when you looked at it."""
    with Client(socket) as client:
        verdict = client.approve(proposal, Approval(digest=digest, note=note))
    if json:
        as_json(verdict)
    elif isinstance(verdict, Receipt):
        say(f"{verdict.pull_request}: {verdict.branch} at {verdict.commit}" + (f", {verdict.url}" * bool(verdict.url)))
        findings(verdict.warnings)
    else:
        findings(verdict.findings)
    raise typer.Exit(0 if isinstance(verdict, Receipt) else 1)


@group.command("discard")
def proposals_discard(proposal: Id, socket: Socket = DEFAULT_SOCKET, json: Json = False) -> None:
    """Remove the content of a refused proposal; its verdict stays."""
    with Client(socket) as client:
        kept = client.discard(proposal)
    as_json(kept) if json else say(f"discarded {kept.id}")


@commands.command()
def explain(
    proposal: Annotated[Path, typer.Argument(help="an encoded proposal, as it goes over the socket", exists=True)],
    socket: CoordinatorSocket = DEFAULT_COORDINATOR_SOCKET,
    json: Json = False,
) -> None:
    """Judge a proposal without keeping or pushing it (a coordinator's right)."""
    with Client(socket) as client:
        verdict = client.explain(proposal.read_bytes())
    if json:
        as_json(verdict)
    else:
        findings(verdict.findings)
        say("\n".join(verdict.files))
        say("allowed" if verdict.allowed else "refused")
    raise typer.Exit(0 if verdict.allowed else 1)
