"""`swarm sandbox explain`: what is locked, and the flag or mechanism that keeps it on each backend."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated

import typer

from sandbox.images.sources import Dockerfile, Reference
from sandbox.rules.calls import ARCHITECTURES
from sandbox.rules.explain import calls_told
from sandbox.rules.explain import explain as told
from sandbox.types import Backend
from swarm.cli import screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.sandbox.given import (
    BackendOption,
    ImageOption,
    NetworkName,
    NetworkOption,
    image_of,
    settings_of,
    spec_of,
)


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
    spec = spec_of(settings, network).model_copy(update={"image": image and _told(image)})
    found = told(spec, machine if machine in ARCHITECTURES else "x86_64")
    names: tuple[Backend, ...] = (backend.value,) if backend else ("docker", "bwrap")
    if json:
        rows = [row.model_dump(include={"property", "asked", *names}) for row in found.rows]
        screen.document({"rows": rows, "raw": {name: found.raw[name] for name in names}})
        return
    screen.table(
        ("property", "what is allowed", *names),
        [(row.property, row.asked, *(getattr(row, name) for name in names)) for row in found.rows],
    )
    if not verbose:
        screen.hint("the raw settings: --verbose; whether this machine keeps them: swarm sandbox doctor")
        return
    for name in names:
        screen.say(f"\n{name}, as it is given to it:", "bold")
        screen.say("\n".join(f"  {line}" for line in found.raw[name]))
    screen.say("\nsystem calls that are refused, or narrowed where they are in brackets, and why:", "bold")
    for why, calls in calls_told():
        screen.say(f"  {why}: {calls}")


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
