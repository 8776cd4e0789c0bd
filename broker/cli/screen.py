"""What every command shares: its options, the way it prints, the way an error looks, and the exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from broker.client import TurnedDownError, UnreachableError
from broker.errors import AbsentError, AuditError, BrokerError, ConfigError, ForgeError, ProvenanceError
from broker.wire import Finding

Config = Annotated[
    Path, typer.Option("--config", "-c", help="the broker.toml", envvar="SWARM_BROKER_CONFIG", readable=False)
]
Socket = Annotated[
    Path,
    typer.Option(
        "--socket", help="the broker's socket for people", envvar="SWARM_BROKER_PERSON_SOCKET", readable=False
    ),
]
CoordinatorSocket = Annotated[
    Path,
    typer.Option(
        "--socket", help="the broker's socket for the coordinator", envvar="SWARM_BROKER_SOCKET", readable=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]
DEFAULT_CONFIG = Path("/etc/swarm-broker/broker.toml")
DEFAULT_SOCKET = Path("/run/swarm-broker/person.sock")
DEFAULT_COORDINATOR_SOCKET = Path("/run/swarm-broker/broker.sock")


class WrongUseError(BrokerError):
    """Words on the command line that mean nothing together, or name nothing that can be read."""


_KINDS = (
    (WrongUseError, 2),
    (AbsentError, 8),
    (ConfigError, 3),
    (UnreachableError, 4),
    (AuditError, 6),
    (ProvenanceError, 6),
    (ForgeError, 7),
)
_CODES = {
    "rights": 5,
    "capability": 5,
    "absent": 8,
    "conflict": 8,
    "404": 2,
    "never": 1,
    "malformed": 2,
    "stopped": 9,
    "budget": 9,
    "busy": 9,
    "outbox-full": 9,
}
out = Console(highlight=False, soft_wrap=True)


def code_of(error: BrokerError) -> int:
    """The exit code that the command's help promises."""
    if isinstance(error, TurnedDownError):
        return _CODES.get(error.code, 7)
    return next((code for kind, code in _KINDS if isinstance(error, kind)), 7)


def print_error(error: BrokerError) -> None:
    """What, why, and how to mend it, on standard error."""
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    screen.print(f"[bold red]error:[/] {escape(plain(str(error)))}")
    if error.mend:
        screen.print(f"[bold]mend:[/]  {escape(plain(error.mend))}")


def plain(text: str) -> str:
    """Text for a terminal: control, bidirectional and other unprintable characters shown as escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def say(text: str) -> None:
    """A line, as it is."""
    out.print(plain(text), markup=False)


def quote(text: str) -> None:
    """Somebody else's words, marked line by line, so that none of them can pass for the broker's own."""
    say("\n".join(f"  | {line}" for line in text.split("\n")))


def aside(text: str) -> None:
    """A line on standard error, so that standard output holds nothing but the answer."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(plain(text), markup=False)


def as_json(model: BaseModel) -> None:
    """A message as one line of JSON."""
    sys.stdout.write(model.model_dump_json() + "\n")


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Rows under their names; nothing is cut, since an id that is cut is of no use."""
    lines = [columns, *(tuple(" ".join(plain(cell).split()) for cell in row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def findings(found: tuple[Finding, ...]) -> None:
    """One line per finding, with its mend."""
    for one in found:
        mend = f" ({one.mend})" if one.mend else ""
        say(f"{one.severity}: {one.rule}: {one.message}{mend}")
