"""Who holds which task: a lease is renewed with its host's heartbeat, given back in the end, and else taken over.

A task whose work stops without an end is queued again with its attempt open, so that whoever claims it next goes on
with that attempt. What is being delivered needs no room of its own and is taken over as it is.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from swarm.scheduling.facts import HostFacts
from swarm.store import continuing, moves, rows
from swarm.store.database import Database
from swarm.store.rows import Claim, Row
from swarm.store.schema import attempts, hosts, steps, tasks
from swarm.types import Step, TaskState

FIRST = 1e9  # seconds that work which stopped in the middle is moved forward by in its queue
AT_ONCE = 500  # tasks that one transaction takes over

BUSY = tasks.c.state.in_([TaskState.RUNNING.value, TaskState.DELIVERING.value])


@dataclass(frozen=True)
class Peer:
    """Another host that holds tasks, and the signs of its life. ``host`` is None for tasks that nobody holds.

    ``life`` and ``beat`` are None where it is not known any more; ``progress`` grows with every line that its attempts
    write into their journals. ``patience`` is for how many seconds of silence it is to be taken for alive, as it says
    itself; None where nobody knows.
    """

    host: str | None
    life: str | None
    beat: float | None
    progress: int
    patience: float | None = None


class Leases:
    """The leases of a database. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def check(self, claim: Claim) -> None:
        """Make sure that a claim still holds, before an effect that cannot be undone. Raises StaleClaimError."""
        await self._db.do(lambda connection: rows.held(connection, claim))

    async def past(self, attempt: str) -> tuple[Step, ...]:
        """All lines that an attempt knows of, those of the attempts that it goes on from before its own.

        In many short transactions: a journal of hundred thousand lines must not keep the heartbeat waiting.
        """
        found: list[Step] = []
        for link in await self._db.do(lambda connection: continuing.chain(connection, attempt)):
            after = 0
            while lines := await self._db.do(functools.partial(continuing.page, link=link, after=after)):
                found += await asyncio.to_thread(continuing.read, lines)
                after = lines[-1].seq
        return tuple(found)

    async def give_back(self, claim: Claim, why: str) -> TaskState:
        """End a worker's hold on a running task, its attempt left open; where the task stands then.

        It is queued again, unless a person wanted it paused or cancelled meanwhile. One that is being delivered is
        left to whoever takes it over. Raises StaleClaimError.
        """

        def act(connection: sa.Connection) -> TaskState:
            row = rows.held(connection, claim)
            return self._let_go(connection, row, why)

        return await self._db.do(act, ring=lambda _: claim.task.id)

    async def peers(self, host: str) -> tuple[Peer, ...]:
        """Everyone but ``host`` who holds a task."""
        last = (
            sa.select(steps.c.seq)
            .where(steps.c.task == tasks.c.id, steps.c.attempt.is_not(None))
            .order_by(steps.c.seq.desc())
            .limit(1)
            .scalar_subquery()
        )
        others = sa.or_(tasks.c.host.is_(None), tasks.c.host != host)
        each = sa.select(tasks.c.host, sa.func.coalesce(last, 0).label("progress")).where(BUSY, others).subquery()
        lines = sa.cast(sa.func.sum(each.c.progress), sa.BigInteger).label("progress")
        held = sa.select(each.c.host, lines).group_by(each.c.host).subquery()
        query = sa.select(held.c.host, hosts.c.life, hosts.c.beat, held.c.progress, hosts.c.patience).join(
            hosts, hosts.c.name == held.c.host, isouter=True
        )
        return await self._db.do(lambda connection: tuple(Peer(*row) for row in connection.execute(query)))

    async def take_over(self, peer: Peer, host: HostFacts) -> tuple[Claim, ...]:
        """Take all tasks from a host that is dead: what it delivered as claims to go on with, the rest is queued.

        Nothing is done where it has given a sign of life since it was seen.
        """

        def act(connection: sa.Connection) -> tuple[int, list[Claim]]:
            query = sa.select(hosts).where(hosts.c.name == peer.host).with_for_update()
            now = connection.execute(query).one_or_none()
            if (now.life if now else None, now.beat if now else None) != (peer.life, peer.beat):
                return 0, []
            left = sa.select(tasks).where(BUSY, tasks.c.host.is_not_distinct_from(peer.host))
            found = connection.execute(left.order_by(tasks.c.rank).limit(AT_ONCE).with_for_update()).all()
            why = f"host {peer.host} is gone" if peer.host else "nobody worked on it"
            claims = [self.inherit(connection, row, host, why, heard=peer.beat) for row in found]
            return len(found), [claim for claim in claims if claim is not None]

        taken: list[Claim] = []
        count = AT_ONCE
        while count == AT_ONCE:
            count, claims = await self._db.do(act)
            taken += claims
        return tuple(taken)

    async def disown(self, task: str, fence: int, host: HostFacts) -> Claim | None:
        """Let go of a task that this host holds and does nothing for; a claim where it is being delivered.

        Nothing is done where it has changed hands since.
        """

        def act(connection: sa.Connection) -> Claim | None:
            mine = (tasks.c.id == task, tasks.c.fence == fence, tasks.c.host == host.name, BUSY)
            row = connection.execute(sa.select(tasks).where(*mine).with_for_update()).one_or_none()
            return None if row is None else self.inherit(connection, row, host, "nothing worked on it any more")

        return await self._db.do(act, ring=lambda _: task)

    async def not_open(self, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these attempts are over, or not known at all."""

        def act(connection: sa.Connection) -> tuple[str, ...]:
            there: set[str] = set()
            for part in _parts(names):
                query = sa.select(attempts.c.id).where(attempts.c.id.in_(part), attempts.c.ended.is_(None))
                there.update(connection.execute(query).scalars())
            return tuple(name for name in names if name not in there)

        return await self._db.do(act)

    async def over_for(self, names: Sequence[str], seconds: float) -> tuple[str, ...]:
        """Which of these attempts ended that long ago, by the word that is written down of each."""

        def act(connection: sa.Connection) -> tuple[str, ...]:
            until = self._db.now(connection) - seconds
            found: list[str] = []
            for part in _parts(names):
                query = sa.select(attempts.c.id).where(attempts.c.id.in_(part), attempts.c.ended < until)
                found += connection.execute(query).scalars()
            return tuple(found)

        return await self._db.do(act)

    async def unsaved(self, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these attempts are known, and not known to have left any work."""

        def act(connection: sa.Connection) -> tuple[str, ...]:
            found: list[str] = []
            for part in _parts(names):
                query = sa.select(attempts.c.id).where(attempts.c.id.in_(part), attempts.c.salvage.is_(None))
                found += connection.execute(query).scalars()
            return tuple(found)

        return await self._db.do(act)

    async def saved(self, attempt: str, ref: str) -> None:
        """Remember where an attempt's work was found."""
        query = attempts.update().where(attempts.c.id == attempt, attempts.c.salvage.is_(None)).values(salvage=ref)
        await self._db.do(lambda connection: connection.execute(query))

    def inherit(
        self, connection: sa.Connection, row: Row, host: HostFacts, why: str, *, heard: float | None = None
    ) -> Claim | None:
        """Take a task from a worker that is known to be gone, inside the caller's transaction; ``heard`` is when its
        host gave its last sign of life, as far as that is known."""
        attempt, now = rows.open_attempt(connection, row), self._db.now(connection)
        if heard is not None and now > heard:
            data = {"text": "no daemon was there", "seconds": round(now - heard, 3), "part": "away"}
            self._db.note(connection, row.id, "note", data, attempt=attempt.id)
        if TaskState(row.state) is TaskState.RUNNING:
            self._let_go(connection, row, why)
            return None
        values = {"fence": row.fence + 1, "host": host.name, "lease": now + host.lease}
        connection.execute(tasks.update().where(tasks.c.id == row.id).values(values))
        connection.execute(attempts.update().where(attempts.c.id == attempt.id).values(host=host.name))
        data = {"text": f"host {host.name} goes on delivering it", "reason": why}
        self._db.note(connection, row.id, "note", data, attempt=attempt.id)
        return rows.claim_of(connection, rows.exactly(connection, row.id), attempt, resumed=True)

    def _let_go(self, connection: sa.Connection, row: Row, why: str) -> TaskState:
        attempt = rows.open_attempt(connection, row)
        free: dict[str, Any] = {"fence": row.fence + 1, "host": None, "lease": None}
        if TaskState(row.state) is TaskState.DELIVERING:
            connection.execute(tasks.update().where(tasks.c.id == row.id).values(free))
            return TaskState.DELIVERING
        if row.cancelling:
            moves.conclude(connection, attempt, self._db.now(connection), "cancelled by a person")
            moves.move(self._db, connection, row, TaskState.CANCELLED, "a person cancelled it", **free)
            return TaskState.CANCELLED
        to = TaskState.PAUSED if row.pausing else TaskState.QUEUED
        if row.pausing:
            why = "a person paused it; its work is saved"
        free |= {"pausing": False, "queued": row.queued, "not_before": 0.0}
        moves.move(self._db, connection, row, to, why, attempt=attempt.id, **free)
        if to is TaskState.QUEUED:
            forward = {"rank": tasks.c.rank - FIRST}
            connection.execute(tasks.update().where(tasks.c.id == row.id).values(forward))
        return to


def _parts(names: Sequence[str], size: int = 500) -> Iterator[Sequence[str]]:
    yield from (names[start : start + size] for start in range(0, len(names), size))
