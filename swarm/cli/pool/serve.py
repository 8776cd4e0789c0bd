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
from uvicorn.loops.auto import auto_loop_factory

from pool.config import GatewayConfig, PoolConfig
from pool.errors import PoolError
from pool.gateway.service import Service
from pool.gateway.serving import Listening, listening, until_signalled
from pool.router import Pool
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.pool import live
from swarm.cli.pool.given import KeyOption, configured, no_key_without, server, with_embedded

LOOK = 2.0  # seconds
COLLECTOR = (5_000, 5, 200)  # new objects, and collections of the younger, after which the next older are looked at

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
    key_env: KeyOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Serve the pool as an OpenAI-compatible address. SIGTERM drains it, a second one stops it at once."""
    if not endpoint:
        no_key_without("--endpoint", key_env)
    chosen = _from_urls(endpoint, key_env) if endpoint else configured(door.loaded(ctx, config).settings)
    asked = {"host": host, "port": port, "socket": str(socket.expanduser().absolute()) if socket else None}
    gateway = chosen.gateway.model_copy(update={name: value for name, value in asked.items() if value is not None})
    work = _serve(chosen.model_copy(update={"gateway": gateway}), as_json=json)
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:  # uvloop, where it is installed
        runner.run(work)


def _from_urls(urls: list[str], key_env: str | None) -> PoolConfig:
    told = ({"name": f"server-{n}", "url": url} for n, url in enumerate(urls, 1))
    return PoolConfig(endpoints=tuple(server(one, key_env) for one in told))


async def _serve(config: PoolConfig, *, as_json: bool) -> None:
    async with AsyncExitStack() as stack:
        if config.embedded.enabled and not as_json:
            screen.hint("starting the embedded model")
        config = await stack.enter_async_context(with_embedded(config))
        pool = await stack.enter_async_context(Pool(config))
        here = await stack.enter_async_context(listening(Service.of(pool, os.environ)))
        await asyncio.gather(*(_look(pool, tier) for tier in config.tiers))
        _quiet_collector()
        _announce(config.gateway, here, as_json=as_json)
        for words in (*live.absent(pool.status()), *live.doubled(config)):
            screen.hint(words)
        await until_signalled(here)
        screen.hint("draining; a second signal stops at once")


def _quiet_collector() -> None:
    """Keep the garbage collector out of requests' way. They leave it nothing, which their tests hold: what it looks at
    are the sessions that are remembered, in vain, and all of them in a full collection, for tens of milliseconds."""
    gc.freeze()  # what is there now stays
    gc.set_threshold(*COLLECTOR)


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
