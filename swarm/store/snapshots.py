"""Saved workspaces that every host can reach: with a shared database, each save's pack lies there as well.

With a SQLite file the one host's git folder is enough, and nothing is kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from swarm.store import rows
from swarm.store.database import Database
from swarm.store.rows import Claim, Kept
from swarm.store.schema import snapshots

LIMIT = 64 * 2**20  # bytes of one pack; more than that no broker takes
SLOW = 30_000  # milliseconds that the server waits for the rest of a pack
AT_ONCE = 500  # that one page or one pruning is for


@dataclass(frozen=True)
class Entry:
    """A snapshot without its content. ``size`` is its pack's, in bytes; ``at`` is in seconds since 1970."""

    ref: str
    repository: str
    task: str
    attempt: str
    base: str
    tree: str
    at: float
    size: int


@dataclass(frozen=True)
class Snapshot:
    """A workspace as it was saved: ``pack`` holds what ``tree`` needs beyond the commit ``base``."""

    entry: Entry
    pack: bytes


_SHOWN = (
    snapshots.c.ref,
    snapshots.c.repository,
    snapshots.c.task,
    snapshots.c.attempt,
    snapshots.c.base,
    snapshots.c.tree,
    snapshots.c.at,
    sa.func.length(snapshots.c.pack).label("size"),
)


@dataclass(frozen=True)
class Beginning:
    """The work that a forked task begins with: kept as ``tree`` under ``ref``, on the commit ``base``."""

    ref: str
    base: str
    tree: str
    pack: bytes


class Snapshots:
    """The snapshots of a database. Every method raises StoreError when the database fails."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def keep(self, claim: Claim, kept: Kept, pack: bytes, base: str) -> bool:
        """Put a save where other hosts find it, in place of an earlier one under its reference; whether it is there.

        It is not with a SQLite file, nor when it is larger than LIMIT: then this host's git folder alone has it.
        Raises StaleClaimError.
        """
        if not self._db.shared or len(pack) > LIMIT:
            return False
        whose = claim.task.request.repository, claim.task.id, claim.attempt.id

        def act(connection: sa.Connection) -> bool:
            # The task's row is locked only once the pack is there, for others wait for it.
            kept_now = put(self._db, connection, whose, Beginning(kept.ref, base, kept.tree, pack))
            rows.held(connection, claim)
            return kept_now

        return await self._db.do(act)

    async def of(self, ref: str, repository: str) -> Snapshot | None:
        """What lies under a reference; None where nothing does."""
        query = sa.select(*_SHOWN, snapshots.c.pack).where(_named(ref, repository))

        def act(connection: sa.Connection) -> Snapshot | None:
            row = connection.execute(query).one_or_none()
            return None if row is None else Snapshot(Entry(*row[:-1]), bytes(row.pack))

        return await self._db.do(act)

    async def entries(self, *, after: tuple[str, str] = ("", ""), limit: int = AT_ONCE) -> tuple[Entry, ...]:
        """The next snapshots by repository and reference, without their content; go on ``after`` the last of them."""
        place = sa.tuple_(snapshots.c.repository, snapshots.c.ref)
        query = sa.select(*_SHOWN).where(place > sa.tuple_(*map(sa.literal, after)))
        query = query.order_by(snapshots.c.repository, snapshots.c.ref).limit(min(limit, AT_ONCE))
        return await self._db.do(lambda connection: tuple(Entry(*row) for row in connection.execute(query)))

    async def prune(self, entries: Sequence[Entry]) -> int:
        """Remove snapshots that are still as they were seen; how many there were."""

        def act(connection: sa.Connection) -> int:
            gone = 0
            for entry in entries[:AT_ONCE]:
                seen = (_named(entry.ref, entry.repository), snapshots.c.tree == entry.tree, snapshots.c.at == entry.at)
                gone += connection.execute(snapshots.delete().where(*seen)).rowcount
            return gone

        return await self._db.do(act)


def put(db: Database, connection: sa.Connection, whose: tuple[str, str, str], work: Beginning) -> bool:
    """Put work into a shared database inside the caller's transaction, as `Snapshots.keep` does.

    ``whose`` names the repository, the task and the attempt.
    """
    if not db.shared or len(work.pack) > LIMIT:
        return False
    repository, task, attempt = whose
    connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {SLOW}")  # the way may be slow
    connection.execute(snapshots.delete().where(_named(work.ref, repository)))
    values = {"ref": work.ref, "base": work.base, "tree": work.tree, "pack": work.pack, "at": db.clock()}
    values |= {"repository": repository, "task": task, "attempt": attempt}
    connection.execute(snapshots.insert().values(values))
    return True


def _named(ref: str, repository: str) -> sa.ColumnElement[bool]:
    return sa.and_(snapshots.c.ref == ref, snapshots.c.repository == repository)
