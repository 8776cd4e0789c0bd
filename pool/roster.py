"""Who is in the pool: one probe loop a member; members join, drain and leave while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable

from pool.config import EndpointConfig, PoolConfig
from pool.errors import PoolConfigError
from pool.member import Clock, Member

log = logging.getLogger(__name__)

JOIN_INTERVAL = 0.25  # seconds between probes of a server that somebody waits for
CROWD = 4  # endpoints that are asked canaries at the same time
MOST_MEMBERS = 1024


class Roster:
    """All members and their probe loops. Use `running` as an async context manager.

    ``changed`` is called after each probe and whenever a member comes or goes, ``returned`` with the name of a member
    whose server turns out to be another process than before. Names of members are unique.
    """

    def __init__(
        self,
        settings: PoolConfig,
        *,
        clock: Clock,
        changed: Callable[[], None],
        returned: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._changed = changed
        self._returned = returned
        self._crowd = asyncio.Semaphore(CROWD)
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._running = False
        self.members = {config.name: self._member(config) for config in settings.endpoints}

    def tier(self, name: str) -> list[Member]:
        """The members of a tier, draining ones included."""
        return [member for member in self.members.values() if member.config.tier == name]

    @property
    def tiers(self) -> tuple[str, ...]:
        """Names of the tiers that have members, in the order in which they joined."""
        return tuple(dict.fromkeys(member.config.tier for member in self.members.values()))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe until the block ends; then close every connection."""
        self._running = True
        for member in self.members.values():
            self._begin(member)
        try:
            yield
        finally:
            self._running = False
            await asyncio.gather(*(self._end(member) for member in list(self.members.values())))

    async def look(self, tier: str) -> None:
        """Probe a whole tier now."""
        await asyncio.gather(*(member.probe() for member in self.tier(tier)))
        self._changed()

    def add(self, config: EndpointConfig) -> Member:
        """Let an endpoint join; it is probed at once, and asked nothing before it answered.

        Raises PoolConfigError for a name that is taken, and for one member too many.
        """
        if config.name in self.members:
            raise PoolConfigError(f"there is an endpoint {config.name!r} already; remove it first, or choose a name")
        if len(self.members) >= MOST_MEMBERS:
            raise PoolConfigError(f"the pool has {MOST_MEMBERS} endpoints, which is its limit; remove some")
        member = self.members[config.name] = self._member(config)
        log.info("endpoint %s: joins the tier %s", config.name, config.tier)
        if self._running:
            self._begin(member)
        self._changed()
        return member

    async def drain(self, name: str, within: float | None = None) -> bool:
        """Send it nothing new and wait until what is in flight has ended; True once it is empty.

        It stays a member, drained, until it is removed or admitted again. ``within`` bounds the wait in seconds.
        Raises PoolConfigError for a name that nobody has.
        """
        member = self._named(name)
        member.draining = True  # before the first wait: new work stops with the call
        log.info("endpoint %s: drains", name)
        self._changed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await member.idle.wait()
        return member.idle.is_set()

    def admit(self, name: str) -> None:
        """Take a drain back. Raises PoolConfigError for a name that nobody has."""
        self._named(name).draining = False
        self._changed()

    async def remove(self, name: str) -> None:
        """Let a member go, at once: what is in flight there breaks and is sent elsewhere.

        Raises PoolConfigError for a name that nobody has.
        """
        member = self._named(name)
        del self.members[name]
        log.info("endpoint %s: leaves", name)
        self._changed()
        await self._end(member)

    async def reload(self, endpoints: Iterable[EndpointConfig]) -> tuple[str, ...]:
        """Make the members those of a new configuration; gives the names of those that came, went or changed.

        One whose settings changed leaves and joins anew; those that did not change keep all that is known of them.
        """
        wanted = {config.name: config for config in endpoints}
        gone = [name for name, member in self.members.items() if wanted.get(name) != member.config]
        for name in gone:
            await self.remove(name)
        new = [name for name in wanted if name not in self.members]
        for name in new:
            self.add(wanted[name])
        return tuple(dict.fromkeys([*gone, *new]))

    def _member(self, config: EndpointConfig) -> Member:
        return Member(config, self._settings, self._clock, crowd=self._crowd, returned=self._returned)

    def _named(self, name: str) -> Member:
        if name not in self.members:
            known = ", ".join(self.members) or "none"
            raise PoolConfigError(f"there is no endpoint {name!r} (endpoints: {known})")
        return self.members[name]

    def _begin(self, member: Member) -> None:
        self._loops[member.name] = asyncio.create_task(self._watch(member), name=f"probe {member.name}")

    async def _end(self, member: Member) -> None:
        if (loop := self._loops.pop(member.name, None)) is not None:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
        async with member.endpoint:  # leaving it closes its connections
            await member.close()

    async def _watch(self, member: Member) -> None:
        while True:
            await member.probe()
            member.ask_canaries()
            self._changed()
            with contextlib.suppress(TimeoutError):  # not wait_for: in Python 3.11 it may swallow a cancellation
                async with asyncio.timeout(self._settings.probe_interval):
                    await member.look_now.wait()
            member.look_now.clear()
