"""`swarm pool`: how the model servers stand, and the embedded model served by hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_log_path

from pool.config import EmbeddedConfig, EndpointConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.errors import NoEndpointError, PoolError
from pool.router import Pool
from swarm.cli import door, screen, view
from swarm.cli.door import ConfigOption, JsonOption
from swarm.client import DaemonClient
from swarm.config import Settings
from swarm.config_docs import toml_value
from swarm.errors import DaemonError
from swarm.types import EndpointView

app = typer.Typer(no_args_is_help=True)
LOOK = 4.0  # seconds for a server to show that it lives


@app.callback()
def pool() -> None:
    """The model servers."""


@app.command()
def status(
    ctx: typer.Context,
    direct: Annotated[bool, typer.Option("--direct", help="Look from here, not through the daemon.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show each model server; exit code 8 when a tier has none alive. Looks from here when no daemon answers."""
    settings = door.loaded(ctx, config).settings
    seen = None if direct else door.run(_from_daemon(settings))
    source = "the daemon" if seen is not None else "here"
    views = seen if seen is not None else door.run(_from_here(settings.pool))
    if json:
        screen.document({"seen_from": source, "endpoints": [one.model_dump(mode="json") for one in views]})
    else:
        screen.table(view.ENDPOINT_HEADERS, [view.endpoint(one) for one in views])
        screen.hint(f"as seen from {source}")
    dead = set(settings.pool.tiers) - {one.tier for one in views if one.up}
    if settings.pool.embedded.enabled and source == "here":
        dead.discard(settings.pool.embedded.tier)  # the daemon starts it; nothing is to be seen before
    if dead:
        raise NoEndpointError(f"no model server is alive in: {', '.join(sorted(dead))}")


@app.command()
def up(
    ctx: typer.Context,
    embedded: Annotated[bool, typer.Option("--embedded", help="Serve the model that ships with the project.")] = False,
    parallel: Annotated[int | None, typer.Option(min=1, max=64, help="Sequences decoded together.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Processor threads.")] = None,
    weights: Annotated[Path | None, typer.Option(help="A GGUF file.", show_default=False)] = None,
    log: Annotated[Path | None, typer.Option(help="Where the server's words go.", show_default=False)] = None,
    json: JsonOption = False,
) -> None:
    """Serve the embedded model in the foreground and say how to join it; Ctrl-C stops it."""
    if not embedded:
        ctx.fail("say what to serve: swarm pool up --embedded")
    asked = {"parallel": parallel, "threads": threads, "weights": str(weights) if weights else None}
    chosen = EmbeddedConfig.model_validate({"enabled": True} | {k: v for k, v in asked.items() if v is not None})
    door.run(_serve(chosen, log or user_log_path("agent-swarm") / "embedded.log", json=json))


def joined(endpoint: EndpointConfig) -> dict[str, object]:
    """What a swarm.toml says to join an endpoint, its key included: whoever starts a server may know it."""
    return {
        "name": endpoint.name,
        "url": f"{endpoint.url}/v1",
        "tier": endpoint.tier,
        "tools": endpoint.tools,
        "max_in_flight": endpoint.max_in_flight,
    } | ({"api_key": endpoint.api_key.get_secret_value()} if endpoint.api_key else {})


async def _serve(config: EmbeddedConfig, log: Path, *, json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serve_embedded(config, log=log, environ=os.environ) as endpoint:
        lines = joined(endpoint)
        if json:
            screen.json_line(lines)
        else:
            screen.say("serving the embedded model; while this runs, a swarm.toml joins it with:\n\n[[pool.endpoints]]")
            screen.say("\n".join(f"{name} = {toml_value(value)}" for name, value in lines.items()))
            screen.hint(f"\nits log is {log}; Ctrl-C stops it")
        await stop.wait()


async def _from_daemon(settings: Settings) -> tuple[EndpointView, ...] | None:
    with contextlib.suppress(DaemonError):
        async with DaemonClient(settings.daemon.socket, timeout=10.0) as client:
            return (await client.status()).endpoints
    return None


async def _from_here(config: PoolConfig) -> tuple[EndpointView, ...]:
    if not config.endpoints:
        return ()
    async with Pool(config) as servers:
        tiers = dict.fromkeys(endpoint.tier for endpoint in config.endpoints)
        await asyncio.gather(*(_look(servers, tier) for tier in tiers))
        return tuple(EndpointView.of(one) for one in servers.status())


async def _look(servers: Pool, tier: str) -> None:
    """Wait until a server of the tier lives, or until it is clear that none does; the status then tells."""
    with contextlib.suppress(PoolError):
        await servers.ready(tier, timeout=LOOK)
