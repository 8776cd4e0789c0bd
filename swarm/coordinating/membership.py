"""One host's place among those that share a database: its heartbeat, its leases, and whether others still live."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from swarm.coordinating.pace import Pace
from swarm.coordinating.watching import Silence
from swarm.errors import DaemonError, StoreAwayError
from swarm.store.hosts import Member, Order
from swarm.store.rows import Claim
from swarm.store.store import Store

log = logging.getLogger(__name__)


class Membership:
    """Keeps the leases of the host that ``member`` is. ``clock`` only grows, and is read here alone."""

    def __init__(
        self, store: Store, member: Member, pace: Pace, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._member = member
        self._pace = pace
        self._clock = clock
        self._renewed = clock()
        self._silence = Silence(pace.lease + pace.grace)
        self._idle: set[tuple[str, int]] = set()

    @property
    def lost(self) -> bool:
        """Whether so much time has passed without a heartbeat that others may soon take what this host holds."""
        return self._clock() - self._renewed >= self._pace.lease

    async def join(self) -> tuple[Claim, ...]:
        """Begin this life; what an earlier one was delivering. Raises DaemonError and StoreError."""
        began = self._clock()
        claims = await self._store.hosts.register(self._member)
        self._renewed = began
        return claims

    async def beat(self) -> tuple[Order, ...] | None:
        """Renew all leases; the tasks that this host holds, None while the database is away.

        Raises DaemonError where another daemon has taken this host's name.
        """
        began = self._clock()
        try:
            left = self._renewed + self._pace.lease - began  # so that a loss is noticed when it comes, and is no end
            async with asyncio.timeout(left if left > 0 else self._pace.lease):
                orders = await self._store.hosts.beat(self._member)
        except (StoreAwayError, TimeoutError) as error:
            log.warning("the heartbeat did not come through: %s", error or "the database does not answer")
            return None
        if orders is None:
            raise DaemonError(
                f'another daemon has registered as host "{self._member.facts.name}"',
                "give one of them a name of its own: daemon.host in swarm.toml",
            )
        self._renewed = began
        return orders

    async def disown(self, orders: tuple[Order, ...], known: set[tuple[str, int]]) -> tuple[Claim, ...]:
        """Let go of what the database holds for ours and nobody here works on, seen so at two heartbeats in a row."""
        idle = {(order.task, order.fence) for order in orders} - known
        again, self._idle = idle & self._idle, idle
        claims = [await self._store.leases.disown(task, fence, self._member.facts) for task, fence in sorted(again)]
        return tuple(claim for claim in claims if claim is not None)

    async def inherit(self) -> tuple[Claim, ...]:
        """Take over what hosts held that are dead by now; claims for what they were delivering."""
        claims: list[Claim] = []
        for peer in await self._store.leases.peers(self._member.facts.name):
            if self._silence.dead(peer, self._clock()):
                log.warning("host %s is gone; its tasks go on elsewhere", peer.host or "(none)")
                claims += await self._store.leases.take_over(peer, self._member.facts)
        return tuple(claims)

    async def drain(self) -> None:
        """Say that this host claims nothing more."""
        await self._store.hosts.drain(self._member)

    async def leave(self) -> None:
        """End this life in order."""
        await self._store.hosts.leave(self._member)
