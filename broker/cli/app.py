"""The swarm-broker command: the operator's verbs on broker.toml, a person's verbs through the socket.

Exit codes: 0 done; 1 refused by policy, or a check that does not hold; 2 wrong usage; 3 configuration; 4 no broker
answers; 5 no right, or no good capability; 6 the log's chain or a signature is broken; 7 the broker, git or the forge
failed; 8 unknown name or conflict; 9 not now: stopped by a person, over a budget, busy or full.
"""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from broker.cli import canary, doctor, grants, operate, proposals, pulls, records, stops
from broker.cli.screen import code_of, print_error, say
from broker.errors import BrokerError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=__doc__,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
_MENDS = {
    "task": "a task's name: lower-case letters, digits, '.', '_' and '-', 64 at most",
    "repository": "a name from broker.toml: swarm-broker config check lists them",
    "digest": "all 64 digits, as swarm-broker proposals show prints them",
    "seconds": "--days from 0.001 to 90",
    "uses": "--uses from 1 to 100",
    "issue": "an issue's number, from 1 on",
}
for commands in (operate.commands, doctor.commands, grants.commands, proposals.commands, stops.commands):
    app.add_typer(commands)
app.add_typer(operate.settings, name="config")
app.add_typer(canary.group, name="canary")
app.add_typer(grants.group, name="grants")
app.add_typer(proposals.group, name="proposals")
app.add_typer(pulls.group, name="pr")
app.add_typer(records.commands)
app.add_typer(records.log, name="log")
app.add_typer(records.key, name="key")


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the value alone
    if wanted:
        say(importlib.metadata.version("agent-swarm"))
        raise typer.Exit


@app.callback(help=__doc__)
def _all(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and leave", is_eager=True, callback=_version)
    ] = False,
) -> None:
    del version  # its callback has answered


def main(words: list[str] | None = None) -> None:
    """Runs the command with the given words or the process's own; errors are one screen and an exit code."""
    try:
        app(words)
    except BrokerError as error:
        print_error(error)
        sys.exit(code_of(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error(
            BrokerError(f"{where}{error.strerror or error}", "see that the disk has room and the folder is yours")
        )
        sys.exit(7)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = [str(part) for part in first["loc"]]
        print_error(BrokerError(f"{'.'.join(place)}: {first['msg']}", _MENDS.get(place[0] if place else "", "")))
        sys.exit(2)
