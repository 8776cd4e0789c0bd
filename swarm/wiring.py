"""The only place that names concrete parts: settings in, a house with everything joined out.

Long, since it names every part of the house once and decides nothing.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from pool.config import PoolConfig
from pool.embedded import serve_embedded
from pool.router import Pool
from pool.tiers.front import Tiers
from sandbox.base import Exits, SandboxBackend
from sandbox.config import WarmConfig
from sandbox.egress.denied import DeniedLog
from sandbox.egress.packages import PackagesExit
from sandbox.factory import choose_backend, chosen_backend, image_engine
from sandbox.images.prepare import Preparer
from sandbox.images.realise import Realiser, host_system
from sandbox.images.setup import Ground
from sandbox.images.shelf import shelves_in
from sandbox.trees.workspace import Workspace
from sandbox.types import SandboxSpec, SelfTest
from swarm import acceptance
from swarm.agents import agent_of, known_agents
from swarm.answers import Exported
from swarm.attempt import AttemptRun, Parts
from swarm.awaiting import Awaiting
from swarm.config import RepositoryConfig, Settings, secrets_known
from swarm.coordinating.pace import Pace
from swarm.coordinating.reconciling import find_salvage
from swarm.coordinating.station import Station, home_of, station
from swarm.coordinator import Coordinator
from swarm.delivery import BrokerClient
from swarm.engine import DbosEngine
from swarm.errors import BrokerError, StoreError
from swarm.evaluation.sets.places import places
from swarm.evaluation.trying import Means as Trials
from swarm.followup import Followup
from swarm.knowledge.briefing import Briefer
from swarm.knowledge.shelf import Shelf as Commands
from swarm.measuring import Measuring
from swarm.models import Models
from swarm.planner import Planner
from swarm.preflight import Ground as Footing
from swarm.preflight import Preflight
from swarm.replay.exporting import exported
from swarm.replay.replayer import REPLAYED, Means
from swarm.rescue import Rescuer
from swarm.rooms import Rooms
from swarm.salvage.shelf import Shelf
from swarm.salvage.upkeep import Upkeep
from swarm.scheduling.facts import Rules
from swarm.shown import BrokerView, EndpointView, SandboxView
from swarm.store.rows import Claim, Plan
from swarm.store.snapshots import Beginning
from swarm.store.store import Store
from swarm.store.verbs import Stand
from swarm.strategies.choice import small_tiers, strategy_named
from swarm.telemetry.redaction import Redactor
from swarm.telemetry.telemetry import Telemetry, opened
from swarm.types import Task, TaskRequest, TaskView
from swarm.ways_out import ways_out
from swarm.work import Strategy, unnoted
from swarm.workroom import SAVE_LIMIT, keep_for_fork

log = logging.getLogger(__name__)

BROKER_PATIENCE = 45.0  # seconds that a delivery waits for a broker that is being restarted
CATCH_UP = 0.2  # seconds between two steps of making sums that an earlier version did not keep
DOCKER = Path("/var/lib/docker")  # where a local engine keeps containers, unless told otherwise
ASK_PATIENCE = 2.0  # seconds to ask the broker something while a person waits


@dataclass(frozen=True)
class House:
    """Everything joined, for as long as its context lasts."""

    settings: Settings
    store: Store
    coordinator: Coordinator
    pool: Pool
    tiers: Tiers
    backend: SandboxBackend
    proved: SelfTest
    workspace: Callable[[str], Workspace]
    broker_client: BrokerClient
    telemetry: Telemetry
    upkeep: Upkeep

    async def plan(self, request: TaskRequest) -> Plan:
        """How a request will be worked on. Raises TaskError. The broker is only asked about names we do not know."""
        names: tuple[str, ...] = ()
        if request.repository not in self.settings.repositories:
            names = await self._repositories()
        return acceptance.plan(request, self.settings, names)

    async def diff(self, view: TaskView) -> str:
        """What the last attempt that left something changed; empty when none did."""
        workspace = self.workspace(view.task.request.repository)
        for attempt in reversed(view.attempts):
            sealed = await workspace.sealed_at(attempt.salvage) if attempt.salvage else None
            if sealed is not None:
                return await workspace.diff(sealed.base, sealed.tree)
        return ""

    async def export(self, wanted: str) -> tuple[Exported, bytes]:
        """An attempt as one file, and what is to be known of it. Raises TaskNotFoundError, ReplayError, StoreError."""
        shelf = Shelf(self.settings.daemon.state / "git", self.store)
        return await exported(self.store, shelf, self.settings, os.environ, wanted)

    def followup(self) -> Followup | None:
        """What listens to the forges; None where the settings want nothing to start from there."""
        if not self.settings.followup.enabled:
            return None
        return Followup(
            self.settings.daemon.state / "followup.json",
            broker=self.broker_client,
            store=self.store,
            coordinator=self.coordinator,
            plan=self.plan,
        )

    def planner(self) -> Planner:
        """What makes the runs of schedules."""
        return Planner(self.store.schedules, self.plan, self.coordinator.wake, self.store.clock)

    def preflight(self) -> Preflight:
        """What keeps tasks in the queue while something is missing that all of them need."""
        settings = self.settings
        docker = (DOCKER,) if self.proved.backend == "docker" and DOCKER.is_dir() else ()
        known = ((name, one.image) for name, one in settings.repositories.items())
        ground = Footing(
            folders=(settings.daemon.state, *docker),
            floor=settings.daemon.disk_floor,
            tiers=settings.pool.tiers,
            window=settings.scheduling.window,
            servers=self.pool.status,
            broker=self._away,
            images={name: Path(image) for name, image in known if image and image.startswith("/")},
        )
        return Preflight(ground, self.store.queue, self.coordinator.wake)

    async def _away(self) -> str:
        found = await self.broker()
        return "" if found.reachable else f"it does not answer at {found.socket} ({found.detail})"

    def awaiting(self, moved: Callable[[TaskView], None] = lambda _view: None) -> Awaiting:
        """What looks at the proposals that the broker still holds."""
        return Awaiting(self.store, self.broker_client, self.coordinator, moved)

    async def metrics(self) -> bytes:
        """The page for Prometheus. Raises StoreError."""
        measuring = Measuring(
            store=self.store,
            metrics=self.telemetry.metrics,
            state=self.settings.daemon.state,
            running=lambda: self.coordinator.running,
            draining=lambda: self.coordinator.draining,
            endpoints=self.endpoints,
            broker=self.broker,
        )
        return await measuring.page()

    def endpoints(self) -> tuple[EndpointView, ...]:
        """The pool's servers as they are now."""
        return tuple(EndpointView.of(status) for status in self.pool.status())

    def sandbox(self) -> SandboxView:
        """The chosen backend and what it proved at start."""
        found = self.proved
        return SandboxView(backend=found.backend, version=found.version, proved=found.proved, failed=found.failed)

    async def broker(self) -> BrokerView:
        """Whether the broker answers."""
        socket = self.settings.broker.socket
        try:
            async with BrokerClient(socket, patience=0, timeout=ASK_PATIENCE) as client:
                await client.health()
            uid = socket.stat().st_uid  # health names the caller; whoever listens owns the socket
        except (BrokerError, OSError) as error:
            return BrokerView(socket=str(socket), reachable=False, detail=str(error))
        return BrokerView(socket=str(socket), reachable=True, uid=uid)

    async def _repositories(self) -> tuple[str, ...]:
        try:
            async with BrokerClient(self.settings.broker.socket, patience=0, timeout=ASK_PATIENCE) as client:
                return tuple(each.name for each in (await client.repositories()).repositories)
        except BrokerError:
            return ()


@asynccontextmanager
async def house(
    settings: Settings,
    *,
    choose: Callable[..., Awaitable[SandboxBackend]] = choose_backend,
    strategy: Callable[[str], Strategy] | None = None,
) -> AsyncIterator[House]:
    """Open every part, in an order that leaves nothing behind when one cannot be opened: a list, and so a long one.

    ``choose`` and ``strategy`` take the place of the configured sandbox backend and of the known strategies.
    Raises StoreError, SandboxUnavailableError, PoolError and ConfigError.
    """
    state = settings.daemon.state
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(Store(settings.daemon.where()))
        telemetry = stack.enter_context(_telemetry(settings))
        store.listeners.append(telemetry.heard)
        pool = await stack.enter_async_context(Pool(await _with_embedded(settings, stack)))
        tiers = Tiers(pool, pool.config)
        models = Models(pool, tiers)
        denied = DeniedLog()
        exits = ways_out(settings.sandbox.egress, denied, connect=models.connect)
        backend = await choose(settings.sandbox, state=state, exits=exits)
        stack.push_async_callback(backend.close)
        proved = await backend.self_test()
        rooms = await stack.enter_async_context(_rooms(settings, backend, proved, exits, denied))
        workspaces = _workspaces(state / "git")
        limit = min(settings.sandbox.limits.disk, SAVE_LIMIT)
        await backend.sweep(Rescuer(store, workspaces, furniture=rooms.furniture, limit=limit))
        folders = [workspaces(kept.stem) for kept in sorted((state / "git").glob("*.git"))]
        await find_salvage(store, folders)
        for folder in folders:
            await folder.tidy()
        broker = await stack.enter_async_context(BrokerClient(settings.broker.socket, patience=BROKER_PATIENCE))
        role = station_of(settings)
        where = settings.daemon.where()
        engine = DbosEngine(state / "engine.db" if isinstance(where, Path) else where, role.member.facts.name)
        stack.push_async_callback(engine.close)
        parts = Parts(
            rooms=rooms,
            spec=SandboxSpec(limits=settings.sandbox.limits, env=settings.sandbox.env),
            pool=tiers,
            broker=broker,
            workspace=workspaces,
            strategy=strategy or _strategies(settings),
            test_command=_test_command(settings),
            note=lambda session, failed: tiers.note(session, failed_check=failed),
            proved=proved,
            models=models,
            agent_setup=_agent_setup(settings),
            prices=settings.prices,
            briefer=Briefer(settings.repositories, Commands(state / "discovered")),
            ladder=acceptance.ladder(settings),
            manners=settings.models,
            stall=settings.daemon.stall,
            delivery=settings.broker.patience,
        )

        def begin(claim: Claim) -> AttemptRun:
            return AttemptRun(parts, store, engine, claim)

        async def keep(stand: Stand, task: str) -> Beginning:
            return await keep_for_fork(workspaces(stand.request.repository), store, stand, task)

        store.queue.rules = _rules(settings)
        store.budgets.limits, store.budgets.currency = settings.budgets, settings.prices.currency
        await stack.enter_async_context(_catching_up(store))
        coordinator = Coordinator(
            store,
            engine,
            begin,
            station=role,
            keep=keep,
        )
        upkeep = Upkeep(store, state / "git", busy=lambda: bool(coordinator.running))
        store.listeners.append(upkeep.heard)
        stack.push_async_callback(upkeep.close)
        yield House(
            settings, store, coordinator, pool, tiers, backend, proved, parts.workspace, broker, telemetry, upkeep
        )


def station_of(settings: Settings) -> Station:
    """Which host this is, by the settings and the state folder."""
    daemon = settings.daemon
    return station(
        daemon.host or platform.node(),
        workers=daemon.workers,
        home=home_of(daemon.state),
        labels=frozenset((*daemon.labels, f"arch={platform.machine()}")),
        pace=Pace(beat=daemon.heartbeat, lease=daemon.lease, grace=daemon.grace),
        ladder=acceptance.ladder(settings),
    )


def _rules(settings: Settings) -> Rules:
    images = {name: known.image or settings.sandbox.image for name, known in settings.repositories.items()}
    return Rules(settings.scheduling.caps, {name: image for name, image in images.items() if image})


@asynccontextmanager
async def _catching_up(store: Store) -> AsyncIterator[None]:
    """Makes what an earlier version did not keep of where the time went, a few tasks at a time, beside all else."""

    async def catch_up() -> None:
        while True:
            if not await store.times.catch_up():
                return
            await asyncio.sleep(CATCH_UP)

    task = asyncio.create_task(catch_up(), name="where the time of earlier tasks went")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, StoreError):
            await task


async def _with_embedded(settings: Settings, stack: AsyncExitStack) -> PoolConfig:
    """The pool's settings, with the embedded model served and joined where that is asked for."""
    config = settings.pool
    if not config.embedded.enabled:
        return config
    serving = serve_embedded(config.embedded, log=settings.daemon.state / "embedded.log")
    endpoint = await stack.enter_async_context(serving)
    return config.model_copy(update={"endpoints": (*config.endpoints, endpoint)})


@asynccontextmanager
async def _rooms(
    settings: Settings, backend: SandboxBackend, proved: SelfTest, exits: Exits, denied: DeniedLog
) -> AsyncIterator[Rooms]:
    """What opens sandboxes on a repository's own image and with its set-up done; images and set-ups are kept."""
    config = settings.sandbox.images
    shelves = shelves_in(settings.daemon.state, config)
    packages = exits.get("packages")
    async with image_engine(backend) as engine:
        preparer = Preparer(
            backend,
            shelves.setups,
            templates=config.templates,
            told=lambda commands: log.info("a set-up begins: %s", commands),
            denied=lambda labels: tuple(
                f"{each.method} {each.host}:{each.port}{each.path}: {each.reason}"
                for each in denied.of(labels.get("task", ""), "setup")
            ),
        )
        rooms = Rooms(
            backend,
            preparer,
            Realiser(proved.backend, engine, shelves.images, config),
            Ground(
                backend=proved.backend,
                system=proved.detail.get("image") or await asyncio.to_thread(host_system),
                policy=packages.policy if isinstance(packages, PackagesExit) else "",
            ),
            settings.repositories,
        )
        try:
            yield rooms
        finally:
            await rooms.close()


def _telemetry(settings: Settings) -> AbstractContextManager[Telemetry]:
    redactor = Redactor(secrets_known(settings, os.environ))
    version = importlib.metadata.version("agent-swarm")
    return opened(settings.telemetry, redactor, os.environ, host=platform.node(), version=version)


@asynccontextmanager
async def replaying(
    settings: Settings, folder: Path, known: RepositoryConfig, *, network: bool
) -> AsyncIterator[Means]:
    """What attempts are replayed with: sandboxes, images and set-ups of ``folder`` alone, and neither pool nor broker.

    Nothing that the daemon keeps is taken or written: what is replayed may be a stranger's. ``known`` is how its
    sandboxes are made, whatever name the recording has. Without ``network`` no set-up reaches a registry, and no engine
    fetches an image. Raises SandboxUnavailableError.
    """
    images = settings.sandbox.images
    if not network:
        images = images.model_copy(update={"pull": "never", "build_network": "none"})
        known = known.model_copy(update={"setup_network": "none"})
    sandbox = settings.sandbox.model_copy(update={"warm": WarmConfig(max=0), "images": images})
    here = settings.model_copy(
        update={
            "daemon": settings.daemon.model_copy(update={"state": folder}),
            "sandbox": sandbox,
            "repositories": {REPLAYED: known},
        }
    )
    denied = DeniedLog()
    exits = ways_out(sandbox.egress, denied) if network else {}
    git = folder / "git"
    git.mkdir()
    spec = SandboxSpec(limits=sandbox.limits, env=sandbox.env)
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(chosen_backend(sandbox, state=folder, exits=exits))
        proved = await backend.self_test()
        rooms = await stack.enter_async_context(_rooms(here, backend, proved, exits, denied))
        yield Means(rooms, spec, _strategies(settings), git)


@asynccontextmanager
async def evaluating(
    settings: Settings,
    folder: Path,
    *,
    models: bool,
    climb: bool = True,
    choose: Callable[..., AbstractAsyncContextManager[SandboxBackend]] = chosen_backend,
) -> AsyncIterator[Trials]:
    """What cases of an evaluation are tried with: the daemon's own parts, without store, broker and repositories.

    ``folder``, which is there, holds what is made for the sandboxes; what earlier processes left there is removed.
    Without ``models`` no pool is opened and the embedded model is not started; without ``climb`` a strategy gets no
    other tier than its own. Raises SandboxUnavailableError and PoolError.
    """
    here = settings.model_copy(update={"daemon": settings.daemon.model_copy(update={"state": folder})})
    repositories: dict[str, RepositoryConfig] = {}
    denied = DeniedLog()
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(Pool(await _with_embedded(here, stack))) if models else None
        tiers = Tiers(pool, pool.config) if pool else None
        gateway = Models(pool, tiers) if pool and tiers else None
        exits = ways_out(here.sandbox.egress, denied, connect=gateway.connect if gateway else None)
        backend = await stack.enter_async_context(choose(here.sandbox, state=folder, exits=exits))
        proved = await backend.self_test()
        await backend.sweep()
        named = here.model_copy(update={"repositories": repositories})
        rooms = await stack.enter_async_context(_rooms(named, backend, proved, exits, denied))
        yield Trials(
            rooms=rooms,
            repositories=repositories,
            spec=SandboxSpec(limits=here.sandbox.limits, env=here.sandbox.env),
            strategy=_strategies(here),
            pool=tiers,
            models=gateway,
            agent_setup=_agent_setup(here),
            prices=here.prices,
            ladder=acceptance.ladder(here) if climb else (),
            manners=here.models,
            note=(lambda session, failed: tiers.note(session, failed_check=failed)) if tiers else unnoted,
            unseen=places(),
        )


def _agent_setup(settings: Settings) -> Callable[[str], tuple[str, ...]]:
    agents = known_agents(settings.agents)

    def setup(strategy: str) -> tuple[str, ...]:
        agent = agents.get(agent_of(strategy) or "")
        return agent.setup if agent else ()

    return setup


def _strategies(settings: Settings) -> Callable[[str], Strategy]:
    agents = known_agents(settings.agents)
    return partial(strategy_named, small_tiers=small_tiers(settings.pool), agents=agents, made=settings.strategies)


def _workspaces(folder: Path) -> Callable[[str], Workspace]:
    @cache
    def workspace(repository: str) -> Workspace:
        return Workspace(folder / f"{repository}.git")

    return workspace


def _test_command(settings: Settings) -> Callable[[Task], str | None]:
    def command(task: Task) -> str | None:
        operator = settings.repositories.get(task.request.repository)
        return task.request.test_command or (operator.test_command if operator else None)

    return command
