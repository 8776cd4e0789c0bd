"""`swarm sandbox explain`: what is locked, and the flag or mechanism that keeps it on each backend."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from sandbox.egress.denied import DeniedLog
from sandbox.images.sources import Dockerfile, Reference
from sandbox.rules.calls import ARCHITECTURES
from sandbox.rules.explain import calls_told
from sandbox.rules.explain import explain as told
from sandbox.types import Backend, Network
from swarm.cli import screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.sandbox.given import (
    BackendOption,
    ImageOption,
    NetworkName,
    NetworkOption,
    image_of,
    insist_here,
    settings_of,
    spec_of,
)
from swarm.config import Settings
from swarm.ways_out import ways_out

_PAGE = 140  # characters of a line where no terminal says how many it has
_NARROWEST = 16


def explain(
    ctx: typer.Context,
    backend: BackendOption = None,
    network: NetworkOption = NetworkName.NONE,
    image: ImageOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="The raw settings and the refused system calls, too.")
    ] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a sandbox may do and what keeps it from more: one line a property, one column a backend.

    Nothing is started: this is what the settings become.
    """
    settings = settings_of(ctx, config)
    machine = platform.machine()
    if image:
        insist_here(image)
    spec = spec_of(settings, network)
    spec = spec.model_copy(update={"image": image and _told(image), "env": _inside(settings, spec.network) | spec.env})
    found = told(spec, machine if machine in ARCHITECTURES else "x86_64")
    names: tuple[Backend, ...] = (backend.value,) if backend else ("docker", "bwrap")
    if json:
        rows = [row.model_dump(include={"property", "asked", *names}) for row in found.rows]
        screen.document({"rows": rows, "raw": {name: found.raw[name] for name in names}})
        return
    told_rows = [(row.property, row.asked, *(getattr(row, name) for name in names)) for row in found.rows]
    screen.table(("property", "what is allowed", *names), _fitted(told_rows, _width()))
    if not verbose:
        screen.hint("the raw settings: --verbose; whether this machine keeps them: swarm sandbox doctor")
        return
    for name in names:
        screen.say(f"\n{name}, as it is given to it:", "bold")
        screen.say("\n".join(f"  {line}" for line in found.raw[name]))
    screen.say("\nsystem calls that are refused, or narrowed where they are in brackets, and why:", "bold")
    for why, calls in calls_told():
        screen.say(f"  {why}: {calls}")


def _inside(settings: Settings, network: Network) -> dict[str, str]:
    """The variables that a way out adds, also where no gateway is set yet: none is asked."""
    if network == "none":
        return {}
    return dict(ways_out(settings.sandbox.egress, DeniedLog(), connect=_nowhere)[network].environment())


async def _nowhere(_: Mapping[str, str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    raise ConnectionRefusedError


def _width() -> int:
    """Of the terminal, or what a page takes."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PAGE


def _fitted(rows: Sequence[Sequence[str]], width: int) -> Iterator[Sequence[str]]:
    """The rows with their cells folded, so that a line has at most ``width`` characters; a row becomes several."""
    first = max(len(row[0]) for row in rows)
    each = max(_NARROWEST, (width - first) // (len(rows[0]) - 1) - 2)
    for row in rows:
        yield from zip_longest([row[0]], *(folded(cell, each) for cell in row[1:]), fillvalue="")


def folded(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` characters, ended at blanks and behind commas, within a word where it is longer."""
    lines = [""]
    for piece in re.findall(r"[^\s,]*,+|[^\s,]+|\s+", text):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] = (lines[-1] + piece).lstrip()
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]


def _told(image: str) -> str:
    """A name as it is, a path in full."""
    source = image_of(image, Path.cwd())
    match source:
        case Reference():
            return source.name
        case Dockerfile():
            return str((source.folder or Path()) / source.file)
        case _:
            return str(source.path)
