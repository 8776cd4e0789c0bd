"""`swarm pool add, drain, admit, remove`: model servers in and out of a running pool."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Literal, TypeVar

import typer

from pool.config import NAME, EndpointConfig
from pool.errors import PoolConfigError, PoolError
from pool.types import EndpointStatus
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.pool import live
from swarm.cli.pool.given import KeyOption, server
from swarm.config import Settings
from swarm.pool_client import PoolClient

T = TypeVar("T")
Statuses = tuple[EndpointStatus, ...]
LOOK = 3.0  # seconds for a server that joins to show how it is


def _name(value: str) -> str:
    """A name that an endpoint can have: any other would mean another address of the pool."""
    if not re.fullmatch(NAME, value):
        raise PoolConfigError(f"{value[:80]!r} is no endpoint's name; list them with: swarm pool status")
    return value


NameArgument = Annotated[str, typer.Argument(help="The endpoint's name.", metavar="NAME")]
MemberArgument = Annotated[str, typer.Argument(help="The endpoint's name.", metavar="NAME", callback=_name)]


def add(
    ctx: typer.Context,
    name: NameArgument,
    url: Annotated[str, typer.Argument(help="Its base address, with or without /v1.", metavar="URL")],
    tier: Annotated[str, typer.Option("--tier", "-t", help="The tier that it serves.")] = "default",
    model: Annotated[str | None, typer.Option(help="The model to ask for.", show_default="its first")] = None,
    key_env: KeyOption = None,
    tools: Annotated[str, typer.Option(help="How tool calls are spoken: auto, native or text.")] = "auto",
    max_in_flight: Annotated[int, typer.Option(min=1, help="Requests at a time that it is sent.")] = 64,
    scheduling: Annotated[
        str | None, typer.Option(help="Its --scheduling-policy: fcfs or priority.", show_default=False)
    ] = None,
    socket: live.SocketOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Let a model server join the running pool, until it ends; put it into swarm.toml to keep it."""
    told = {"name": name, "url": url, "tier": tier, "model": model, "tools": tools, "scheduling": scheduling}
    endpoint = server({**told, "max_in_flight": max_in_flight}, key_env)
    settings = live.running(ctx, config, socket)
    whose, (before, after) = door.run(_asked(settings, lambda client: _joined(client, endpoint)))
    _say(name, "joining", f"{name} joins the tier {tier} of {whose}; see it with: swarm pool status", json=json)
    if tier not in {one.tier for one in before}:
        screen.hint(f"the tier {tier} is new: {name} is alone in it")
    for words in live.absent([one for one in after if one.name == name]):
        screen.hint(words)


def drain(
    ctx: typer.Context,
    name: MemberArgument,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait until nothing is in flight there.")] = 0.0,
    socket: live.SocketOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Send a model server nothing new; what is in flight there ends by itself. Exit code 8 when --wait was short."""
    settings = live.running(ctx, config, socket)
    empty = door.run(_asked(settings, lambda client: client.drain(name, wait)))[1]
    words = f"{name} is empty: stop it, or let it go with: swarm pool remove {name}" if empty else f"{name} drains"
    _say(name, "drained" if empty else "draining", words, json=json)
    if wait and not empty:
        raise PoolError(f"{name} still has requests in flight after {wait:g} s; they end by themselves")


def admit(
    ctx: typer.Context,
    name: MemberArgument,
    socket: live.SocketOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Take a drain back."""
    settings = live.running(ctx, config, socket)
    drained = door.run(_asked(settings, lambda client: _admitted(client, name)))[1]
    words = f"{name} is sent requests again" if drained else f"{name} was not draining; nothing changed"
    _say(name, "admitted", words, json=json)


def remove(
    ctx: typer.Context,
    name: MemberArgument,
    socket: live.SocketOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Let a model server go at once; what is in flight there is sent elsewhere."""
    settings = live.running(ctx, config, socket)
    door.run(_asked(settings, lambda client: client.remove(name)))
    _say(name, "removed", f"{name} is no longer in the pool", json=json)


async def _joined(client: PoolClient, endpoint: EndpointConfig) -> tuple[Statuses, Statuses]:
    """Join an endpoint; how all stood before, and stand once this one was looked at or `LOOK` seconds are over."""
    before = after = await client.status()
    await client.add(endpoint)
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK):
            while not any(one.name == endpoint.name and one.state != "unknown" for one in after):
                await asyncio.sleep(0.1)
                after = await client.status()
    return before, after


async def _admitted(client: PoolClient, name: str) -> bool:
    """Take a drain back; whether there was one."""
    drained = any(one.name == name and one.draining for one in await client.status())
    await client.admit(name)
    return drained


async def _asked(settings: Settings, question: Callable[[PoolClient], Awaitable[T]]) -> tuple[str, T]:
    async with live.reach(settings) as client:
        return client.whose, await question(client)


def _say(
    name: str, state: Literal["joining", "drained", "draining", "admitted", "removed"], words: str, *, json: bool
) -> None:
    if json:
        screen.document({"endpoint": name, "state": state})
    else:
        screen.say(words)
