"""The open database: transactions, one after the other, on a thread of their own, and the bell that tells of them.

Heartbeats have a thread, and where the database is shared a connection, to themselves: they wait behind no other call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from swarm.config_database import Address
from swarm.store import clocks, journal, news
from swarm.store.transactions import Act, Transactions, transactions
from swarm.types import Step

T = TypeVar("T")

LINGER = 0.05  # seconds that what may be written soon waits for a transaction that it can go along with

_LINES = "lines"  # where a connection keeps what its transaction has written into the journal

log = logging.getLogger(__name__)


class _ServerClock:
    """The server's clock, whatever ours says: read with every question, and gone on with in between."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def ask(self, connection: sa.Connection) -> float:
        """The time, exactly."""
        epoch = sa.extract("epoch", sa.func.clock_timestamp())
        found = float(connection.execute(sa.select(sa.cast(epoch, sa.Float))).scalar_one())
        self._ahead = found - time.monotonic()
        return found

    def __call__(self) -> float:
        return time.monotonic() + self._ahead


class Database:
    """What every part of the store stands on. ``clock`` gives the time in seconds since 1970.

    One that is opened for ``reading`` is neither made nor changed. Raises StoreError when it cannot be opened.
    """

    def __init__(self, where: Path | Address, *, clock: Callable[[], float] = time.time, reading: bool = False) -> None:
        with contextlib.ExitStack() as undone:  # what is open already, should the rest not open
            self._made = transactions(where, clock=clock, reading=reading)
            undone.callback(self._made.close)
            self.shared = self._made.shared  # several hosts work on it
            self._own: Transactions | None = None
            if self.shared and not reading:
                self._own = transactions(where, clock=clock)
                undone.callback(self._own.close)
            self._agreed = _ServerClock() if self.shared and clock is time.time else None
            if self._agreed is not None:
                self._made.run(self._agreed.ask)
            undone.pop_all()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._heart = ThreadPoolExecutor(max_workers=1, thread_name_prefix="heart") if self._own else None
        self._looking: asyncio.Task[None] | None = None
        self._handed_in: list[Act[Any]] = []
        self._due: asyncio.TimerHandle | None = None
        self.clock = self._agreed or clock  # what hosts agree on, without a question to the server
        self.bell = journal.Bell()
        self.listeners: list[Callable[[Step], None]] = []  # told of each line on the loop, once it is on disk

    def follow(self) -> None:
        """From now on the bell rings for what other processes write as well, where there may be any."""
        if self.shared and self._looking is None:
            self._looking = asyncio.create_task(news.ring(self._made.engine, self.bell))

    async def close(self) -> None:
        """Finish what was handed in, then let go."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        self._write_handed_in()
        for thread, made in ((self._heart, self._own), (self._thread, self._made)):
            if thread is not None and made is not None:
                await asyncio.to_thread(thread.shutdown)
                made.close()

    async def do(self, act: Act[T], *, ring: Callable[[T], str | None] = lambda _: None) -> T:
        """Run ``act`` as one transaction; ``ring`` names the task whose followers are woken.

        ``act`` may be run more than once, for a lost connection or another's transaction: it works on the database
        alone. Raises StoreError, and of it StoreAwayError when the database cannot be reached: then it may have been
        made all the same, where the way broke just before the answer.
        """
        loop = asyncio.get_running_loop()
        found, lines = await loop.run_in_executor(self._thread, self._transact, act, self._taken_along())
        for line in lines:
            for hear in self.listeners:
                hear(line)
        if task := ring(found):
            self.bell.ring(task)
        return found

    async def beat(self, act: Act[T]) -> T:
        """Run an ``act`` that writes no journal, beside all others where the database is shared. Raises as `do`."""
        if self._heart is None or self._own is None:
            return await self.do(act)
        return await asyncio.get_running_loop().run_in_executor(self._heart, self._own.run, act)

    def soon(self, act: Act[Any]) -> None:
        """Have ``act`` run and return at once; anything handed in later is on disk later or with it.

        It goes along with the next transaction, or has one of its own after a moment. To be called on the loop.
        """
        self._handed_in.append(act)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(LINGER, self._write_handed_in)

    def _taken_along(self) -> tuple[Act[Any], ...]:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        taken, self._handed_in = tuple(self._handed_in), []
        return taken

    def _write_handed_in(self) -> None:
        if taken := self._taken_along():
            self._thread.submit(self._transact, lambda _: None, taken).add_done_callback(_complain)

    def note(
        self, connection: sa.Connection, task: str, kind: str, data: dict[str, Any], *, attempt: str | None = None
    ) -> Step:
        """Write a line of the journal inside the caller's transaction."""
        step = Step(task=task, attempt=attempt, seq=0, at=self.clock(), kind=kind, data=data)
        numbered = journal.append(connection, step)
        clocks.told(connection, numbered)
        connection.info.setdefault(_LINES, []).append(numbered)
        return numbered

    def now(self, connection: sa.Connection) -> float:
        """The time that hosts agree on: the server's where the database is shared, unless another clock was given."""
        return self.clock() if self._agreed is None else self._agreed.ask(connection)

    def alone(self, connection: sa.Connection, name: str) -> None:
        """Wait until no other transaction holds this name, and hold it until the caller's ends.

        SQLite's writers are alone anyway.
        """
        if self.shared:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(name, 0))))

    def _transact(self, act: Act[T], before: Sequence[Act[Any]] = ()) -> tuple[T, list[Step]]:
        """``act`` after what goes along with it; where that cannot be kept as one, each by itself."""

        def telling(connection: sa.Connection, before: Sequence[Act[Any]] = ()) -> tuple[T, list[Step]]:
            lines = connection.info[_LINES] = list[Step]()
            for each in before:
                each(connection)
            return act(connection), lines

        if before:
            with contextlib.suppress(Exception):  # whose it was shows below
                return self._made.run(partial(telling, before=before))
        for each in before:
            try:
                self._made.run(each)
            except Exception as error:  # noqa: BLE001 - whatever it is, the act is not to suffer for it
                _not_written(error)
        return self._made.run(telling)


def _complain(future: Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _not_written(error)


def _not_written(error: BaseException) -> None:
    log.error("something could not be written down: %s", error)
