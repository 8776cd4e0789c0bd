"""Runs acts as transactions: once on SQLite; on Postgres again when the server was away or another one in the way.

A transaction that surely was not kept is made again. Where the connection was lost while it was being kept, nobody
was told: each process therefore writes the number of its transaction into a row of its own, with the transaction, and
looks there afterwards.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from swarm.config_database import Address
from swarm.errors import StoreAwayError, SwarmError
from swarm.store import postgres, sqlite
from swarm.store.schema import commits

T = TypeVar("T")
Act = Callable[[sa.Connection], T]

CLASHES = 8  # times that other transactions may be in the way of one, each of them waited for
PAUSE = 1.0  # seconds between two tries in an outage that lasts; what is asked meanwhile fails at once
KEPT = 30 * 86400.0  # seconds that the row of a process that is gone is kept

log = logging.getLogger(__name__)


class Transactions(Protocol):
    """What a database makes its changes with."""

    engine: sa.Engine
    shared: bool

    def run(self, act: Act[T]) -> T:
        """One transaction. ``act`` may be run more than once, and only its last run counts. Raises StoreError."""

    def close(self) -> None:
        """Let go of the database. Called when nothing runs any more."""


class Embedded:
    """A SQLite file. For one thread at a time. Raises StoreError when it cannot be opened."""

    shared = False

    def __init__(self, path: Path, *, reading: bool = False) -> None:
        self.engine = sqlite.open_engine(path, reading=reading)
        self._kept: sa.Connection | None = None  # to take one from the pool each time costs as much as a small act

    def run(self, act: Act[T]) -> T:
        """As the protocol says."""
        try:
            if self._kept is None:
                self._kept = self.engine.connect()
            with self._kept.begin():
                return act(self._kept)
        except sa.exc.SQLAlchemyError as error:
            self._let_go()  # whatever state it is in
            if isinstance(error, sa.exc.DatabaseError):
                raise sqlite.failed(error) from error
            raise

    def close(self) -> None:
        """As the protocol says."""
        self._let_go()
        self.engine.dispose()

    def _let_go(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                kept.close()


class _AgainError(Exception):
    """A transaction was not kept, and may be by another try."""

    def __init__(self, cause: sa.exc.DBAPIError) -> None:
        super().__init__()
        self.cause = cause


@dataclass(frozen=True)
class _Outage:
    """Since when the server is away, on the monotonic clock, when it was last asked, and what came of that."""

    since: float
    last: float
    error: sa.exc.DBAPIError

    @property
    def lasts(self) -> bool:
        """Whether it is longer than anything waits."""
        return time.monotonic() - self.since >= postgres.PATIENCE


class Shared:
    """A Postgres database. For one thread at a time. Raises StoreError when it cannot be opened."""

    shared = True

    def __init__(self, address: Address, *, clock: Callable[[], float] = time.time, reading: bool = False) -> None:
        self._address = address
        self._clock = clock
        self._reading = reading
        self._me = secrets.token_hex(8)
        self._name = f"swarm {self._me}"
        self._turn = 0
        self._outage: _Outage | None = None
        self.engine = postgres.open_engine(address, self._name, reading=reading)
        if not reading:
            self.run(lambda connection: connection.execute(commits.delete().where(commits.c.at < clock() - KEPT)))

    def run(self, act: Act[T]) -> T:
        """As the protocol says. Raises StoreAwayError after a bounded patience, counted from the outage's begin."""
        again = Retrying(
            retry=retry_if_exception_type(_AgainError),
            wait=wait_random_exponential(multiplier=0.02, max=1),
            stop=self._enough,
            reraise=True,
        )
        if self._outage and self._outage.lasts and time.monotonic() - self._outage.last < PAUSE:
            raise postgres.refused(self._outage.error, self._address)
        try:
            found: T = again(self._once, act)
        except _AgainError as error:
            raise postgres.refused(error.cause, self._address) from error.cause
        except StoreAwayError:
            raise
        except SwarmError:  # the act's own: whatever it says, the server has answered
            self._answered()
            raise
        self._answered()
        return found

    def close(self) -> None:
        """As the protocol says."""
        self.engine.dispose()

    def _once(self, act: Act[T]) -> T:
        asked, pid = False, 0
        self._turn += 1
        try:
            with self.engine.connect() as connection:
                pid = _pid_of(connection)
                with connection.begin() as transaction:
                    found = act(connection)
                    asked = not self._reading and self._sign(connection)
                    transaction.commit()
        except sa.exc.DBAPIError as error:
            kind = postgres.kind_of(error)
            if kind == "wrong":
                raise postgres.refused(error, self._address) from error
            if kind == "away":
                self._noticed(error)
                if asked and self._was_kept(pid):
                    return found
            raise _AgainError(error) from error
        return found

    def _sign(self, connection: sa.Connection) -> bool:
        """Number the transaction where it has written anything; whether it has."""
        wrote = sa.func.pg_current_xact_id_if_assigned().is_not(None)
        mine = sa.select(sa.literal(self._me), sa.literal(self._turn), sa.literal(self._clock())).where(wrote)
        new = insert(commits).from_select(["writer", "turn", "at"], mine)
        signed = new.on_conflict_do_update(
            index_elements=[commits.c.writer], set_={"turn": new.excluded.turn, "at": new.excluded.at}
        )
        return connection.execute(signed.returning(commits.c.turn)).first() is not None

    def _was_kept(self, pid: int) -> bool:
        """Whether the transaction of this turn was kept, asked until the server answers. Raises StoreAwayError."""
        query = sa.select(commits.c.turn).where(commits.c.writer == self._me).with_for_update()

        def look() -> bool:
            try:
                with self.engine.begin() as connection:
                    _end(connection, pid, self._name)
                    return bool(connection.execute(query).scalar_one_or_none() == self._turn)
            except sa.exc.DBAPIError as error:
                raise _AgainError(error) from error

        again = Retrying(
            retry=retry_if_exception_type(_AgainError),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            stop=self._enough,
            reraise=True,
        )
        try:
            return again(look)
        except _AgainError as error:
            raise postgres.refused(error.cause, self._address) from error.cause

    def _noticed(self, error: sa.exc.DBAPIError) -> None:
        now = time.monotonic()
        if self._outage is None:
            log.warning("%s", postgres.refused(error, self._address))
        self._outage = _Outage(self._outage.since if self._outage else now, now, error)

    def _answered(self) -> None:
        if self._outage is not None:
            log.warning("the database %s answers again", self._address)
            self._outage = None

    def _enough(self, tries: RetryCallState) -> bool:
        failure = tries.outcome.exception() if tries.outcome else None
        if isinstance(failure, _AgainError) and postgres.kind_of(failure.cause) == "clash":
            waited = tries.seconds_since_start or 0.0
            return tries.attempt_number >= CLASHES or waited >= postgres.HELD_UP
        return self._outage is not None and self._outage.lasts


def transactions(
    where: Path | Address, *, clock: Callable[[], float] = time.time, reading: bool = False
) -> Transactions:
    """Open a database by where it is. Raises StoreError."""
    if isinstance(where, Address):
        return Shared(where, clock=clock, reading=reading)
    return Embedded(where, reading=reading)


def _pid_of(connection: sa.Connection) -> int:
    driver: Any = connection.connection.driver_connection
    return int(driver.info.backend_pid)


def _end(connection: sa.Connection, pid: int, name: str) -> None:
    """Have the server end what is left of our lost connection: it would hold its locks until it is missed."""
    activity = sa.table("pg_stat_activity", sa.column("pid"), sa.column("application_name"))
    left = sa.select(sa.func.pg_terminate_backend(activity.c.pid))
    left = left.where(activity.c.pid == pid, activity.c.application_name == name)
    connection.execute(left.where(activity.c.pid != sa.func.pg_backend_pid()))
