"""The hosts that work on one database: who they are, that they live, and what their tasks are asked to do."""

from __future__ import annotations

import json
from dataclasses import dataclass

import sqlalchemy as sa

from swarm.errors import DaemonError
from swarm.scheduling.facts import HostFacts
from swarm.shown import HostView
from swarm.store import rows
from swarm.store.database import Database
from swarm.store.leases import BUSY, Leases
from swarm.store.rows import Claim
from swarm.store.schema import hosts, tasks


@dataclass(frozen=True)
class Member:
    """One start of a daemon. ``home`` names its state folder, ``life`` this start; both are random words.

    ``patience`` is for how many seconds everyone else takes it for alive after its last heartbeat.
    """

    facts: HostFacts
    home: str
    life: str
    pid: int = 0
    version: str = ""
    patience: float = 60.0


@dataclass(frozen=True)
class Order:
    """A task that a host holds, with what people want of it."""

    task: str
    fence: int
    cancelling: bool
    pausing: bool


class Hosts:
    """The hosts of a database. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database, leases: Leases) -> None:
        self._db = db
        self._leases = leases

    async def register(self, me: Member) -> tuple[Claim, ...]:
        """Begin a life, and take back what an earlier one of the same state folder held; claims that only deliver.

        The rest is queued again. So is what a version that knew no hosts left running. Raises DaemonError where
        another living daemon goes by the same name.
        """

        def act(connection: sa.Connection) -> tuple[Claim, ...]:
            now = self._db.now(connection)
            query = sa.select(hosts).where(hosts.c.name == me.facts.name).with_for_update()
            before = connection.execute(query).one_or_none()
            if before is not None and before.home != me.home and before.beat > now - before.patience:
                raise DaemonError(
                    f'another daemon runs as host "{me.facts.name}" on this database, as process {before.pid}',
                    "give this one a name of its own: daemon.host in swarm.toml",
                )
            connection.execute(hosts.delete().where(hosts.c.name == me.facts.name))
            connection.execute(hosts.insert().values(self._row(me, now)))
            ours = sa.or_(tasks.c.host == me.facts.name, tasks.c.host.is_(None))
            left = sa.select(tasks).where(BUSY, ours).order_by(tasks.c.rank).with_for_update()
            found = [
                self._leases.inherit(
                    connection,
                    row,
                    me.facts,
                    "the daemon that worked on it ended",
                    heard=before.beat if before else None,
                )
                for row in connection.execute(left).all()
            ]
            return tuple(claim for claim in found if claim is not None)

        return await self._db.do(act)

    async def beat(self, me: Member) -> tuple[Order, ...] | None:
        """Say that this life goes on, which renews all its leases; what is wanted of its tasks.

        None where another life has taken the name: this one holds nothing any more.
        """

        def act(connection: sa.Connection) -> tuple[Order, ...] | None:
            now = self._db.now(connection)
            mine = (hosts.c.name == me.facts.name, hosts.c.life == me.life)
            if connection.execute(hosts.update().where(*mine).values(beat=now)).rowcount == 0:
                return None
            held = (tasks.c.host == me.facts.name, BUSY)
            # What is locked is in use, by a claim or a large save of ours: its lease is renewed the next time.
            free = sa.select(tasks.c.id).where(*held).with_for_update(skip_locked=True, key_share=True)
            connection.execute(tasks.update().where(tasks.c.id.in_(free)).values(lease=now + me.facts.lease))
            query = sa.select(tasks.c.id, tasks.c.fence, tasks.c.cancelling, tasks.c.pausing).where(*held)
            return tuple(Order(*row) for row in connection.execute(query))

        return await self._db.beat(act)

    async def drain(self, me: Member) -> None:
        """Say that this life claims nothing more."""
        mine = (hosts.c.name == me.facts.name, hosts.c.life == me.life)
        query = hosts.update().where(*mine).values(draining=True)
        await self._db.do(lambda connection: connection.execute(query))

    async def leave(self, me: Member) -> None:
        """End this life in order, with no task in its hands any more."""
        mine = (hosts.c.name == me.facts.name, hosts.c.life == me.life)
        await self._db.do(lambda connection: connection.execute(hosts.delete().where(*mine)))

    async def all(self) -> tuple[HostView, ...]:
        """Every host that is known, by name."""

        def act(connection: sa.Connection) -> tuple[HostView, ...]:
            now = self._db.now(connection)
            held: dict[str, list[str]] = {}
            for host, task in connection.execute(sa.select(tasks.c.host, tasks.c.id).where(BUSY)):
                held.setdefault(host, []).append(task)
            found = connection.execute(sa.select(hosts).order_by(hosts.c.name)).all()
            return tuple(_view(row, tuple(held.get(row.name, ())), now) for row in found)

        return await self._db.do(act)

    def _row(self, me: Member, now: float) -> dict[str, object]:
        return {
            "name": me.facts.name,
            "life": me.life,
            "home": me.home,
            "pid": me.pid,
            "version": me.version,
            "labels": json.dumps(sorted(me.facts.labels)),
            "slots": me.facts.slots,
            "started": now,
            "beat": now,
            "draining": False,
            "patience": me.patience,
        }


def _view(row: rows.Row, held: tuple[str, ...], now: float) -> HostView:
    silent = max(0.0, now - row.beat)
    return HostView(
        name=row.name,
        pid=row.pid,
        version=row.version,
        labels=tuple(json.loads(row.labels)),
        slots=row.slots,
        started=row.started,
        silent=silent,
        gone=silent > row.patience,
        draining=row.draining,
        tasks=held,
    )
