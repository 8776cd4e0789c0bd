"""Attacks a real broker process and prints what became of each attack; the first survivor ends it with exit code 1.

    python scripts/attack.py [--only TEXT] [--all]

The broker runs from the checkout on a local forge in a scratch folder, on unix sockets alone. As root the coordinator,
the broker and the person are three users, otherwise one, and the rows that need another user say so. `--all` goes on
after a survivor. Exit codes: 0 nothing got through; 1 something did; 2 an attack does not bite; 3 no broker.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from attack_incidents import INCIDENTS
from attack_rights import RIGHTS
from attack_rows import OBJECTS, Attack
from attack_stage import NotHereError, Stage, SurvivedError, ToothlessError, staged

ATTACKS: tuple[Attack, ...] = (*OBJECTS, *RIGHTS, *INCIDENTS)


@dataclass(frozen=True)
class Outcome:
    """One row of the table. ``state``: stopped, survived, toothless, not here."""

    attack: Attack
    state: str
    words: str
    seconds: float


def carry_out(attack: Attack, stage: Stage) -> Outcome:
    """One attack, and then a look at the forge: no ref may be there that no receipt explains, and the broker lives."""
    began = time.monotonic()
    try:
        words, state = attack.run(stage), "stopped"
        if strange := stage.intruders():
            state, words = "survived", f"the forge has {', '.join(strange)}"
        elif stage.process is None or stage.process.poll() is not None:
            state, words = "survived", "the broker is gone"
    except SurvivedError as survived:
        words, state = str(survived), "survived"
    except ToothlessError as toothless:
        words, state = f"does not bite: {toothless}", "toothless"
    except NotHereError as missing:
        words, state = str(missing), "not here"
    return Outcome(attack, state, words, time.monotonic() - began)


def outcomes(stage: Stage, only: str, *, go_on: bool) -> Iterator[Outcome]:
    """All rows whose name or source holds ``only``; ends after the first survivor unless told to go on."""
    for attack in ATTACKS:
        if only.lower() in f"{attack.name} {attack.source}".lower():
            outcome = carry_out(attack, stage)
            yield outcome
            if outcome.state == "survived" and not go_on:
                return


def table(rows: list[Outcome]) -> Table:
    """The table of all outcomes."""
    made = Table(show_lines=False, header_style="bold", expand=True)
    for head, more in (("attack", {}), ("from", {}), ("outcome", {"ratio": 1}), ("s", {"justify": "right"})):
        made.add_column(head, **more)
    for row in rows:
        mark = "" if row.state == "stopped" else f"{row.state.upper()}: "
        words = (row.attack.name, row.attack.source, mark + row.words[:400], f"{row.seconds:.2f}")
        made.add_row(*map(escape, words))
    return made


def closing(rows: list[Outcome]) -> str:
    """The last line."""
    count = {
        state: sum(row.state == state for row in rows) for state in ("stopped", "survived", "toothless", "not here")
    }
    rest = [
        f"{count[state]} {words}"
        for state, words in (("toothless", "did not bite"), ("not here", "need root"))
        if count[state]
    ]
    return ", ".join([f"{len(rows)} attacks: {count['stopped']} stopped", f"{count['survived']} survived", *rest])


def main() -> int:
    """Attack and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name or source holds TEXT")
    parser.add_argument("--all", action="store_true", help="go on after a survivor")
    told = parser.parse_args()
    console, rows = Console(width=None if sys.stdout.isatty() else 160), []
    try:
        with staged() as stage:
            for row in outcomes(stage, told.only, go_on=told.all):
                rows.append(row)
                console.print(f"{len(rows):3} {row.state:9} {row.seconds:6.2f} s  {row.attack.name}", markup=False)
    except RuntimeError as error:
        console.print(f"attack: {error}", markup=False)
        return 3
    console.print(table(rows))
    print(closing(rows))
    states = {row.state for row in rows}
    return 1 if "survived" in states or not rows else 2 if "toothless" in states else 0


if __name__ == "__main__":
    sys.exit(main())
