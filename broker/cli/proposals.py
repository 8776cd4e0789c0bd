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
    quote,
    say,
    table,
)
from broker.client import Client
from broker.person_wire import Approval, ChangedFile, KeptProposal, ProposedChange
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
    rows = [(one.id, one.repository, one.task, one.state, str(one.size), one.reason) for one in box.proposals]
    table(("proposal", "repository", "task", "state", "bytes", "why it waits"), rows)
    say(f"room for {box.entries_left} more, {box.bytes_left} bytes")


@group.command("show")
def proposals_show(
    proposal: Id,
    diff: Annotated[bool, typer.Option(help="with all lines that change, not the files alone")] = True,
    socket: Socket = DEFAULT_SOCKET,
    json: Json = False,
) -> None:
    """One kept proposal: its words, the change, what speaks against it, and what would approve it."""
    with Client(socket) as client:
        kept = client.kept(proposal)
    if json:
        as_json(kept)
        return
    update = ", extends a pull request" * kept.update
    say(f"{kept.id}: {kept.state}, {kept.repository}, task {kept.task}{update}")
    say(f"tree {kept.tree} on {kept.base_commit}, digest {kept.digest}")
    if kept.title or kept.body:
        say("its words, as the agent wrote them:")
        quote(f"{kept.title}\n\n{kept.body}".rstrip())
    if kept.change:
        _change(kept.change, diff=diff)
    _standing(kept)


def _change(change: ProposedChange, *, diff: bool) -> None:
    if change.diff and diff:
        say("the change, as the broker reads it:")
        quote(change.diff.rstrip("\n"))
    if change.files:
        say("files:")
    for file in change.files:
        modes = "" if file.mode in {None, "100644"} and file.was in {None, file.mode, "100644"} else _modes(file)
        say(f"  {file.kind:<8}  {' '.join(file.path.split())}{modes}")
    if change.more:
        say(f"  and {change.more} more")
    if change.cut or change.problem:
        say(f"NOT ALL OF THE CHANGE IS SHOWN{': ' * bool(change.problem)}{change.problem}")


def _modes(file: ChangedFile) -> str:
    return f"  (mode {file.was or 'none'} -> {file.mode or 'none'})"


def _standing(kept: KeptProposal) -> None:
    if kept.reason:
        say(f"{'waits' if kept.state == 'waiting' else kept.state}: {kept.reason}")
    if isinstance(kept.verdict, Receipt):
        _receipt(kept.verdict)
    elif isinstance(kept.verdict, Refusal):
        say("what speaks against it:")
        findings(kept.verdict.findings)
        _way_on(kept, kept.verdict)


def _way_on(kept: KeptProposal, refusal: Refusal) -> None:
    if any(found.severity == "fatal" for found in refusal.findings):
        say("fatal: nobody can approve it")
    elif refusal.digest and kept.size:
        say(f"to have exactly this delivered: swarm-broker proposals approve {kept.id} --digest {refusal.digest}")


def _receipt(delivered: Receipt) -> None:
    url = f", {delivered.url}" * bool(delivered.url)
    say(f"{delivered.pull_request}: {delivered.branch} at {delivered.commit}{url}")
    findings(delivered.warnings)


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
        _receipt(verdict)
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
