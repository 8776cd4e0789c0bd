"""`swarm pool serve`: the pool as one OpenAI-compatible server, for agents that know nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_log_path
from pydantic import ValidationError
from uvicorn.loops.auto import auto_loop_factory

from pool.config import EndpointConfig, GatewayConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.errors import PoolError
from pool.gateway.service import Service
from pool.gateway.serving import Listening, listening, until_signalled
from pool.router import Pool
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.config import Settings, missing_keys
from swarm.errors import ConfigError

LOOK = 2.0  # seconds

EndpointOption = Annotated[
    list[str] | None,
    typer.Option("--endpoint", metavar="URL", help="Serve this model server, with no swarm.toml; may be repeated."),
]


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes any.", show_default="8080")] = None,
    socket: Annotated[Path | None, typer.Option(help="A unix socket as well.", show_default=False)] = None,
    endpoint: EndpointOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Serve the pool as an OpenAI-compatible address. SIGTERM drains it, a second one stops it at once."""
    chosen = _from_urls(endpoint) if endpoint else _from_file(door.loaded(ctx, config).settings)
    asked = {"host": host, "port": port, "socket": str(socket.expanduser().absolute()) if socket else None}
    gateway = chosen.gateway.model_copy(update={name: value for name, value in asked.items() if value is not None})
    work = _serve(chosen.model_copy(update={"gateway": gateway}), as_json=json)
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:  # uvloop, where it is installed
        runner.run(work)


def _from_file(settings: Settings) -> PoolConfig:
    if missing := missing_keys(settings):
        listed = "\n".join(f"  {problem}" for problem in missing)
        raise ConfigError(f"keys are missing\n{listed}", "set them where the gateway is started")
    return settings.pool


def _from_urls(urls: list[str]) -> PoolConfig:
    try:
        endpoints = tuple(EndpointConfig(name=f"server-{n}", url=url) for n, url in enumerate(urls, start=1))
    except ValidationError as error:
        raise typer.BadParameter(f"--endpoint: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    return PoolConfig(endpoints=endpoints)


async def _serve(config: PoolConfig, *, as_json: bool) -> None:
    async with AsyncExitStack() as stack:
        if config.embedded.enabled:
            log = user_log_path("agent-swarm") / "embedded.log"
            own = await stack.enter_async_context(serve_embedded(config.embedded, log=log, environ=os.environ))
            config = config.model_copy(update={"endpoints": (*config.endpoints, own)})
        pool = await stack.enter_async_context(Pool(config))
        here = await stack.enter_async_context(listening(Service.of(pool, os.environ)))
        await asyncio.gather(*(_look(pool, tier) for tier in config.tiers))
        gc.freeze()  # what is there now stays: a full collection would else look at all of it, for tens of milliseconds
        _announce(config.gateway, here, as_json=as_json)
        await until_signalled(here)
        screen.hint("draining; a second signal stops at once")


async def _look(pool: Pool, tier: str) -> None:
    """Give a tier a moment to be found: requests would wait for it anyway, the list of models would not."""
    with contextlib.suppress(PoolError):
        await pool.ready(tier, timeout=LOOK)


def _announce(gateway: GatewayConfig, here: Listening, *, as_json: bool) -> None:
    host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
    url = f"http://{host}:{here.port}/v1"
    if as_json:
        screen.json_line({"url": url, "socket": gateway.socket, "keys": len(gateway.keys)})
        return
    screen.say(f"serving {url}" + (f" and {gateway.socket}" if gateway.socket else ""))
    screen.hint(f"for agents: OPENAI_BASE_URL={url}; Ctrl-C drains and stops")
