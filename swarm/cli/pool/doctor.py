"""`swarm pool doctor`: what is wrong with the model servers, why it matters, and how to mend it."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from pool.checkup import check_up
from pool.config import EndpointConfig, PoolConfig
from pool.doctor import Finding, failed
from pool.errors import PoolConfigError
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code


def doctor(
    ctx: typer.Context,
    urls: Annotated[
        list[str] | None, typer.Argument(help="Servers to examine instead of the configured ones.", metavar="[URL]...")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave the 7 s on an idle connection out.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Examine the model servers from here: a few tiny requests to each. Exit code 1 when something must be mended."""
    pool = _of(urls) if urls else door.loaded(ctx, config).settings.pool
    found = door.run(check_up(pool, idle=not quick))
    if json:
        screen.document([finding.model_dump(mode="json") for finding in found])
    else:
        for finding in found:
            _print(finding)
        if not found:
            screen.hint("no endpoint is configured; name one: swarm pool doctor URL")
    raise typer.Exit(Code.FAULT if failed(found) else Code.OK)


def _of(urls: list[str]) -> PoolConfig:
    """A pool of bare addresses, all in a tier of its own, so that they are not held against one another."""
    try:
        return PoolConfig(
            endpoints=tuple(
                EndpointConfig(name=f"server-{number}", url=url, tier=f"server-{number}")
                for number, url in enumerate(urls, 1)
            )
        )
    except ValidationError as error:
        raise PoolConfigError(error.errors(include_url=False, include_input=False)[0]["msg"]) from None


def _print(finding: Finding) -> None:
    screen.say(f"{finding.level:<5} {finding.subject}: {finding.what}", screen.STYLES[finding.level])
    if finding.why:
        screen.say(f"      why:  {finding.why}")
    if finding.mend:
        screen.say(f"      mend: {finding.mend}")
