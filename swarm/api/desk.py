"""What the api stands on, and who calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from swarm.answers import Exported, Role
from swarm.api.pool import Servers
from swarm.api.tokens import Tokens
from swarm.config_door import TokenConfig
from swarm.coordinator import Coordinator
from swarm.shown import DaemonHealth, DaemonStatus
from swarm.store.rows import Plan
from swarm.store.store import Store
from swarm.types import TaskRequest, TaskView


@dataclass(frozen=True)
class Desk:
    """Everything that the routes use. ``closing`` ends open streams, so that the server can stop.

    ``metrics`` makes the page for Prometheus. ``tokens`` are the rights of callers over TCP; without any, only the unix
    socket is answered. ``hosts`` are the names by which the daemon may be called there. ``export`` makes
    the file of a task or an attempt.
    """

    store: Store
    coordinator: Coordinator
    plan: Callable[[TaskRequest], Awaitable[Plan]]
    diff: Callable[[TaskView], Awaitable[str]]
    health: Callable[[], DaemonHealth]
    status: Callable[[], Awaitable[DaemonStatus]]
    metrics: Callable[[], Awaitable[bytes]] | None = None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    servers: Servers | None = None
    tokens: Tokens | None = None
    hosts: tuple[str, ...] = ()
    export: Callable[[str], Awaitable[tuple[Exported, bytes]]] | None = None

    def lets_in(self, caller: Caller) -> bool:
        """Whether a caller may still look: its token may have been revoked since it came in."""
        return caller.token is None or (self.tokens is not None and self.tokens.has(caller.token))


@dataclass(frozen=True)
class Caller:
    """Who calls, as the door found out: a user of this machine, or the name of a token, and which one."""

    name: str
    role: Role
    token: TokenConfig | None = None


def caller_of(request: Request) -> Caller:
    """Who makes a request; the guard has put it there."""
    found: Caller = request.state.caller
    return found


CallerOf = Annotated[Caller, Depends(caller_of)]
