"""The daemon's process: one instance, everything open, a calm end on the first signal and a hard one on the second."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.metadata
import logging
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

from swarm.api.application import application
from swarm.api.desk import Desk
from swarm.api.tokens import Tokens
from swarm.config import DaemonConfig, Settings, secrets_known
from swarm.errors import DaemonError, StoreAwayError
from swarm.instance import alone, listening, remove_socket, socket_mark
from swarm.preflight import Preflight
from swarm.serving import Doors, TcpListener, listening_tcp
from swarm.shown import DaemonHealth, DaemonStatus
from swarm.telemetry.logs import configure
from swarm.telemetry.redaction import Redactor
from swarm.wiring import House, house

AGAIN = 2.0  # seconds until what runs beside the coordinator begins again
LEAVE = 90.0  # seconds after the drain's until the process ends, whatever still waits for a database that is away
THREADS = 5.0  # and once all else is closed
BROKEN = 60.0  # and where it was no outage that ended it
YOUNG = (5_000, 20, 20)  # the collector's thresholds; with Python's own it was high in a busy daemon's profile

log = logging.getLogger(__name__)

OpenHouse = Callable[[Settings], contextlib.AbstractAsyncContextManager[House]]


async def run_daemon(settings: Settings, *, open_house: OpenHouse = house) -> int:
    """Serve until SIGTERM or SIGINT, then drain; the exit code. ``open_house`` joins the parts.

    Raises DaemonError when it cannot start, also because another one runs, StoreError, SandboxError and PoolError.
    """
    telling = settings.telemetry
    redactor = Redactor(secrets_known(settings, os.environ))
    configure(telling.log_format, telling.log_level, redactor, host=platform.node())
    started = time.time()
    with alone(settings.daemon.state):
        async with open_house(settings) as made:
            with listening(settings.daemon) as listener, listening_tcp(settings.daemon.tcp) as tcp:
                daemon = Daemon(made, listener, started, tcp)
                _spare_the_collector()
                await daemon.serve()
    if daemon.signalled:
        _leave_within(THREADS)
    return 0


class Daemon:
    """A house with its door open."""

    def __init__(self, made: House, listener: socket.socket, started: float, tcp: TcpListener | None = None) -> None:
        self._house = made
        self._listener = listener
        self._tcp = tcp
        self._mark = socket_mark(made.settings.daemon.socket)
        self._started = started
        self._drain: asyncio.Task[None] | None = None
        self._desk = Desk(
            store=made.store,
            coordinator=made.coordinator,
            plan=made.plan,
            diff=made.diff,
            health=self.health,
            status=self.status,
            metrics=made.metrics,
            servers=made.pool,
            tokens=_tokens(made.settings.daemon),
            hosts=made.settings.daemon.tcp.hosts if made.settings.daemon.tcp else (),
            export=made.export,
        )

    @property
    def signalled(self) -> bool:
        """Whether it was told to end."""
        return self._drain is not None

    async def serve(self) -> None:
        """Work and answer until a signal. The api answers while running attempts are drained."""
        doors = Doors(application(self._desk), self._listener, self._tcp)
        with self._signals():
            answering = asyncio.create_task(doors.serve(), name="api")
            preflight = self._house.preflight()
            await preflight.once()
            working = asyncio.create_task(self._house.coordinator.run(), name="coordinator")
            following = self._following(preflight)
            config = self._house.settings.daemon
            where = f"{config.socket} and {config.tcp.address}" if config.tcp else str(config.socket)
            log.info("listening at %s as process %d", where, os.getpid())
            await asyncio.wait({answering, working}, return_when=asyncio.FIRST_COMPLETED)
            following.cancel()
            self._desk.closing.set()
            doors.stop()
            await answering
            if not working.done():
                raise DaemonError("the api ended by itself", "look into the daemon's log")
            _raise_of(working)
            if self._drain is not None:
                await self._drain
            log.info("stopped")

    def _following(self, preflight: Preflight) -> asyncio.Task[None]:
        """What runs beside the coordinator until it is cancelled: watchers, schedules and, where wanted, the forges.

        The failure of one of them ends nothing else, and a database that is away no one.
        """
        followup = self._house.followup()
        awaiting = self._house.awaiting(followup.tell_again) if followup else self._house.awaiting()
        beside = {
            "awaiting": awaiting.run,
            "upkeep": self._house.upkeep.run,
            "schedules": self._house.planner().run,
            "preflight": preflight.run,
        }
        if followup:
            beside["events"] = followup.run

        async def follow() -> None:
            async with asyncio.TaskGroup() as group:
                for name, run in beside.items():
                    group.create_task(_lasting(name, run), name=name)

        return asyncio.create_task(follow(), name="followup")

    def health(self) -> DaemonHealth:
        """Who this is."""
        return DaemonHealth(
            version=importlib.metadata.version("agent-swarm"),
            pid=os.getpid(),
            uid=os.geteuid(),
            started=self._started,
            draining=self._house.coordinator.draining,
        )

    async def status(self) -> DaemonStatus:
        """Everything that a person may want to know."""
        made = self._house
        return DaemonStatus(
            health=self.health(),
            workers=made.settings.daemon.workers,
            running=made.coordinator.running,
            counts=await made.store.counts(),
            repositories=tuple(sorted(made.settings.repositories)),
            tiers=made.settings.pool.askable,
            endpoints=made.endpoints(),
            sandbox=made.sandbox(),
            broker=await made.broker(),
            hosts=await made.store.hosts.all(),
        )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._signalled, each)
        try:
            yield
        finally:
            for each in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(each)

    def _signalled(self, number: signal.Signals) -> None:
        patience = self._house.settings.daemon.drain_timeout
        if self._drain is None:
            log.info("%s: finishing what runs, for at most %.0f s; once more stops at once", number.name, patience)
            self._drain = asyncio.get_running_loop().create_task(self._house.coordinator.drain(patience))
            _leave_within(patience + LEAVE)
            return
        log.warning("%s: stopping at once; the next start goes on with what was running", number.name)
        remove_socket(self._house.settings.daemon.socket, self._mark)
        # Everything that matters is on disk after each step, so this is the kill that a start recovers from.
        os._exit(128 + number)


def _spare_the_collector() -> None:
    """Have it walk no more through what was loaded to stay, and less often through the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*YOUNG)


def _leave_within(seconds: float) -> None:
    """End the process by then: the engine's threads ask a database that is away for ever, and Python waits for them.

    Everything that matters is on disk after each step.
    """
    leaving = threading.Timer(seconds, os._exit, (0,))
    leaving.daemon = True
    leaving.start()


def _tokens(config: DaemonConfig) -> Tokens | None:
    """Who may call over TCP; None where nobody listens there."""
    return Tokens(config.tokens, config.token_file) if config.tcp else None


async def _lasting(name: str, run: Callable[[], Awaitable[None]], pause: float = BROKEN) -> None:
    """Something that runs beside the coordinator: begun again when the database was away, and when it broke."""
    while True:
        try:
            await run()
        except StoreAwayError as error:
            log.warning("%s waits: %s", name, error)
            await asyncio.sleep(AGAIN)
        except Exception:
            log.exception("%s broke, and begins again in %.0f s", name, pause)
            await asyncio.sleep(pause)
        else:
            return


def _raise_of(working: asyncio.Task[None]) -> None:
    """The coordinator's error, out of the group that its tasks ran in."""
    error = working.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
