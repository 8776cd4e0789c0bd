"""`swarm pool doctor`: what is wrong with the model servers, why it matters, and how to mend it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import typer

from pool.checkup import check_up
from pool.config import EmbeddedConfig, PoolConfig
from pool.doctor import Finding, failed
from pool.embedded import shortage
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.cli.pool.given import KeyOption, for_urls, no_key_without, server


def doctor(
    ctx: typer.Context,
    urls: Annotated[
        list[str] | None, typer.Argument(help="Servers to examine instead of the configured ones.", metavar="[URL]...")
    ] = None,
    key_env: KeyOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave the 7 s on an idle connection out.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Examine the model servers from here: a few tiny requests to each. Exit code 1 when something must be mended."""
    if not urls:
        no_key_without("a URL", key_env)
    pool = _of(urls, key_env) if urls else door.loaded(ctx, config).settings.pool
    found = (*door.run(check_up(pool, idle=not quick)), *_embedded(pool.embedded))
    if urls:
        found = tuple(one.model_copy(update={"what": for_urls(one.what), "mend": for_urls(one.mend)}) for one in found)
    if json:
        screen.document([finding.model_dump(mode="json") for finding in found])
    else:
        for finding in found:
            _print(finding)
    raise typer.Exit(Code.FAULT if failed(found) else Code.OK)


def _of(urls: list[str], key_env: str | None) -> PoolConfig:
    """A pool of bare addresses, all in a tier of its own, so that they are not held against one another."""
    names = {f"server-{number}": url for number, url in enumerate(urls, 1)}
    told = ({"name": name, "url": url, "tier": name} for name, url in names.items())
    return PoolConfig(endpoints=tuple(server(one, key_env) for one in told))


def _embedded(config: EmbeddedConfig) -> Iterator[Finding]:
    """Whether the embedded model could be served; it runs inside a gateway or daemon, with a key that only that has."""
    if not config.enabled:
        return
    subject = "embedded model"
    if short := shortage(config, os.environ):
        what, mend = short
        yield Finding(subject=subject, level="fail", what=what, why="its tier would have nobody", mend=mend)
        return
    what = "its server and its weights are here; while a gateway or daemon runs it: swarm pool status --verbose"
    yield Finding(subject=subject, level="ok", what=what)


def _print(finding: Finding) -> None:
    screen.say(f"{finding.level:<5} {finding.subject}: {finding.what}", screen.STYLES[finding.level])
    if finding.why:
        screen.say(f"      why:  {finding.why}")
    if finding.mend:
        screen.say(f"      mend: {finding.mend}")
