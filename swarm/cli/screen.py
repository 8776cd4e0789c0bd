"""All that is printed goes through here: cleaned text, tables, JSON documents, and errors on one screen."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from swarm.cli.clean import clean
from swarm.cli.exits import Code

WIDE = 48  # characters of a cell that the others of its column are aligned to
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Output(Console):
    """A console whose reader may go away without a word."""

    def on_broken_pipe(self) -> None:
        """Leave quietly."""
        hush()
        raise typer.Exit(Code.PIPE)


def hush() -> None:
    """Send what is still to be written nowhere: the interpreter flushes at its end, and must not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """Standard output as it is now (a test or a pipe may have put another in its place)."""
    return Output(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """Print text on standard output, cleaned."""
    console().print(Text(clean(text), style=style))


def hint(text: str) -> None:
    """Print a remark for a person on standard error, cleaned, so that pipes carry results alone."""
    print_error_text(Text(clean(text), style="dim"))


def print_error_text(text: Text) -> None:
    """Print styled text on standard error."""
    Console(file=sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True).print(text)


def raw(text: str) -> None:
    """Print foreign text as it is, on the explicit wish of the caller alone."""
    _write(text.removesuffix("\n"))


def document(value: Any) -> None:
    """Print one JSON document. Everything outside ASCII is escaped, so nothing in it can steer a terminal."""
    _write(json.dumps(value, indent=2, ensure_ascii=True))


def json_line(value: Any) -> None:
    """Print one JSON object on one line, at once."""
    _write(json.dumps(value, ensure_ascii=True))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under headers: drawn to the terminal's width, or in full as aligned columns elsewhere."""
    cleaned = [[" ".join(clean(cell).split()) for cell in row] for row in rows]
    out = console()
    if not out.is_terminal:
        _write("\n".join(columns([[header.upper() for header in headers], *cleaned])))
        return
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for header in headers:
        drawn.add_column(header, overflow="fold")
    for row in cleaned:
        drawn.add_row(*(Text(cell) for cell in row))
    out.print(drawn, soft_wrap=False)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns and no trailing blanks; a cell that is wider than most moves its row alone."""
    fitting = [[len(row[place]) for row in rows if len(row[place]) <= WIDE] for place in range(len(rows[0]))]
    widths = [max(sizes, default=0) for sizes in fitting]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def failure(message: str, mend: str, code: int, *, as_json: bool) -> None:
    """Print an error on standard error: what and why, then what to do."""
    if as_json:
        problem = {"error": {"message": clean(message), "mend": clean(mend), "exit_code": code}}
        sys.stderr.write(json.dumps(problem, ensure_ascii=True) + "\n")
        return
    text = Text("error: ", style="bold red").append(clean(message), style="not bold default")
    if mend:
        text.append("\n  mend: ", style="bold green")
        text.append(textwrap.indent(clean(mend), "        ").lstrip(), style="not bold default")
    print_error_text(text)


def _write(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
        raise typer.Exit(Code.PIPE) from None
