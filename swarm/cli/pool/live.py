"""Where the commands about model servers look: at a running pool, or at the servers themselves from here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from pool.checkup import meet
from pool.config import GatewayConfig, PoolConfig
from pool.member import Member
from pool.roster import Roster
from pool.types import EndpointStatus
from swarm.cli import door
from swarm.config import Settings
from swarm.errors import ConfigError, DaemonError
from swarm.pool_client import DAEMON, GATEWAY, PoolClient

NOWHERE = "there is no swarm.toml"
LOOK = 4.0  # seconds for a server to show that it lives
EXAM = 120.0  # seconds for what it can do


SocketOption = Annotated[
    Path | None,
    typer.Option("--socket", help="The gateway's unix socket; needs no swarm.toml then.", show_default=False),
]


def running(ctx: typer.Context, config: Path | None, socket: Path | None) -> Settings:
    """The settings that lead to a running pool: a socket alone does. Raises ConfigError."""
    if socket is None:
        return _found(ctx, config)
    if config is not None:
        raise ConfigError("--socket and --config both say where the pool is", "give one of the two")
    return Settings(pool=PoolConfig(gateway=GatewayConfig(socket=str(socket.expanduser().absolute()))))


def _found(ctx: typer.Context, config: Path | None) -> Settings:
    try:
        return door.loaded(ctx, config).settings
    except ConfigError as error:
        if not str(error).startswith(NOWHERE):
            raise
        mend = "name the socket of a running gateway with --socket (swarm pool serve --socket PATH makes one)"
        raise ConfigError(str(error), f"{mend}, or {error.mend}") from None


def doors(settings: Settings) -> list[PoolClient]:
    """Whoever may serve a pool here, in the order in which they are tried: a gateway, then the daemon."""
    found = []
    if (told := settings.pool.gateway.socket) is not None and (socket := Path(told).expanduser()).exists():
        found.append(PoolClient(socket, GATEWAY, "the gateway"))
    return [*found, PoolClient(settings.daemon.socket, DAEMON, "the daemon")]


@asynccontextmanager
async def reach(settings: Settings) -> AsyncIterator[PoolClient]:
    """The first running pool that answers. Raises DaemonError where none does."""
    *others, last = doors(settings)
    for client in others:
        async with client:
            try:
                await client.status()
            except DaemonError:
                continue
            yield client
            return
    async with last:
        if settings.pool.gateway.socket is not None:
            await _heard(last, settings)
        yield last


async def _heard(daemon: PoolClient, settings: Settings) -> None:
    """Raises DaemonError, naming both places, where neither a gateway nor the daemon answers."""
    try:
        await daemon.status()
    except DaemonError as error:
        gateway, socket = settings.pool.gateway.socket, settings.daemon.socket
        message = f"no pool runs: no gateway answers at {gateway}, and no daemon at {socket}"
        raise DaemonError(message, "start one of them: swarm pool serve, or swarm daemon") from error


async def from_running(settings: Settings, *, needed: bool) -> tuple[str, tuple[EndpointStatus, ...]] | None:
    """Whose pool it is and how its endpoints stand; None where none runs. Raises DaemonError there if it is needed."""
    try:
        async with reach(settings) as client:
            return client.whose, await client.status()
    except DaemonError:
        if needed:
            raise
    return None


async def from_here(config: PoolConfig, *, examine: bool) -> tuple[EndpointStatus, ...]:
    """How the configured endpoints stand as seen from here; ``examine`` also asks what they can do."""
    roster = Roster(config.model_copy(update={"canaries": False}), clock=time.monotonic, changed=lambda: None)
    async with roster.running():
        members = roster.members.values()
        await asyncio.gather(*(_look(member, examine=examine) for member in members))
        return tuple(member.status() for member in members)


async def _look(member: Member, *, examine: bool) -> None:
    if await meet(member, LOOK) and examine:
        with suppress(TimeoutError):
            async with asyncio.timeout(EXAM):
                await member.examine()


def absent(found: Sequence[EndpointStatus]) -> Iterator[str]:
    """A warning for each server that cannot be asked now."""
    for one in found:
        if why := one.misfit or ("" if one.state == "up" else one.last_error or f"endpoint {one.name}: {one.phase}"):
            yield f"warning: {why}; it is asked as soon as it answers (swarm pool doctor tells more)"


def doubled(config: PoolConfig) -> Iterator[str]:
    """A warning for each address that several endpoints name."""
    names: dict[str, list[str]] = {}
    for one in config.endpoints:
        names.setdefault(one.url, []).append(one.name)
    for url, same in names.items():
        if len(same) > 1:
            yield f"warning: {', '.join(same)} all name {url}, which gets more than either allows; keep one of them"
