"""`swarm repository examine`: finds how a checkout is tested, tries it in sandboxes, prints lines for swarm.toml."""

from __future__ import annotations

import json as jsons
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from sandbox.base import Sandbox
from sandbox.errors import ImageError
from sandbox.images.devcontainer import PLACES, read_devcontainer
from sandbox.trees.folder import folder_stream
from sandbox.trees.gitdir import tracked_files
from sandbox.trees.workspace import Workspace
from swarm.cli import door, screen
from swarm.cli.clean import one_line
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.cli.sandbox.copies import copy_folder
from swarm.cli.sandbox.ending import in_order
from swarm.cli.sandbox.given import own_state, settings_of
from swarm.config import RepositoryConfig, Settings
from swarm.config_docs import toml_value
from swarm.errors import ConfigError
from swarm.knowledge.briefing import Ground, environment_of, known_of
from swarm.knowledge.examining import Examination
from swarm.knowledge.examining import examine as examined
from swarm.knowledge.proving import SECONDS, Fresh
from swarm.known import Known
from swarm.rooms import Tree
from swarm.wiring import evaluating

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_DEVCONTAINER = 256 * 1024  # bytes


class Report(NamedTuple):
    """What was found of a checkout; ``devcontainer`` are lines about it."""

    name: str
    known: Known
    examination: Examination
    devcontainer: tuple[str, ...]


def examine(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A checkout; what git tracks is copied.", metavar="DIR")] = Path(),
    name: Annotated[
        str | None, typer.Option("--name", help="The broker's name of it; default: the folder's.", show_default=False)
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="Where no test runs without, install what its files ask for.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds that each command may take.")] = SECONDS,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Find how a repository is tested: read its files, try what they suggest in sandboxes, print lines for swarm.toml.

    Its own settings and workflows are read as data. What runs is a fixed set of usual commands, in a sandbox without
    network; a set-up reaches the package registries alone, and only with --network. Exit code 1 when no test runs.
    """
    settings = settings_of(ctx, config)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder", "name a checkout: swarm repository examine DIR")
    called = name or re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).strip("-._") or "repository"
    found = door.run(in_order(_examined(settings, folder, called, network=network, seconds=seconds)))
    if json:
        screen.document(_document(found))
    else:
        for line in told(found, network=network):
            screen.say(line)
    raise typer.Exit(Code.OK if found.examination.proved else Code.FAULT)


async def _examined(settings: Settings, folder: Path, name: str, *, network: bool, seconds: float) -> Report:
    if await tracked_files(folder) is None:
        screen.hint(f"{folder} is no git checkout: every file in it is copied, not only what a commit would hold")
    limit = settings.sandbox.limits.disk
    with copy_folder(own_state(settings)) as own:
        workspace = Workspace(own / "git")
        base = (await workspace.begin(folder_stream(folder, limit=limit), limit=limit)).base
        ground = Ground(workspace, name, base)
        (own / "rooms").mkdir()
        async with evaluating(settings, own / "rooms", models=False) as trials:

            def opened(setup: tuple[str, ...]) -> Fresh:
                key = jsons.dumps(setup)
                trials.repositories[key] = RepositoryConfig(setup=setup)

                @asynccontextmanager
                async def fresh() -> AsyncIterator[Sandbox]:
                    async with trials.rooms.open(trials.spec, Tree(workspace, key, base, base)) as prepared:
                        yield prepared.sandbox

                return fresh

            examination = await examined(await environment_of(ground), opened, network=network, seconds=seconds)
        return Report(name, await known_of(ground, ()), examination, await _devcontainer(ground))


async def _devcontainer(ground: Ground) -> tuple[str, ...]:
    found = await ground.workspace.heads(ground.base, [place.encode() for place in PLACES], limit=_DEVCONTAINER)
    for place, data in found.items():
        try:
            container = read_devcontainer(data.decode("utf-8", "replace"), place.decode())
        except ImageError as error:
            return (str(error),)
        taken = f"{place.decode()} is there; honour it with: devcontainer = true"
        return (taken, *container.told)
    return ()


def told(found: Report, *, network: bool) -> Iterator[str]:
    """The report for a person, with what to put into swarm.toml at its end."""
    examination = found.examination
    for tried in examination.tried:
        yield f"tried {tried.command}  ({tried.why}): {one_line(tried.went, 300)}, {tried.seconds:.1f} s"
    for guide in found.known.guides:
        more = f", {guide.left_out} characters of it are left out" if guide.left_out else ""
        yield f"agents are told {one_line(guide.path)}{more}"
    yield from (one_line(note, 400) for note in found.known.notes)
    yield from (one_line(line, 300) for line in found.devcontainer)
    if examination.proved is None:
        again = "" if network else "; once more with what they need installed: --network"
        yield f"no test command was found that runs{again}"
        return
    yield f"\n# {examination.proved.told}"
    yield from lines(found.name, examination)


def lines(name: str, examination: Examination) -> Iterator[str]:
    """The lines of swarm.toml."""
    if examination.proved is None:
        return
    yield f"[repositories.{name if _BARE.fullmatch(name) else toml_value(name)}]"
    yield f"test_command = {toml_value(examination.proved.command)}"
    if examination.setup:
        yield f"setup = {toml_value(examination.setup)}"


def _document(found: Report) -> dict[str, object]:
    return {
        "name": found.name,
        "examination": found.examination.model_dump(mode="json"),
        "guides": [{"path": each.path, "left_out": each.left_out} for each in found.known.guides],
        "notes": list(found.known.notes),
        "devcontainer": list(found.devcontainer),
        "settings": list(lines(found.name, found.examination)),
    }
