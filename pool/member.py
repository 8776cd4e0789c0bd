"""One endpoint and everything known about it: evidence of life, its last scrape with age, what it can do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pool.canaries import Canaries
from pool.config import EndpointConfig, PoolConfig
from pool.discovery import discover, with_snapshot
from pool.endpoint import Endpoint
from pool.errors import EndpointDeadError, PermanentError, PoolError
from pool.liveness import Event, Liveness, judge
from pool.placement.view import Site
from pool.types import CALLS, Capability, EndpointStatus, LifeState, Phase, Served, Trait, Traits
from pool.wire.capability import CAPABILITIES, Record
from pool.wire.metrics import Snapshot, restarted

log = logging.getLogger(__name__)

Clock = Callable[[], float]
REDISCOVER = 60.0  # seconds after which a server is asked again which models it lists
QUIET = 1.0  # seconds without a request of ours before an endpoint is asked canaries
RAMP, COLD = 10.0, 0.1  # slow start after a return: its length in seconds, and the warmth that it begins with
MOVING = 15.0  # seconds since one of our own streams moved, within which a silent probe is load
FRESH = 0.02  # seconds for which a view for placement is used again: making 32 of them costs as much as choosing
UNKNOWN = Snapshot()
SEEN_FIRST: frozenset[Capability] = frozenset((*CALLS, "priority"))  # never assumed: they must have been seen


class Member:
    """One endpoint. Only the roster's loop and the router change it.

    ``crowd`` bounds how many endpoints are asked canaries at a time; ``returned`` is called with the name when the
    server turns out to be another process than before, so that its cache is cold and its flags may be others.
    """

    def __init__(
        self,
        config: EndpointConfig,
        settings: PoolConfig,
        clock: Clock,
        *,
        crowd: asyncio.Semaphore | None = None,
        returned: Callable[[str], None] | None = None,
    ) -> None:
        self.config = config
        self.name = config.name
        self.endpoint = Endpoint(config, connect_timeout=settings.connect_timeout)
        self.liveness = Liveness()
        self.served: Served | None = None
        self.record: Record | None = None
        self.in_flight = 0
        self.cooling_until = 0.0
        self.last_error = ""
        self.misfit = ""
        self.draining = False
        self.restarts = 0
        self.look_now = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self._settings = settings
        self._clock = clock
        self._canaries = Canaries(self.endpoint, config, crowd or asyncio.Semaphore(1))
        self._returned = returned
        self._snapshot: Snapshot | None = None
        self._scraped_at = self._discovered_at = 0.0
        self._moved_at = self._idle_at = self._quiet_since = clock()
        self._back_at: float | None = None
        self._looks = self._changes = 0
        self._abilities: frozenset[str] = frozenset()
        self._site: Site | None = None
        self._site_key: tuple[object, ...] = ()
        self._site_at = 0.0
        self._probing = asyncio.Lock()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count one request of ours for as long as the block runs, however it ends. A canary in its way is dropped."""
        if self.in_flight + 1 >= self.config.max_in_flight:
            self._canaries.give_way()
        self.in_flight += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            self._quiet_since = self._clock()
            if not self.in_flight:
                self.idle.set()

    @property
    def snapshot(self) -> Snapshot | None:
        """The last scrape; None where there was none, or it could not be read."""
        return self._snapshot

    @property
    def native_tools(self) -> bool | None:
        """Whether tool calls were seen to work, or the operator says so; None while nobody knows."""
        told = {"native": True, "text": False, "auto": None}[self.config.tools]
        return self.seen("tools") if told is None else told

    @property
    def common(self) -> Traits:
        """What a tier may count on here: only what was seen to work, or what the operator says."""
        record = self.record
        return Traits(
            model=record.model if record else self.config.model or "",
            window=record.window if record else None,
            native=bool(self.native_tools),
            forced=bool(self.seen("forced_tools")),
            structured=bool(self.seen("json_schema")),
            reasoning=bool(self.seen("reasoning")),
        )

    @property
    def state(self) -> LifeState:
        """Whether it can be asked: a server that sleeps cannot."""
        if self.served is None:
            return "unknown"
        return "down" if self._snapshot and self._snapshot.asleep else self.liveness.state

    @property
    def phase(self) -> Phase:
        """How it is, for people."""
        evidence = self.liveness.evidence
        if self.liveness.state == "down":
            return "unready" if "probe_unready" in evidence else "dead"
        if self.liveness.state == "suspect":
            return "wedged" if "probe_stalled" in evidence else "silent"
        if self.liveness.state == "unknown":
            return "unknown"
        if self._snapshot and self._snapshot.asleep:
            return "asleep"
        return "busy" if self.in_flight or (self._snapshot and self._snapshot.load) else "idle"

    @property
    def abilities(self) -> frozenset[str]:
        """What it was seen to do, and what it may."""
        return self._abilities

    def site(
        self,
        in_flight: int | None = None,
        *,
        cooling: float = 0.0,
        warmth: float = 1.0,
        capabilities: frozenset[str] | None = None,
    ) -> Site:
        """This member as placement sees it.

        ``in_flight`` are our requests there as the brain counts them, ``cooling`` (seconds) and ``warmth`` what a
        breaker adds. ``capabilities`` stand for its abilities. Canaries take no room: they give way.
        """
        able = self._abilities if capabilities is None else capabilities
        count, now = self.in_flight if in_flight is None else in_flight, self._clock()
        key = (count, cooling, warmth, self.cooling_until, self.draining, self._changes, able)
        if self._site is None or self._site_key != key or now - self._site_at >= FRESH:
            self._site, self._site_key, self._site_at = self._look_like(count, cooling, warmth, able), key, now
        return self._site

    def _look_like(self, in_flight: int, cooling: float, warmth: float, able: frozenset[str]) -> Site:
        record, seen, config = self.record, self._snapshot or UNKNOWN, self.config
        return Site(
            name=self.name,
            tier=config.tier,
            state=self.state,
            room=max(0, config.max_in_flight - in_flight),
            cooling=max(cooling, self._cooling()),
            window=record.window if record else None,
            capabilities=able,
            running=seen.running,
            waiting=seen.waiting,
            kv_usage=seen.kv_usage,
            kv_tokens=record.kv_tokens if record else None,
            block_tokens=(record.block_tokens if record else None) or 16,
            age=self._clock() - self._scraped_at if self._snapshot else None,
            warmth=min(warmth, self._warmth()),
            group=config.share_group,
            role=config.role,
            draining=self.draining,
            transfer_rate=config.transfer_rate,
        )

    @property
    def trouble(self) -> str:
        """Why it is sent nothing, in words."""
        if self.draining:
            return f"endpoint {self.name}: draining (swarm pool admit {self.name} takes that back)"
        return self.last_error or f"endpoint {self.name}: {self.phase}"

    def status(self, sessions: int = 0) -> EndpointStatus:
        """This member as people see it."""
        record, seen = self.record, self._snapshot or UNKNOWN
        return EndpointStatus(
            name=self.name,
            tier=self.config.tier,
            url=self.config.url,
            state=self.liveness.state,
            kind=record.kind if record else None,
            model=record.model if record else self.config.model,
            window=record.window if record else None,
            native_tools=self.native_tools,
            in_flight=self.in_flight,
            sessions=sessions,
            running=seen.running,
            waiting=seen.waiting,
            kv_usage=seen.kv_usage,
            age=self._clock() - self._scraped_at if self._snapshot else None,
            cooling=self._cooling(),
            last_error=self.last_error,
            misfit=self.misfit,
            phase=self.phase,
            draining=self.draining,
            version=record.version if record else None,
            models=record.cards if record else (),
            slots=record.slots if record else None,
            block_tokens=record.block_tokens if record else None,
            kv_tokens=record.kv_tokens if record else None,
            hit_rate=seen.hit_rate(),
            waiting_by_reason=seen.waiting_by_reason,
            restarts=self.restarts,
            traits={name: self._canaries.traits.get(name, Trait(evidence="not tried yet")) for name in CAPABILITIES},
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
        self._changes += 1
        if event == "request_ok":
            self.moved()
        if error is not None:
            self.last_error = str(error)
        if before.state != self.liveness.state:
            log.info("endpoint %s: %s -> %s (%s)", self.name, before.state, self.liveness.state, event)
            if before.state == "down" and self.liveness.state == "up":
                self._back_at = self._clock()

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
                self._silent(error)
            else:
                await self._take(pulse.served, pulse.snapshot)
            self._looks += 1

    def seen(self, capability: Capability) -> bool | None:
        """Whether it was seen to be able to do something; None while nobody knows."""
        found = self._canaries.traits.get(capability)
        return {"yes": True, "no": False, "unknown": None}[found.verdict] if found else None

    async def find(self, capability: Capability) -> bool | None:
        """The same, asked once of each model where it is not known."""
        if self.seen(capability) is None and self.record is not None:
            await self._know(self.record, capability)
        return self.seen(capability)

    async def examine(self) -> None:
        """Ask every canary that was not answered yet, now. What cannot be learnt stays unknown."""
        if self.record is None:
            return
        self._canaries.about(self.record)
        for capability in self._canaries.missing():
            await self._know(self.record, capability)

    def ask_canaries(self) -> None:
        """Begin to ask canaries in the background, once it is up and has had no request of ours for a moment."""
        quiet = not self.in_flight and self._clock() - self._quiet_since >= QUIET
        if self._settings.canaries and self.record is not None and quiet and self.state == "up":
            self._canaries.begin(self.record, self._learnt)

    async def close(self) -> None:
        """Stop what runs in the background."""
        await self._canaries.close()

    async def _know(self, record: Record, capability: Capability) -> None:
        try:
            await self._canaries.know(record, capability)
        except PoolError as error:
            self.last_error = str(error)
        self._learnt()

    def _learnt(self) -> None:
        """Take over what the canaries told, or that it was forgotten."""
        traits = self._canaries.traits
        if self.record is not None:
            self.record = self.record.model_copy(update={"traits": dict(traits)})
        verdicts = {name: traits[name].verdict if name in traits else "unknown" for name in CAPABILITIES}
        self._abilities = frozenset(  # what was seen to work, and what may: unknown is not no
            name for name, told in verdicts.items() if told == "yes" or (told == "unknown" and name not in SEEN_FIRST)
        )
        self._changes += 1

    def _cooling(self) -> float:
        return max(0.0, self.cooling_until - self._clock())

    def _warmth(self) -> float:
        if self._back_at is None:
            return 1.0
        return min(1.0, COLD + (1 - COLD) * (self._clock() - self._back_at) / RAMP)

    def _silent(self, error: PoolError) -> None:
        """A probe without an answer, while our own streams move, is load."""
        if self.in_flight and self.still_for < MOVING and self.liveness.state == "up":
            self.last_error = str(error)
            return
        self.learn("probe_silent", error)

    async def _take(self, served: Served | None, snapshot: Snapshot | None) -> None:
        if served is None:
            self.learn("probe_unready", PoolError(f"endpoint {self.name}: it answers that it is not ready"))
            return
        before = self._snapshot
        if restarted(before, snapshot):
            self._restarted()
        elif self.liveness.state == "down" or self.served not in (None, served):
            self._canaries.forget()  # it may have been started anew with other flags
        await self._meet(served, snapshot)
        now = self._clock()
        progress = snapshot.progress if snapshot else None
        if progress != (before.progress if before else None):
            self.moved()
        if snapshot is None or not snapshot.load:
            self._idle_at = now
        self._snapshot, self._scraped_at = snapshot, now
        patience = self._settings.first_byte_timeout
        if progress is not None and now - max(self._moved_at, self._idle_at) >= patience:
            self.learn("probe_stalled", PoolError(f"endpoint {self.name}: its engine stands still with work in hand"))
        else:
            self.learn("probe_ok")

    async def _meet(self, served: Served, snapshot: Snapshot | None) -> None:
        """Keep the record true: discovered anew for another server, and now and then for its list of models."""
        now = self._clock()
        if self.record is None or self.served != served or now - self._discovered_at >= REDISCOVER:
            self.record = await discover(self.endpoint, served, snapshot)
            self._discovered_at = now
        else:
            self.record = with_snapshot(self.record, snapshot)
        self.served = served
        self._canaries.about(self.record)
        self._learnt()

    def _restarted(self) -> None:
        self.restarts += 1
        self._back_at = self._clock()
        self.record = None
        self._canaries.forget()
        log.info("endpoint %s: it was started anew; its cache is cold", self.name)
        if self._returned is not None:
            self._returned(self.name)
