"""Durable runs: the port, and its adapter to DBOS on SQLite. No other file knows which engine it is.

A run is a flow, started once under a name, and made of phases. A phase that ended is never run again, whatever
happens to the process; one that was cut short is. What a phase returns is text and is kept with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, SetWorkflowID, StepOptions
from dbos import error as dbos_error
from sqlalchemy import event

from swarm.errors import StoreError
from swarm.store.schema import keep_private

Flow = Callable[[str], Coroutine[Any, Any, str]]
Act = Callable[[], Coroutine[Any, Any, str]]

EXECUTOR = "swarm"  # pinned: DBOS recovers only what its own executor id and application version began
VERSION = "attempt-1"  # to be raised when the order of phases changes, so that old runs are not replayed into new ones
LIVES = 50  # starts of one run before it is given up: one that kills the daemon each time must not do so for ever

_UNFINISHED = ["PENDING", "ENQUEUED", "DELAYED"]

log = logging.getLogger(__name__)
logging.getLogger("dbos").addHandler(logging.NullHandler())  # else it writes to the terminal by itself


@dataclass(frozen=True)
class Ended:
    """How a run ended. ``parked`` means it has not: the next process goes on with it. ``value`` is the flow's text."""

    how: Literal["done", "failed", "cancelled", "parked"]
    value: str = ""


class Engine(Protocol):
    """What the coordinator asks of a durable engine; `tests/contract/test_engine.py` holds an adapter to it."""

    async def recover(self, flow: Flow) -> tuple[str, ...]:
        """Open for business with ``flow``, and go on with every run that an earlier process left; their names."""

    async def run(self, name: str) -> Ended:
        """Start a run, or join it, and wait for its end. One that ended before is not run again."""

    async def phase(self, name: str, act: Act) -> str:
        """Inside a flow: what ``act`` returned, now or in an earlier life. Each name once a run, in the same order."""

    async def cancel(self, name: str) -> None:
        """Stop a run for good. Its flow sees CancelledError and may tidy up."""

    async def park(self, name: str) -> None:
        """Stop a run in this process only."""

    async def unfinished(self) -> tuple[str, ...]:
        """Names of runs that have not ended."""

    async def close(self) -> None:
        """Let go of everything. Runs that are still going are parked."""


class DbosEngine:
    """DBOS, with a SQLite file of its own. One in a process, since DBOS is one.

    Raises StoreError when the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._live: dict[str, asyncio.Task[Any]] = {}
        self._ended: dict[str, asyncio.Future[Ended]] = {}
        self._parking: set[str] = set()
        self._workflow: Flow | None = None

    async def recover(self, flow: Flow) -> tuple[str, ...]:
        try:
            _require_sound(self._path)
            DBOS(config=_config(self._path))
            self._workflow = DBOS.workflow(name="attempt", max_recovery_attempts=LIVES)(self._wrap(flow))
            # Not in a thread: DBOS runs the flows on the loop that it is launched from.
            DBOS.launch()
        except (sa.exc.DatabaseError, sqlite3.DatabaseError, dbos_error.DBOSException) as error:
            await _destroy()
            why = str(getattr(error, "orig", error))
            mend = (
                f"stop every daemon, then: mv {self._path} {self._path}.broken (attempts that were running start over)"
            )
            raise StoreError(f"the engine's database {self._path} cannot be used: {why}", mend) from error
        return await self.unfinished()

    async def run(self, name: str) -> Ended:
        if self._workflow is None:
            raise RuntimeError("the engine is not open")
        future = self._ended.setdefault(name, asyncio.get_running_loop().create_future())
        with SetWorkflowID(name):
            handle = await DBOS.start_workflow_async(self._workflow, name)
        status = await handle.get_status()
        if not future.done() and name not in self._live:
            match status.status:
                case "SUCCESS":
                    return Ended("done", await handle.get_result())
                case "CANCELLED":
                    return Ended("cancelled")
                case "ERROR" | "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
                    return Ended("failed", f"the run ended as {status.status}: {status.error or 'too many restarts'}")
                case _:
                    pass
        ended = await asyncio.shield(future)
        if ended.how in {"done", "failed"}:
            with contextlib.suppress(Exception):  # told by ``ended``; what is waited for is that DBOS wrote it down
                await handle.get_result(polling_interval_sec=0.1)
        self._ended.pop(name, None)
        return ended

    async def phase(self, name: str, act: Act) -> str:
        async def step() -> str:
            return await act()  # DBOS looks at the function to see whether it is async, which hides in a partial

        value: str = await DBOS.run_step_async(StepOptions(name=name), step)
        return value

    async def cancel(self, name: str) -> None:
        await DBOS.cancel_workflow_async(name)
        await self._stop(name, Ended("cancelled"))

    async def park(self, name: str) -> None:
        self._parking.add(name)
        await self._stop(name, Ended("parked"))

    async def unfinished(self) -> tuple[str, ...]:
        found = await DBOS.list_workflows_async(status=_UNFINISHED, load_input=False, load_output=False)
        return tuple(each.workflow_id for each in found)

    async def close(self) -> None:
        tasks = list(self._live.values())
        for name in list(self._live):
            await self.park(name)
        await asyncio.gather(*tasks, return_exceptions=True)
        await _destroy()

    async def _stop(self, name: str, ended: Ended) -> None:
        if task := self._live.get(name):
            task.cancel()
        else:
            self._resolve(name, ended)

    def _wrap(self, flow: Flow) -> Flow:
        async def attempt(name: str) -> str:
            task = asyncio.current_task()
            if task is None or name in self._parking:
                raise asyncio.CancelledError
            self._live[name] = task
            ended = Ended("cancelled")  # also where DBOS itself stops a cancelled run, between two phases
            try:
                value = await flow(name)
                ended = Ended("done", value)
            except asyncio.CancelledError:
                ended = Ended("parked" if name in self._parking else "cancelled")
                raise
            except Exception as error:
                log.exception("run %s broke", name)
                ended = Ended("failed", f"{type(error).__name__}: {error}")
                raise
            finally:
                del self._live[name]
                self._resolve(name, ended)
            return value

        return attempt

    def _resolve(self, name: str, ended: Ended) -> None:
        future = self._ended.setdefault(name, asyncio.get_running_loop().create_future())
        if not future.done():
            future.set_result(ended)


def _require_sound(path: Path) -> None:
    """Look before DBOS does, which would tell of a damaged file with a traceback. Raises sqlite3.DatabaseError."""
    keep_private(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        told = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if told != "ok":
            raise sqlite3.DatabaseError(told)


async def _destroy() -> None:
    """End DBOS without taking the loop's threads along: it had put its own pool in their place, and shuts that down."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=1) as own:
        await loop.run_in_executor(own, partial(DBOS.destroy, destroy_registry=True))
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))


def _config(path: Path) -> DBOSConfig:
    # With an engine of ours DBOS gets the write-ahead log, which it does not turn on by itself and which halves the
    # price of a step. Without a conductor key and with tracing off it talks to nobody.
    url = f"sqlite:///{path}"
    engine = sa.create_engine(url)
    event.listen(engine, "connect", _configure)
    return DBOSConfig(
        name="agent-swarm",
        system_database_url=url,
        system_database_engine=engine,
        executor_id=EXECUTOR,
        application_version=VERSION,
        log_level="ERROR",
        enable_otlp=False,
        notification_listener_polling_interval_sec=0.25,
    )


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = "IMMEDIATE"
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
