"""`swarm doctor`: everything a run stands on, examined; each line says ok, warn or fail and the mend."""

from __future__ import annotations

import asyncio
from pathlib import Path

import typer
from platformdirs import user_state_path

from swarm.cli import door, examine, screen
from swarm.cli.advice import cautions
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.cli.judge import Finding
from swarm.config_file import Loaded
from swarm.errors import ConfigError

app = typer.Typer()


@app.command()
def doctor(ctx: typer.Context, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Examine this installation and say what to mend; exit code 1 when something must be."""
    found = [examine.python(), door.run(examine.git())]
    try:
        loaded = door.loaded(ctx, config)
    except ConfigError as error:
        found.append(Finding(subject="config", level="fail", text=str(error), mend=error.mend))
        found.append(examine.disk(user_state_path("agent-swarm").absolute()))
    else:
        found += [*_settings(loaded), examine.disk(loaded.settings.daemon.state), *door.run(_machinery(loaded))]
    if json:
        screen.document([finding.model_dump(mode="json") for finding in found])
    else:
        for finding in found:
            _print(finding)
    raise typer.Exit(Code.FAULT if any(finding.level == "fail" for finding in found) else Code.OK)


def _settings(loaded: Loaded) -> list[Finding]:
    return [
        Finding(subject="config", level="ok", text=str(Path(loaded.path).absolute())),
        *(
            Finding(subject="config", level="warn", text=f"{odd.key}: {odd.text}", mend=odd.mend)
            for odd in cautions(loaded)
        ),
    ]


async def _machinery(loaded: Loaded) -> list[Finding]:
    settings = loaded.settings
    answer, status = await examine.daemon(settings)
    uid = status.health.uid if status else None
    broker, endpoints, sandbox = await asyncio.gather(
        examine.broker(settings, uid), examine.endpoints(settings, status), examine.sandbox(settings, status)
    )
    docker = examine.docker_socket(uid) if uid is not None else None
    return [answer, *broker, *([docker] if docker else []), *endpoints, sandbox]


def _print(finding: Finding) -> None:
    screen.say(f"{finding.level:<5} {finding.subject}: {finding.text}", screen.STYLES[finding.level])
    if finding.mend:
        screen.say(f"      mend: {finding.mend}")
