"""The shared database: how a Postgres server is reached, what its refusals mean, and which of them pass."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import event
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from swarm.config_database import Address
from swarm.errors import StoreAwayError, StoreError
from swarm.store.migrating import migrate, require_present

OLDEST = 14  # major version; older ones get no more mends from their makers
CONNECT = 5  # seconds to reach the server
STATEMENT = 30_000  # milliseconds that a statement may take
LOCK = 2_000  # milliseconds that one waits for a lock at a time, so that a process that holds it is outlived by tries
IDLE = (
    5_000  # milliseconds of a silent transaction: a host that was frozen in one must let go long before any lease ends
)
SILENCE = 10_000  # milliseconds after which a server that does not acknowledge is taken for gone
PATIENCE = 5.0  # seconds that an outage is waited for
HELD_UP = 10.0  # seconds that others may be in the way of a transaction: longer than a frozen one may hold a lock
CONNECTIONS = 2  # one that writes, one that looks for news
_MIGRATING = 7_203_551  # the lock of whoever makes or changes the tables

_SETTINGS = (
    f"SET statement_timeout = {STATEMENT}; SET lock_timeout = {LOCK}; "
    f"SET idle_in_transaction_session_timeout = {IDLE}; SET timezone = 'UTC'"
)
# It goes down, comes up, has no connection to spare, or ended ours since we were silent in a transaction.
_STARTING = frozenset({"57P01", "57P02", "57P03", "53300", "25P03"})
_TAKEN = "23505"  # what should be there once is there already
_CLASHES = frozenset({"40001", "40P01", "55P03", "57014", _TAKEN})  # others were in the way, or it was too slow
_STRAINED = frozenset({"25006", "53000", "53100", "53200", "53400", "58030"})  # no room, no memory, or a copy for now
_BY_ITSELF = "nothing is lost; it is tried again"
_BY_HAND = "nothing is lost; once that is put right, start this once more"
Kind = Literal["away", "clash", "wrong"]

# What a server says before it lets us in has no code, only words: what it means, and the mend.
_TOLD = (
    (
        ("password authentication failed", "no password supplied"),
        "does not take the password",
        "see daemon.database_password_file, and the user in daemon.database",
    ),
    (
        ("pg_hba.conf",),
        "does not let this machine or user in",
        "the server's pg_hba.conf says who may come in, and how",
    ),
    (('role "',), "does not let this user in: {line}", "make the user: createuser NAME, or name another one"),
    (('database "',), "is not there: {line}", "make it on the server: createdb --encoding UTF8 NAME"),
    (
        ("certificate", "SSL"),
        "is not reached safely: {line}",
        "see sslmode and sslrootcert in daemon.database, and the server's certificate",
    ),
)
_STATES = {
    "57014": (
        "was too slow, or somebody stopped what was asked of it: {line}",
        "see what else runs on the server: pg_stat_activity",
    ),
    "55P03": (
        "is held up: {line}",
        "see whose transaction holds the lock: pg_stat_activity, pg_locks",
    ),
    "42501": (
        "gives us no right: {line}",
        "let the user in daemon.database own the database: ALTER DATABASE NAME OWNER TO USER",
    ),
    "25006": (
        "takes no writes: it is a copy",
        "name the primary in daemon.database, or add target_session_attrs=read-write there",
    ),
    "53100": ("has no room left", "free some disk on the server"),
    "53200": ("has no memory left", "see what else runs on the server"),
}


def url_of(address: Address) -> sa.URL:
    """The address with its password, for SQLAlchemy and psycopg; its repr and str hide the password."""
    url = sa.make_url(address.url).set(drivername="postgresql+psycopg")
    return url.set(password=address.password) if address.password else url


def open_engine(address: Address, name: str, *, reading: bool = False) -> sa.Engine:
    """The database at ``address``, its tables made or brought to this version; only looked at when ``reading``.

    ``name`` is what the server shows its administrators of us. Raises StoreError in words that tell what to mend.
    """
    engine = sa.create_engine(
        url_of(address),
        pool_size=CONNECTIONS,
        max_overflow=0,
        pool_timeout=STATEMENT / 1000,
        hide_parameters=True,
        connect_args=reaching(name),
    )
    event.listen(engine, "connect", partial(_configure, reading=reading))
    again = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, sa.exc.DBAPIError) and kind_of(error) == "away"),
        stop=stop_after_delay(PATIENCE),
        wait=wait_random_exponential(multiplier=0.05, max=1),
        reraise=True,
    )
    try:
        again(_prepare, engine, address, reading=reading)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise refused(error, address, again=_BY_HAND) from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def reaching(name: str) -> dict[str, Any]:
    """How every connection is made: a server that is gone is noticed in seconds, and is shown ``name``."""
    return {
        "application_name": name,
        "connect_timeout": CONNECT,
        "tcp_user_timeout": SILENCE,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "prepare_threshold": 2,
    }


def kind_of(error: sa.exc.DBAPIError) -> Kind:
    """Whether the server is away, another transaction was in the way, or it is wrong and waiting mends nothing."""
    state = _state(error)
    if state in _CLASHES:
        return "clash"
    if error.connection_invalidated or state in _STARTING or (state or "").startswith("08"):
        return "away"
    never_there = state is None and isinstance(error, sa.exc.OperationalError)
    return "away" if never_there and _reason(error) is None else "wrong"


def refused(error: sa.exc.DBAPIError, where: object, *, again: str = _BY_ITSELF) -> StoreError:
    """What to tell a person of an error, without anything that only the server should know; of one that passes,
    how it is tried ``again``."""
    if kind_of(error) == "away":
        mend = f"is the server running, and may this machine reach it? {again}"
        return StoreAwayError(f"the database {where} cannot be reached: {_line(error)}", mend)
    what, mend = _reason(error) or (f"failed: {_line(error)}", "see the server's own log")
    if _state(error) in (_CLASHES | _STRAINED) - {_TAKEN}:
        return StoreAwayError(f"the database {where} {what}", f"{mend}; {again}")
    return StoreError(f"the database {where} {what}", mend)


def _reason(error: sa.exc.DBAPIError) -> tuple[str, str] | None:
    text = str(error.orig)
    for words, what, mend in _TOLD:
        if any(word in text for word in words):
            return what.format(line=_line(error)), mend
    found = _STATES.get(_state(error) or "")
    return (found[0].format(line=_line(error)), found[1]) if found else None


def _prepare(engine: sa.Engine, address: Address, *, reading: bool) -> None:
    with engine.begin() as connection:
        version = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10_000
        if version < OLDEST:
            raise StoreError(f"the database {address} is Postgres {version}", f"take version {OLDEST} or newer")
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            raise StoreError(
                f"the database {address} keeps text as {encoding}", "make another: createdb --encoding UTF8 NAME"
            )
        if reading:
            require_present(connection, str(address))
            return
        # An upgrade takes as long as it takes, and whoever comes meanwhile waits for its end.
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
        migrate(connection, str(address))


def _configure(connection: Any, _record: object, *, reading: bool) -> None:
    connection.autocommit = True
    connection.execute(_SETTINGS)
    if reading:
        connection.execute("SET default_transaction_read_only = on")
    connection.autocommit = False


def _state(error: sa.exc.DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _line(error: sa.exc.DBAPIError) -> str:
    """The first line of what the driver says."""
    return (str(error.orig).strip().splitlines() or [type(error.orig).__name__])[0][:300]
