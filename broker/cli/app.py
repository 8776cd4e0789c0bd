"""The swarm-broker command: the operator's verbs on broker.toml, a person's verbs through the socket.

Exit codes: 0 done; 1 refused by policy; 2 wrong usage; 3 configuration; 4 no broker answers; 5 no right, or no good
capability; 6 the log's chain is broken; 7 the broker, git or the forge failed; 8 unknown name or conflict.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from broker import audit
from broker.client import Client, TurnedDownError, UnreachableError
from broker.config import loading, showing, template
from broker.config.live import Live
from broker.errors import AuditError, BrokerError, ConfigError
from broker.person_wire import LogEntry
from broker.server import serve as run_server
from broker.wire import Finding, GrantRequest, PullRequest, Refusal

_CODES = {"rights": 5, "capability": 5, "absent": 8, "conflict": 8, "404": 8, "malformed": 2}

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__, rich_markup_mode=None)
pr = typer.Typer(no_args_is_help=True, help="Pull requests of a local forge.")
proposals = typer.Typer(no_args_is_help=True, help="Proposals that were refused or are unfinished.")
settings = typer.Typer(no_args_is_help=True, help="The broker's settings.")
app.add_typer(pr, name="pr")
app.add_typer(proposals, name="proposals")
app.add_typer(settings, name="config")

Config = Annotated[
    Path, typer.Option("--config", "-c", help="the broker.toml", envvar="SWARM_BROKER_CONFIG", readable=False)
]
Socket = Annotated[
    Path, typer.Option("--socket", help="the broker's socket for people", envvar="SWARM_BROKER_PERSON_SOCKET")
]
CoordinatorSocket = Annotated[
    Path, typer.Option("--socket", help="the broker's socket for the coordinator", envvar="SWARM_BROKER_SOCKET")
]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]
DEFAULT_CONFIG = Path("/etc/swarm-broker/broker.toml")
DEFAULT_SOCKET = Path("/run/swarm-broker/person.sock")
DEFAULT_COORDINATOR_SOCKET = Path("/run/swarm-broker/broker.sock")
out = Console(highlight=False, soft_wrap=True)


def main(words: list[str] | None = None) -> None:
    """Runs the command with the given words or the process's own; errors are one screen and an exit code."""
    try:
        app(words)
    except BrokerError as error:
        print_error(error)
        sys.exit(code_of(error))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        print_error(BrokerError(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"))
        sys.exit(2)


def code_of(error: BrokerError) -> int:
    """The exit code that the module's docstring promises."""
    if isinstance(error, TurnedDownError):
        return _CODES.get(error.code, 7)
    kinds = ((ConfigError, 3), (UnreachableError, 4), (AuditError, 6))
    return next((code for kind, code in kinds if isinstance(error, kind)), 7)


def print_error(error: BrokerError) -> None:
    """What, why, and how to mend it, on standard error."""
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    screen.print(f"[bold red]error:[/] {escape(plain(str(error)))}")
    if error.mend:
        screen.print(f"[bold]mend:[/]  {escape(plain(error.mend))}")


def plain(text: str) -> str:
    """Text for a terminal: control, bidirectional and other unprintable characters shown as escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


# --- the operator's verbs


@app.command()
def serve(
    config_file: Config = DEFAULT_CONFIG,
    standby: Annotated[
        bool, typer.Option("--standby", help="wait while another broker works on the same state, then take over")
    ] = False,
) -> None:
    """Run the broker until SIGTERM."""
    loaded = loading.load(config_file)
    for warning in showing.warnings(loaded, os.geteuid()):
        Console(stderr=True, highlight=False).print(f"warning: {warning}")
    run_server(Live(config_file, loaded), standby=standby)


@app.command()
def init(
    config_file: Config = DEFAULT_CONFIG,
    path: Annotated[Path, typer.Option(help="the bare repository")] = Path("/srv/git/demo.git"),
    name: Annotated[str, typer.Option(help="its name in tasks")] = "demo",
    person: Annotated[str, typer.Option(help="user who may grant")] = "root",
    coordinator: Annotated[str, typer.Option(help="user whom the daemon runs as")] = "swarm",
) -> None:
    """Write a commented broker.toml with mode 0600."""
    values = {"path": str(path), "person": [person], "coordinator": [coordinator]}
    template.write(config_file, template.render(values, name))
    out.print(f"wrote {config_file}; next: swarm-broker config check --config {config_file}", markup=False)


@settings.command("check")
def config_check(config_file: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Load the settings, say what is wrong or weak, and show what is in effect."""
    loaded = loading.load(config_file)
    if as_json:
        out.print_json(loaded.model_dump_json())
        return
    for warning in showing.warnings(loaded, os.geteuid()):
        out.print(f"warning: {warning}", markup=False)
    for repository, entry in loaded.repositories.items():
        out.print(
            f"{repository}: {entry.forge} {entry.path}, base {entry.default_base}, branches {entry.branch_prefix}*"
        )
    if found := showing.obstacles(loaded, os.geteuid()):
        raise ConfigError(f"{config_file} is well-formed, but serve would refuse it: {'; '.join(found)}")
    out.print(f"{config_file} is good", markup=False)


@settings.command("fields")
def config_fields() -> None:
    """Every key of broker.toml, its default and its meaning."""
    for name, default, meaning in showing.fields():
        out.print(f"{name} = {default}\n    {meaning}", markup=False)


# --- a person's verbs


@app.command()
def grant(
    repository: Annotated[str, typer.Argument(help="name in broker.toml")],
    task: Annotated[str, typer.Argument(help="the task's id; the branch is named after it")],
    base: Annotated[str | None, typer.Option(help="branch to aim at")] = None,
    uses: Annotated[int, typer.Option(help="proposals that may be judged under it")] = 1,
    days: Annotated[float, typer.Option(help="how long it is good")] = 7.0,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Give the right to propose one task's result; prints the capability."""
    asked = GrantRequest(repository=repository, task=task, base=base, uses=uses, seconds=int(days * 86400))
    with Client(socket) as client:
        given = client.grant(asked)
    if as_json:
        _json(given)
    else:
        Console(stderr=True, highlight=False).print(f"base {given.base} at {given.base_commit}, branch {given.branch}")
        out.print(given.capability, markup=False)


@app.command()
def explain(
    proposal: Annotated[Path, typer.Argument(help="an encoded proposal, as it goes over the socket", exists=True)],
    socket: CoordinatorSocket = DEFAULT_COORDINATOR_SOCKET,
    as_json: Json = False,
) -> None:
    """Judge a proposal without keeping or pushing it (a coordinator's right)."""
    with Client(socket) as client:
        verdict = client.explain(proposal.read_bytes())
    if as_json:
        _json(verdict)
    else:
        _findings(verdict.findings)
        out.print(plain("\n".join(verdict.files)), markup=False)
        out.print("allowed" if verdict.allowed else "refused")
    raise typer.Exit(0 if verdict.allowed else 1)


@app.command()
def log(
    after: Annotated[int, typer.Option(help="show lines with a higher number")] = 0,
    verify: Annotated[bool, typer.Option("--verify", help="check the chain on disk, as the broker's user")] = False,
    config_file: Config = DEFAULT_CONFIG,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Show the log, or verify its chain."""
    if verify:
        head = audit.verify(loading.load(config_file).state / "audit.log")
        out.print(f"{head.number} lines, unbroken; last hash {head.hash}")
        return
    with Client(socket) as client:
        while entries := client.log(after).entries:
            for entry in entries:
                _json(entry) if as_json else out.print(_log_line(entry), markup=False)
            after = entries[-1].number


def _log_line(entry: LogEntry) -> str:
    fields = " ".join(f"{name}={value}" for name, value in entry.fields.items())
    return plain(f"{entry.number:6} {entry.at:.3f} {entry.event} {fields}")


@pr.command("list")
def pr_list(repository: str, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Pull requests of a repository, newest first."""
    with Client(socket) as client:
        found = client.pulls(repository)
    if as_json:
        _json(found)
        return
    table = Table("no.", "state", "branch", "title", box=None)
    for pull in found.pulls:
        table.add_row(str(pull.number), pull.state, escape(pull.branch), escape(plain(pull.title)))
    out.print(table)


@pr.command("show")
def pr_show(repository: str, number: int, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """One pull request: words, evidence and diff."""
    with Client(socket) as client:
        view = client.pull(repository, number)
    if as_json:
        _json(view)
        return
    _pull(view.pull)
    out.print(plain(view.pull.body) + "\n", markup=False)
    out.print(plain(view.diff) + ("\n(cut)" if view.cut else ""), markup=False)


@pr.command("merge")
def pr_merge(repository: str, number: int, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Merge one, fast-forward where possible."""
    with Client(socket) as client:
        pull = client.merge(repository, number)
    _json(pull) if as_json else _pull(pull)


@proposals.command("list")
def proposals_list(socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """What is kept, newest first."""
    with Client(socket) as client:
        box = client.outbox()
    if as_json:
        _json(box)
        return
    table = Table("proposal", "repository", "task", "state", "bytes", box=None)
    for one in box.proposals:
        table.add_row(one.id, one.repository, one.task, one.state, str(one.size))
    out.print(table)
    out.print(f"room for {box.entries_left} more, {box.bytes_left} bytes")


@proposals.command("show")
def proposals_show(proposal: str, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """One kept proposal with its words and findings."""
    with Client(socket) as client:
        kept = client.kept(proposal)
    if as_json:
        _json(kept)
        return
    out.print(plain(f"{kept.id}: {kept.state}, {kept.repository}, task {kept.task}, tree {kept.tree}"), markup=False)
    out.print(plain(f"{kept.title}\n\n{kept.body}\n"), markup=False)
    if isinstance(kept.verdict, Refusal):
        _findings(kept.verdict.findings)


@proposals.command("discard")
def proposals_discard(proposal: str, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Remove the content of a refused proposal; its verdict stays."""
    with Client(socket) as client:
        kept = client.discard(proposal)
    _json(kept) if as_json else out.print(f"discarded {kept.id}")


def _pull(pull: PullRequest) -> None:
    out.print(plain(f"#{pull.number} {pull.state}: {pull.title}"), markup=False)
    out.print(plain(f"{pull.branch} ({pull.commit}) onto {pull.base} ({pull.base_commit})"), markup=False)
    if pull.merged_commit:
        out.print(plain(f"merged as {pull.merged_commit} by {pull.merged_by}"), markup=False)


def _findings(findings: tuple[Finding, ...]) -> None:
    for finding in findings:
        mend = f" ({finding.mend})" if finding.mend else ""
        out.print(plain(f"{finding.rule}: {finding.message}{mend}"), markup=False)


def _json(model: BaseModel) -> None:
    sys.stdout.write(model.model_dump_json() + "\n")
