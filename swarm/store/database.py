"""The open database: transactions, one after the other, on a thread of their own, and the bell that tells of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from swarm.errors import StoreError
from swarm.store import journal
from swarm.store.opening import open_engine
from swarm.types import Step

T = TypeVar("T")
Act = Callable[[sa.Connection], T]

_LINES = "lines"  # where a connection keeps what its transaction has written into the journal

log = logging.getLogger(__name__)


class Database:
    """What every part of the store stands on. ``clock`` gives the time in seconds since 1970.

    Raises StoreError when it cannot be opened.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._engine = open_engine(path)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self.clock = clock
        self.bell = journal.Bell()
        self.listeners: list[Callable[[Step], None]] = []  # told of each line on the loop, once it is on disk

    async def close(self) -> None:
        """Finish what was handed in, then let go."""
        await asyncio.to_thread(self._thread.shutdown)
        self._engine.dispose()

    async def do(self, act: Act[T], *, ring: Callable[[T], str | None] = lambda _: None) -> T:
        """Run ``act`` as one transaction; ``ring`` names the task whose followers are woken. Raises StoreError."""
        found, lines = await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, act)
        for line in lines:
            for hear in self.listeners:
                hear(line)
        if task := ring(found):
            self.bell.ring(task)
        return found

    def soon(self, act: Act[Any]) -> None:
        """Have a transaction made and return at once; anything handed in later is later on disk too."""
        self._thread.submit(self._transact, act).add_done_callback(_complain)

    def note(
        self, connection: sa.Connection, task: str, kind: str, data: dict[str, Any], *, attempt: str | None = None
    ) -> Step:
        """Write a line of the journal inside the caller's transaction."""
        step = Step(task=task, attempt=attempt, seq=0, at=self.clock(), kind=kind, data=data)
        numbered = journal.append(connection, step)
        connection.info.setdefault(_LINES, []).append(numbered)
        return numbered

    def alone(self, connection: sa.Connection, name: str) -> None:
        """Wait until no other transaction holds this name, and hold it until the caller's ends. SQLite's writers are
        alone anyway."""
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(name))))

    def _transact(self, act: Act[T]) -> tuple[T, list[Step]]:
        try:
            with self._engine.begin() as connection:
                lines = connection.info[_LINES] = list[Step]()
                return act(connection), lines
        except sa.exc.DatabaseError as error:
            raise StoreError(
                f"the database failed: {error.orig}", "is the disk full, or the state folder gone?"
            ) from error


def _complain(future: Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.error("something could not be written down: %s", error)
