"""`swarm export` and `swarm replay`: an attempt in one file, and whether it comes to the same tree again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from sandbox.errors import WorkspaceError
from swarm.answers import Exported
from swarm.cli import door, screen, view
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.cli.salvage import opened, readable, require_readable
from swarm.cli.sandbox.given import settings_of
from swarm.client import DaemonClient
from swarm.config import RepositoryConfig, Settings
from swarm.errors import ReplayError
from swarm.replay import bundle
from swarm.replay.exporting import exported
from swarm.replay.making import ground_of, recording
from swarm.replay.record import Recording
from swarm.replay.replayer import Replayer
from swarm.replay.verdict import Verdict, told
from swarm.salvage.entries import task_of
from swarm.wiring import replaying

app = typer.Typer()


@app.command()
def export(
    ctx: typer.Context,
    wanted: Annotated[str, typer.Argument(metavar="TASK", help="A task, whose last attempt is meant, or an attempt.")],
    out: Annotated[Path | None, typer.Option("--output", "-o", help="The file; default: ATTEMPT.tar.gz here.")] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Write an attempt into one file: its journal without secrets, the base's files, and what it came to."""
    settings = door.loaded(ctx, config).settings
    path, facts = door.run(_exported(settings, wanted, out) if readable(settings) else _asked(settings, wanted, out))
    if missing := facts.unknown_secrets:
        screen.hint(
            f"WARNING: secrets that this user does not have were not looked for: {', '.join(missing)}. They may stand "
            "in the file. Give it to nobody; export again with these set, as where the daemon is started"
        )
    if json:
        screen.document({"file": str(path)} | facts.model_dump(mode="json"))
        return
    screen.say(f"{path} holds attempt {facts.attempt} ({facts.bytes} bytes)")
    screen.hint("it holds the repository's files as they were: give it to nobody who may not see those")
    if facts.struck:
        places = view.many(facts.struck, "place")
        screen.hint(f"what looked like a secret was struck out in {places}; a replay may differ there")


@app.command()
def replay(
    ctx: typer.Context,
    what: Annotated[str, typer.Argument(metavar="TASK|FILE", help="A task, an attempt, or a file of swarm export.")],
    diff: Annotated[bool, typer.Option("--diff", help="How the trees differ, as a unified diff.")] = False,
    known_as: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Image and set-up of this repository of swarm.toml.")
    ] = None,
    network: Annotated[bool, typer.Option("--network", help="Let the set-up reach the package registries.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Replay an attempt offline: 0 for the same, 20 for another tree, 22 for another way there, 21 where it cannot be.

    Its commands really run, in a sandbox, with the recorded answers. A file of a stranger's is as hostile as any
    repository: it reaches no network, none of the daemon's kept set-ups, and no repository's settings without --as.
    """
    if Path(what).is_file() or "/" in what or what.endswith(".gz"):
        settings = door.loaded(ctx, config).settings if known_as else settings_of(ctx, config)
        recorded, objects = bundle.read(Path(what))
        known = _known(settings, known_as) if known_as else RepositoryConfig()
    else:
        settings = door.loaded(ctx, config).settings
        recorded, objects = door.run(_recorded(settings, what))
        own = recorded.task.request.repository
        known = _known(settings, known_as) if known_as else settings.repositories.get(own, RepositoryConfig())
    _warn(settings, recorded, known, network=network)
    verdict = door.run(_replayed(settings, recorded, objects, known, network=network))
    if json:
        screen.document(verdict.model_dump(mode="json"))
    else:
        _say(verdict, diff=diff)
    if not verdict.same:
        raise typer.Exit(Code.NOT_WHOLE if verdict.alike else Code.DIFFERENT)


async def _exported(settings: Settings, wanted: str, out: Path | None) -> tuple[Path, Exported]:
    async with opened(settings, needed=True) as (shelf, store):
        assert store is not None  # noqa: S101 - it is needed; this tells mypy
        facts, content = await exported(store, shelf, settings, os.environ, wanted)
    path = out or Path(f"{facts.attempt}.tar.gz")
    bundle.write(path, content)
    return path, facts


async def _asked(settings: Settings, wanted: str, out: Path | None) -> tuple[Path, Exported]:
    """The daemon's own, for users who may not look into its folder."""
    task, number = task_of(wanted)
    async with DaemonClient(settings.daemon.socket) as client:
        found = await client.task(task if number else wanted)
        attempt = wanted if number else found.attempts[-1].id if found.attempts else None
        path = out or Path(f"{attempt or found.task.id}.tar.gz")
        return path, await client.export(found.task.id, path, attempt)


async def _recorded(settings: Settings, wanted: str) -> tuple[Recording, bytes]:
    require_readable(settings)
    async with opened(settings, needed=True) as (shelf, store):
        assert store is not None  # noqa: S101 - it is needed; this tells mypy
        return await recording(store, shelf, settings, wanted)


def _known(settings: Settings, name: str) -> RepositoryConfig:
    if (known := settings.repositories.get(name)) is None:
        raise ReplayError(f"swarm.toml has no [repositories.{name}]", "name one of those it has, or leave out --as")
    return known


async def _replayed(
    settings: Settings, recorded: Recording, objects: bytes, known: RepositoryConfig, *, network: bool
) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="agent-swarm-replay-") as folder:
        async with replaying(settings, Path(folder), known, network=network) as means:
            try:
                return await Replayer(recorded, means).run(objects)
            except WorkspaceError as error:
                raise ReplayError(f"the objects of the recording cannot be used: {error}") from error


def _warn(settings: Settings, recorded: Recording, known: RepositoryConfig, *, network: bool) -> None:
    """Say what is another ground than it was recorded on: the first thing to look at where trees differ."""
    if (known.setup or known.devcontainer) and known.setup_network != "none" and not network:
        screen.hint("its set-up reaches no package registry here; where it has to: --network")
    here = ground_of(settings, known)
    for name in type(here).model_fields:
        was, now = getattr(recorded.ground, name), getattr(here, name)
        if was != now and "auto" not in {was, now}:
            screen.hint(
                f"the {name} of its sandboxes was {was or 'the default'!r} and is {now or 'the default'!r} here"
            )


def _say(verdict: Verdict, *, diff: bool) -> None:
    screen.say("\n".join(told(verdict)))
    if diff and verdict.diff:
        screen.say(verdict.diff.rstrip("\n"))
    elif verdict.diff:
        screen.hint("see how the trees differ with --diff")
