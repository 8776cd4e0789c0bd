"""Who is up: one probe loop an endpoint, its last snapshot with age, and our own count of what we sent there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

from pool.config import EndpointConfig, PoolConfig
from pool.endpoint import Endpoint
from pool.errors import EndpointDeadError, PermanentError, PoolError
from pool.liveness import Event, Liveness, judge
from pool.selection import Candidate
from pool.types import EndpointStatus, Served
from pool.wire.metrics import Snapshot

log = logging.getLogger(__name__)

Clock = Callable[[], float]
JOIN_INTERVAL = 0.25  # seconds between probes of a server that somebody waits for


class Member:
    """One endpoint and everything known about it. Only the roster's loop and the router change it."""

    def __init__(self, config: EndpointConfig, settings: PoolConfig, clock: Clock) -> None:
        self.config = config
        self.name = config.name
        self.endpoint = Endpoint(config, connect_timeout=settings.connect_timeout)
        self.liveness = Liveness()
        self.served: Served | None = None
        self.native_tools = {"native": True, "text": False, "auto": None}[config.tools]
        self.in_flight = 0
        self.cooling_until = 0.0
        self.last_error = ""
        self._patience = settings.first_byte_timeout
        self._clock = clock
        self._snapshot: Snapshot | None = None
        self._scraped_at = 0.0
        self._moved_at = self._idle_at = clock()
        self.look_now = asyncio.Event()
        self._looks = 0
        self._probing = asyncio.Lock()
        self._canary = asyncio.Lock()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count one request of ours for as long as the block runs, however it ends."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def candidate(self, sessions: int = 0) -> Candidate:
        """This member as the choice sees it."""
        return Candidate(
            name=self.name,
            state=self.liveness.state if self.served is not None else "unknown",
            in_flight=self.in_flight,
            room=self.config.max_in_flight - self.in_flight,
            sessions=sessions,
            load=self._snapshot.load if self._snapshot else None,
            cooling=max(0.0, self.cooling_until - self._clock()),
            native_tools=self.native_tools,
        )

    def status(self, sessions: int = 0) -> EndpointStatus:
        """This member as people see it."""
        seen, snapshot = self.served, self._snapshot or Snapshot()
        return EndpointStatus(
            name=self.name,
            tier=self.config.tier,
            url=self.config.url,
            state=self.liveness.state,
            kind=seen.kind if seen else None,
            model=seen.model if seen else self.config.model,
            window=seen.window if seen else None,
            native_tools=self.native_tools,
            in_flight=self.in_flight,
            sessions=sessions,
            running=snapshot.running,
            waiting=snapshot.waiting,
            kv_usage=snapshot.kv_usage,
            age=self._clock() - self._scraped_at if self._snapshot else None,
            cooling=max(0.0, self.cooling_until - self._clock()),
            last_error=self.last_error,
        )

    @property
    def still_for(self) -> float:
        """Seconds since the engine was last seen to move: by its counters, by a piece or the whole of an answer."""
        return self._clock() - self._moved_at

    def moved(self) -> None:
        """The engine was just seen to move."""
        self._moved_at = self._clock()

    def learn(self, event: Event, error: PoolError | None = None) -> None:
        """Take one piece of evidence."""
        before, self.liveness = self.liveness, judge(self.liveness, event)
        if event == "request_ok":
            self.moved()
        if error is not None:
            self.last_error = str(error)
        if before.state != self.liveness.state:
            log.info("endpoint %s: %s -> %s (%s)", self.name, before.state, self.liveness.state, event)

    async def probe(self) -> None:
        """Look once. Whoever asks while somebody looks takes that look for its own."""
        looks = self._looks
        async with self._probing:
            if self._looks != looks:
                return
            try:
                pulse = await self.endpoint.probe()
            except EndpointDeadError as error:
                self.learn("probe_refused", error)
            except PermanentError as error:
                self.learn("probe_unready", error)
            except PoolError as error:
                self.learn("probe_silent", error)
            else:
                self._take(pulse.served, pulse.snapshot)
            self._looks += 1

    async def find_tools(self) -> bool | None:
        """Whether native tool calls work here; asked once of each model, None while nobody knows."""
        async with self._canary:
            if self.native_tools is None and self.served is not None:
                with self.hold():
                    try:
                        self.native_tools = await self.endpoint.calls_tools(self.served)
                    except PoolError as error:
                        self.last_error = str(error)
            return self.native_tools

    def _take(self, served: Served | None, snapshot: Snapshot | None) -> None:
        now = self._clock()
        if served is None:
            self.learn("probe_unready", PoolError(f"endpoint {self.name}: it answers that it is not ready"))
            return
        if self.config.tools == "auto" and (self.liveness.state == "down" or self.served not in (None, served)):
            self.native_tools = None  # it may have been started anew with other flags
        self.served = served
        before = self._snapshot.progress if self._snapshot else None
        progress = snapshot.progress if snapshot else None
        if progress != before:
            self.moved()
        if snapshot is None or not snapshot.load:
            self._idle_at = now
        self._snapshot, self._scraped_at = snapshot, now
        if progress is not None and now - max(self._moved_at, self._idle_at) >= self._patience:
            self.learn("probe_stalled", PoolError(f"endpoint {self.name}: its engine stands still with work in hand"))
        else:
            self.learn("probe_ok")


class Roster:
    """All members and their probe loops. Use as an async context manager; ``changed`` is called after each probe."""

    def __init__(self, settings: PoolConfig, *, clock: Clock, changed: Callable[[], None]) -> None:
        self.members = {config.name: Member(config, settings, clock) for config in settings.endpoints}
        self._interval = settings.probe_interval
        self._changed = changed

    def tier(self, name: str) -> list[Member]:
        """The members of a tier."""
        return [member for member in self.members.values() if member.config.tier == name]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe until the block ends; then close every connection."""
        async with AsyncExitStack() as stack:
            for member in self.members.values():
                await stack.enter_async_context(member.endpoint)
            loops = [asyncio.create_task(self._watch(member)) for member in self.members.values()]
            try:
                yield
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)

    async def look(self, tier: str) -> None:
        """Probe a whole tier now."""
        await asyncio.gather(*(member.probe() for member in self.tier(tier)))
        self._changed()

    async def _watch(self, member: Member) -> None:
        while True:
            await member.probe()
            self._changed()
            with contextlib.suppress(TimeoutError):  # not wait_for: in Python 3.11 it may swallow a cancellation
                async with asyncio.timeout(self._interval):
                    await member.look_now.wait()
            member.look_now.clear()
