"""The durable engine: DBOS on SQLite or Postgres behind the port of `swarm.runs`. No other file knows which it is.

Long, since all that DBOS has to be told or kept from stays in the one file that may import it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, SetWorkflowID, StepOptions, WorkflowStatus
from dbos import error as dbos_error
from sqlalchemy import event

from swarm.config_database import Address
from swarm.errors import StoreAwayError, StoreError
from swarm.runs import Act, Done, Ended, Flow, Ours, RunView, State
from swarm.store import postgres, sqlite
from swarm.store.schema import keep_private
from swarm.suspects import Suspects

T = TypeVar("T")

VERSION = "attempt-1"  # never to be raised: DBOS hands runs of one version to no process of another
SCHEMA = "engine"  # of the Postgres database, beside the store's
LIVES = 50  # processes that one run may end in a row: one that kills the daemon each time must not do so for ever
TOGETHER = 3  # processes that runs may end side by side, with nothing done; from then on each of them goes on alone
POLL = 1.0  # seconds between two looks at the own queue: what a takeover waits at most
WORD = 3.0  # seconds that stopping a run may wait for the database
LISTEN = 0.25  # seconds between two looks for signals where the database does not tell of them, and at most to close
DELETED = 100  # runs that one transaction deletes: on SQLite it keeps those that go on waiting
CONNECTIONS = 8  # to the database; more only wait for one another's commits
THREADS = 128  # for everything that blocks, DBOS's and the hall's: DBOS makes its pool the event loop's own

_STATES: dict[str, State] = {
    "ENQUEUED": "waiting",
    "DELAYED": "waiting",
    "PENDING": "running",
    "SUCCESS": "done",
    "ERROR": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
    "CANCELLED": "cancelled",
}
_UNFINISHED: tuple[State, ...] = ("waiting", "running")

log = logging.getLogger(__name__)
logging.getLogger("dbos").addHandler(logging.NullHandler())  # else it writes to the terminal by itself


@dataclass
class _Here:
    """A run that this process goes on with. ``stop`` is why its task was cancelled."""

    ended: asyncio.Future[Ended] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    task: asyncio.Task[Any] | None = None
    stop: Ended | None = None
    lives: int = 1
    done: int = 0
    adopted: bool = False


class DbosEngine:
    """DBOS, with a SQLite file of its own or a schema of its own in a Postgres database. One in a process: DBOS is one.

    ``host`` keeps apart those who share a database; no two processes may have the same at a time. What DBOS is not
    asked to do: recover by itself (its executor id is a new one in each life, so it finds nothing of its own), and
    share queues (each host listens to its own alone, on which only `adopt` puts runs). It refuses to keep a step
    of an execution that no longer owns its run, but does run it; hence ``ours``. Raises StoreError when the database
    cannot be used.
    """

    def __init__(
        self, where: Path | Address, host: str = "local", *, lives: int = LIVES, together: int = TOGETHER
    ) -> None:
        self._where = where
        self._lives = lives
        self._together = together
        self._suspects = Suspects(settle=2 * POLL)
        self._queue = f"swarm-{host}"
        self._executor = f"{host}-{secrets.token_hex(8)}"
        self._database: sa.Engine | None = None
        self._workflow: Flow | None = None
        self._ours: Ours | None = None
        self._done: Done | None = None
        self._here: dict[str, _Here] = {}
        self._parked: set[str] = set()

    async def open(self, flow: Flow, ours: Ours | None = None, done: Done | None = None) -> None:
        self._ours, self._done = ours, done
        try:
            if isinstance(self._where, Path):
                _require_sound(self._where)
            self._database = _database(self._where, self._executor)
            DBOS(config=_config(self._database, self._executor))
            self._workflow = DBOS.workflow(name="attempt")(self._wrap(flow))
            DBOS.listen_queues([self._queue])
            # Not in a thread: DBOS runs the flows on the loop that it is launched from.
            DBOS.launch()
            await DBOS.register_queue_async(self._queue, polling_interval_sec=POLL, on_conflict="always_update")
        except (sa.exc.DatabaseError, sqlite3.DatabaseError, dbos_error.DBOSException) as error:
            await self._destroy()
            raise _unusable(self._where, error) from error

    async def start(self, name: str) -> None:
        if name not in self._here:
            await self._begin(name)

    async def run(self, name: str) -> Ended:
        here = self._here.get(name) or await self._begin(name)
        while here.task is None and not here.ended.done():
            await asyncio.wait({here.ended}, timeout=2 * POLL)
            with contextlib.suppress(StoreAwayError):
                await self._look(name, here)  # another may have adopted it while it was on our queue
        ended = await asyncio.shield(here.ended)
        return await self._written(name, here, ended) if ended.how in {"done", "failed"} else ended

    async def adopt(self, *names: str) -> None:
        wanted = [name for name in names if name not in self._here]
        if not wanted:
            return
        taken: list[str] = []
        for status in await self._ask(partial(_list, workflow_ids=wanted)):
            name = status.workflow_id
            if _STATES[status.status] not in _UNFINISHED or name in self._here:
                continue
            here = self._here[name] = _Here(adopted=True)
            here.done = done = await self._got_done(name)
            here.lives = (1 if done > _number(status, "done", done) else _number(status, "lives", 1)) + 1
            given_up = here.lives > self._lives
            # The life of one that waits for its turn is counted once that comes.
            lives = here.lives - 1 if self._suspected(here) and not given_up else here.lives
            known = {"lives": lives, "done": done, "given up": given_up}
            await self._ask(partial(DBOS.update_workflow_attributes_async, name, known))
            if given_up:
                await self.cancel(name)
                continue
            self._parked.discard(name)
            taken.append(name)
        if taken:
            await self._ask(partial(DBOS.resume_workflows_async, taken, queue_name=self._queue))

    async def phase(self, name: str, act: Act) -> str:
        run = _running()
        raised: list[Exception] = []

        async def step() -> str:
            await self._require_ours(run)
            try:
                value = await act()
            except Exception as error:
                raised.append(error)
                raise asyncio.CancelledError from error  # DBOS would keep any other, and raise it in each later life
            await self._require_ours(run)
            return value

        try:
            with self._owned(run):
                value: str = await DBOS.run_step_async(StepOptions(name=name), step)
        except asyncio.CancelledError:
            if raised:
                raise raised[0] from None
            raise
        return value

    async def wait(self, topic: str, seconds: float) -> str | None:
        run = _running()
        with self._owned(run):
            value: str | None = await DBOS.recv_async(topic, timeout_seconds=seconds)
        await self._require_ours(run)
        return value

    async def timer(self, seconds: float) -> None:
        run = _running()
        with self._owned(run):
            await DBOS.sleep_async(max(seconds, 0.001))  # without a time it would be no step, and shift those behind it
        await self._require_ours(run)

    async def signal(self, name: str, topic: str, value: str) -> bool:
        try:
            await self._ask(partial(DBOS.send_async, name, value, topic))
        except dbos_error.DBOSNonExistentWorkflowError:
            return False
        return True

    async def cancel(self, name: str) -> None:
        await self._ask(partial(DBOS.cancel_workflow_async, name), WORD)
        self._stop(name, Ended("cancelled"))

    async def park(self, name: str) -> None:
        self._parked.add(name)
        here = self._here.get(name)
        self._stop(name, Ended("parked"))
        if here is not None and here.lives > 1:
            with contextlib.suppress(StoreAwayError):  # one life is counted too many then, and that is all
                await self._ask(partial(DBOS.update_workflow_attributes_async, name, {"lives": 1}), WORD)

    async def runs(self, *states: State, limit: int = 10_000) -> tuple[RunView, ...]:
        wanted = [name for name, state in _STATES.items() if state in (states or _UNFINISHED)]
        return tuple(_view(each) for each in await self._ask(partial(_list, status=wanted, limit=limit)))

    async def forget(self, *names: str) -> None:
        found = await self._ask(partial(_list, workflow_ids=list(names))) if names else []
        over = [each.workflow_id for each in found if _STATES[each.status] not in _UNFINISHED]
        over = [name for name in over if name not in self._here]  # its task may still be on its way out
        for start in range(0, len(over), DELETED):
            await self._ask(partial(DBOS.delete_workflows_async, over[start : start + DELETED]))
        self._parked.difference_update(over)

    async def close(self) -> None:
        tasks = [here.task for here in self._here.values() if here.task]
        await asyncio.gather(*(self.park(name) for name in list(self._here)))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._destroy()

    # Machinery

    def _suspected(self, here: _Here) -> bool:
        return here.lives > self._together

    @contextlib.asynccontextmanager
    async def _turn(self, name: str, here: _Here) -> AsyncIterator[None]:
        """Around a flow: one that may be what ends the process goes on with no other such beside it."""
        if not self._suspected(here):
            yield
            return

        async def getting_on() -> None:
            with contextlib.suppress(StoreError):
                while await self._got_done(name) <= here.done:  # noqa: ASYNC110 - the database tells it
                    await asyncio.sleep(POLL)

        async with self._suspects.turn(here.lives, getting_on):
            log.warning("run %s goes on alone: %d processes ended with it before it got on", name, here.lives - 1)
            with contextlib.suppress(StoreError):  # one life is counted too few then, and that is all
                known = {"lives": here.lives, "done": here.done}
                await self._ask(partial(DBOS.update_workflow_attributes_async, name, known))
            yield

    async def _got_done(self, name: str) -> int:
        """What grows while a run gets on: its phases that ended, and what ``done`` tells of those that have not."""
        steps = await self._ask(partial(DBOS.list_workflow_steps_async, name, load_output=False))
        return len(steps) + (self._done(name) if self._done else 0)

    async def _begin(self, name: str) -> _Here:
        """The run as it is here: begun now, or with its end filled in."""
        if self._workflow is None:
            raise RuntimeError("the engine is not open")
        here = self._here[name] = _Here()
        try:
            await self._ask(partial(_start, self._workflow, name))
            await self._look(name, here)
        except BaseException:
            self._drop(name, here, Ended("parked"))
            raise
        return here

    async def _look(self, name: str, here: _Here) -> None:
        """Let a run go that does not begin here, since it ended, was parked, or is another's."""
        if here.task is not None or here.ended.done():
            return
        (status,) = await self._ask(partial(_list, workflow_ids=[name], load_output=True))
        if here.task is None and (ended := self._standing(status, here)):
            self._drop(name, here, ended)

    def _standing(self, status: WorkflowStatus, here: _Here) -> Ended | None:
        """What a run comes to that has not begun here; None where it is about to."""
        match _STATES[status.status]:
            case "waiting" if here.adopted and status.queue_name == self._queue:
                return None
            case "running" if status.executor_id == self._executor and status.workflow_id not in self._parked:
                return None
            case "running" | "waiting":
                return Ended("parked" if status.workflow_id in self._parked else "lost")
            case _:
                return _ended(status)

    async def _written(self, name: str, here: _Here, ended: Ended) -> Ended:
        """The end as the database has it: a flow may end in the moment in which its run is adopted elsewhere.

        One that could not be written is parked: whoever adopts the run comes to the same end by what is remembered.
        """
        while True:
            over = here.task is None or here.task.done()
            try:
                (status,) = await self._ask(partial(_list, workflow_ids=[name], load_output=True))
            except StoreAwayError:
                await asyncio.sleep(POLL)
                continue
            match _STATES[status.status]:
                case "running" if status.executor_id == self._executor and over:
                    return Ended("parked")
                case "running" if status.executor_id == self._executor:
                    await asyncio.sleep(0.05)
                case "running" | "waiting":
                    return Ended("lost")
                case "done":
                    return _ended(status)
                case _:
                    return ended

    def _stop(self, name: str, ended: Ended) -> None:
        here = self._here.get(name)
        if here is None:
            return
        if here.task is None:
            self._drop(name, here, ended)
        elif here.stop is None:
            here.stop = ended
            here.task.cancel()

    def _drop(self, name: str, here: _Here, ended: Ended) -> None:
        """Let a run go, and tell whoever waits for it."""
        if self._here.get(name) is here:
            del self._here[name]
        if not here.ended.done():
            here.ended.set_result(ended)

    def _wrap(self, flow: Flow) -> Flow:
        async def attempt(name: str) -> str:
            here = self._here.get(name)
            if here is None:
                raise asyncio.CancelledError  # left on the queue by an earlier life; nobody asked for it
            earlier, here.task = here.task, asyncio.current_task()
            ended = Ended("cancelled")  # also where DBOS itself stops a cancelled run, between two phases
            try:
                if earlier is not None:  # taken from the queue twice: the later execution is the run's owner
                    earlier.cancel()
                    await asyncio.wait({earlier})
                async with self._turn(name, here):
                    value = await flow(name)
                    await self._require_ours(name)
                ended = Ended("done", value)
            except asyncio.CancelledError:
                ended = here.stop or Ended("cancelled")
                raise
            except Exception as error:
                log.exception("run %s broke", name)
                ended = Ended("failed", f"{type(error).__name__}: {error}")
                raise
            finally:
                if here.task is asyncio.current_task():
                    self._drop(name, here, ended)
            return value

        return attempt

    async def _ask(self, call: Callable[[], Coroutine[Any, Any, T]], within: float | None = None) -> T:
        """Ask DBOS apart from any flow: asked inside of one, the answer would become a step of it. Raises StoreError.

        What may be asked again DBOS asks again by itself, for as long as a Postgres server is away, and goes on so
        behind a call that was not waited for any longer than ``within`` seconds.
        """
        try:
            async with asyncio.timeout(within):
                return await asyncio.get_running_loop().create_task(call(), context=contextvars.Context())
        except sa.exc.DBAPIError as error:
            raise _failed(self._where, error) from error
        except TimeoutError as error:
            raise StoreAwayError(f"the engine's database {self._where} does not answer", "it is tried again") from error

    async def _require_ours(self, name: str) -> None:
        if self._ours is not None and not await self._ours(name):
            self._lose(name)

    @contextlib.contextmanager
    def _owned(self, name: str) -> Iterator[None]:
        """Around what DBOS refuses to a flow whose run another process adopted, or cannot write. Raises StoreError."""
        try:
            yield
        except dbos_error.DBOSWorkflowConflictIDError:
            self._lose(name)
        except sa.exc.DBAPIError as error:
            raise _failed(self._where, error) from error

    def _lose(self, name: str) -> None:
        # Leaving by a cancellation, since for any other end DBOS would look on until the other process ends the run.
        if (here := self._here.get(name)) is not None:
            here.stop = Ended("lost")
        raise asyncio.CancelledError

    async def _destroy(self) -> None:
        """End DBOS without taking the loop's threads along: it had put its own pool in their place, and ends that."""
        if self._database is None:
            return
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max_workers=1) as own:
            await loop.run_in_executor(own, partial(DBOS.destroy, destroy_registry=True))
        loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
        let_go(self._database)


def _running() -> str:
    name = DBOS.workflow_id
    if name is None:
        raise RuntimeError("there is no flow around this call")
    return name


def _failed(where: Path | Address, error: sa.exc.DBAPIError) -> StoreError:
    return postgres.refused(error, where) if isinstance(where, Address) else sqlite.failed(error)


async def _start(workflow: Flow, name: str) -> None:
    with SetWorkflowID(name):
        await DBOS.start_workflow_async(workflow, name)


async def _list(
    *,
    workflow_ids: list[str] | None = None,
    status: list[str] | None = None,
    limit: int | None = None,
    load_output: bool = False,
) -> list[WorkflowStatus]:
    return await DBOS.list_workflows_async(
        workflow_ids=workflow_ids, status=status, limit=limit, load_input=False, load_output=load_output
    )


def _number(status: WorkflowStatus, which: str, otherwise: int) -> int:
    found = (status.attributes or {}).get(which, otherwise)
    return found if isinstance(found, int) else otherwise


def _given_up(status: WorkflowStatus) -> bool:
    return bool((status.attributes or {}).get("given up"))


def _view(status: WorkflowStatus) -> RunView:
    return RunView(
        name=status.workflow_id,
        state="failed" if _given_up(status) else _STATES[status.status],
        executor=status.executor_id or "",
        lives=_number(status, "lives", 1),
        created=(status.created_at or 0) / 1000,
    )


def _ended(status: WorkflowStatus) -> Ended:
    """The end of a run that has one, as the database has it."""
    match _STATES[status.status]:
        case "done":
            return Ended("done", str(status.output))
        case "cancelled" if _given_up(status):
            return Ended("failed", f"it ended the process that ran it {_number(status, 'lives', 1) - 1} times in a row")
        case "cancelled":
            return Ended("cancelled")
        case _:
            return Ended("failed", f"the run ended as {status.status}: {status.error or 'too many restarts'}")


def _require_sound(path: Path) -> None:
    """Look before DBOS does, which would tell of a damaged file with a traceback. Raises sqlite3.DatabaseError."""
    keep_private(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        told = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if told != "ok":
            raise sqlite3.DatabaseError(told)


def _unusable(where: Path | Address, error: Exception) -> StoreError:
    if isinstance(where, Address) and isinstance(error, sa.exc.DBAPIError):
        return postgres.refused(error, where)
    why = str(getattr(error, "orig", error)).strip()
    mend = "see the server's own log"
    if isinstance(where, Path):
        mend = f"stop every daemon, then: mv {where} {where}.broken (attempts that were running start over)"
    return StoreError(f"the engine's database {where} cannot be used: {why}", mend)


def let_go(database: sa.Engine) -> None:
    """Close every connection, those too that a thread of DBOS still works with, and open no new one.

    Such threads are left behind where a server was away; each ends with its next connection.
    """
    event.listen(database, "do_connect", _closed)
    event.listen(database, "checkin", _not_kept)  # before the pool is given up: nobody looks into it again
    database.dispose()


def _closed(*_: object) -> None:
    raise StoreError("the engine is closed")


def _not_kept(connection: Any, _record: object) -> None:
    if connection is not None:
        connection.close()


def _database(where: Path | Address, executor: str) -> sa.Engine:
    # With an engine of ours SQLite gets the write-ahead log, which DBOS does not turn on by itself and which halves the
    # price of a step.
    pool: dict[str, Any] = {"pool_size": CONNECTIONS, "max_overflow": 0, "pool_timeout": 60, "pool_pre_ping": True}
    if isinstance(where, Address):
        args = postgres.reaching(f"agent-swarm engine {executor}")
        return sa.create_engine(postgres.url_of(where), hide_parameters=True, connect_args=args, **pool)
    engine = sa.create_engine(f"sqlite:///{where}", **pool)
    event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = "IMMEDIATE"
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _config(database: sa.Engine, executor: str) -> DBOSConfig:
    # Without a conductor key and with tracing off it talks to nobody.
    return DBOSConfig(
        name="agent-swarm",
        system_database_url=database.url.render_as_string(hide_password=False),
        system_database_engine=database,
        dbos_system_schema=SCHEMA,
        executor_id=executor,
        application_version=VERSION,
        log_level="ERROR",
        enable_otlp=False,
        max_executor_threads=THREADS,
        notification_listener_polling_interval_sec=LISTEN,
        notification_coalesce_sec=LISTEN,
    )
