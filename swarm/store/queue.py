"""The queue: which task starts next, on which host, and what each of the others waits for.

A claim looks at the first task of every lane (see `scheduling.turns`), never at the rest of the queue, so it costs the
same with a hundred thousand tasks as with ten. Decisions are made one after the other over all hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from swarm.scheduling import breaker as rules
from swarm.scheduling.admission import may_run
from swarm.scheduling.facts import Busy, Candidate, Hold, HostFacts, Rules, Running
from swarm.scheduling.turns import Turns, after, kind_of, next_of, scopes
from swarm.store import breakers, moves, rows
from swarm.store.budgets import Budgets
from swarm.store.database import Database
from swarm.store.rows import Claim, Row, Settlement
from swarm.store.schema import attempts, tasks, turns
from swarm.store.schema import breakers as shut
from swarm.types import TaskState

LANES = 500  # looked at together; where nothing of them may start, and by the next claim, those behind them
BATCH = 500  # tasks that one sweep looks at
FLOOR = "floor:"

QUEUED = tasks.c.state == TaskState.QUEUED.value
_READY = (QUEUED, tasks.c.waiting == 0)
_BUSY = tasks.c.state.in_([TaskState.RUNNING.value, TaskState.DELIVERING.value])


class Queue:
    """The queue of a database. ``rules`` are the settings' and ``holds`` what this daemon holds back by itself.

    Every method raises StoreError when the database fails.
    """

    def __init__(self, db: Database, budgets: Budgets) -> None:
        self._db = db
        self._budgets = budgets
        self._from = ""
        self._swept = ""
        self.rules = Rules()
        self.holds: tuple[Hold, ...] = ()

    async def claim(self, host: HostFacts) -> Claim | None:
        """The task whose turn it is, now running on ``host`` under a new attempt; None when none may start there."""

        def act(connection: sa.Connection) -> Claim | None:
            chosen = self._choose(connection, host)
            if chosen is None:
                return None
            row = connection.execute(sa.select(tasks).where(tasks.c.id == chosen.task).with_for_update()).one()
            if row.state != TaskState.QUEUED.value:
                return None  # cancelled since it was read: the next claim looks again
            last = rows.last_attempt(connection, row.id)
            resumed = last is not None and last.ended is None
            attempt = last if last and resumed else moves.begin(self._db, connection, row, host.name)
            connection.execute(attempts.update().where(attempts.c.id == attempt.id).values(host=host.name))
            more = {
                "fence": row.fence + 1,
                "carry": None,
                "host": host.name,
                "lease": self._db.now(connection) + host.lease,
            }
            more["expires"] = None  # it counts the time until the first claim
            word = "claimed, the attempt goes on" if resumed else "claimed"
            moves.move(self._db, connection, row, TaskState.RUNNING, word, attempt=attempt.id, **more)
            return rows.claim_of(connection, rows.row_of(connection, row.id), attempt, resumed=resumed)

        return await self._db.do(act, ring=lambda claim: claim.task.id if claim else None)

    async def due(self) -> float | None:
        """When a queued task next becomes one that may start, or leaves the queue, by time alone; None for never."""

        def act(connection: sa.Connection) -> float | None:
            now = self._db.now(connection)
            asked = [
                sa.select(sa.func.min(column)).where(QUEUED, column > now)
                for column in (tasks.c.not_before, tasks.c.expires)
            ]
            asked.append(sa.select(sa.func.min(shut.c.until)).where(shut.c.until > now))
            times = (connection.execute(query).scalar_one() for query in asked)
            return min((float(time) for time in times if time is not None), default=None)

        return await self._db.do(act)

    async def oldest(self) -> float | None:
        """Since when the longest waiting task waits; None when none does."""
        query = sa.select(sa.func.min(tasks.c.queued)).where(QUEUED)
        return await self._db.do(lambda connection: connection.execute(query).scalar_one())

    async def sweep(self) -> tuple[str, ...]:
        """See to what no event told of: tasks past their time in the queue, needs that were met or never will be.

        Safe to run at any time, on every host. Returns the tasks that left the queue.
        """

        def act(connection: sa.Connection) -> tuple[str, ...]:
            return (*self._expire(connection), *self._recount(connection))

        return await self._db.do(act)

    # What a claim chooses from

    def _choose(self, connection: sa.Connection, host: HostFacts) -> Candidate | None:
        self._db.alone(connection, "queue")
        self._place_old(connection)
        self._expire(connection)
        running = self.running(connection)
        heads: list[Candidate] = []
        for some in self._heads(connection):
            heads = [head for head in some if not may_run(head, running, self.rules.caps, host)]
            if heads:
                break
        count = _turns(connection, heads)
        chosen = next_of(heads, count)
        if chosen is not None:
            _write(connection, after(heads, chosen, count))
            breakers.let_through(connection, self.names(chosen.repository), chosen.task, running.now)
        return chosen

    def ended(self, connection: sa.Connection, row: Row, end: Settlement) -> None:
        """Let the breakers hear of the end of an attempt, inside the caller's transaction."""
        if end.failure in {"person", "model"} or end.result.conclusion.ending == "cancelled":
            return  # it says nothing of the machinery
        failure = end.reason or "no reason is known" if end.failure == "infrastructure" else ""
        breakers.heard(connection, self.names(row.repository), row.id, failure, self._db.now(connection))

    def names(self, repository: str) -> tuple[str, ...]:
        """The breakers that a repository's tasks belong to."""
        image = self.rules.images.get(repository)
        return (f"repository:{repository}", *((f"image:{image}",) if image else ()))

    def running(self, connection: sa.Connection) -> Running:
        """Everything that holds a slot now, and what is held back."""
        busy = tuple(_busy(row) for row in connection.execute(_BUSY_TASKS))
        now = self._db.now(connection)
        at_work = {one.task for one in busy}
        opened = breakers.opened(connection)
        shut = {each.name: reason for each in opened if (reason := rules.shut(each, now, at_work))}
        images = [(f"repository:{name}", f"image:{image}") for name, image in self.rules.images.items()]
        held = (*shut.items(), *((scope, shut[image]) for scope, image in images if image in shut))
        held += self._budgets.closed(connection, now)
        return Running(busy, (*self.holds, *(Hold(scope, reason) for scope, reason in held)), now)

    def _heads(self, connection: sa.Connection) -> Iterator[list[Candidate]]:
        """The first task of every lane, each found by one step in the index however long its lane is.

        Many lanes at a time, from where the last claim ended, once around.
        """
        start = self._from
        while True:
            names, heads = self._lanes(connection, self._from, LANES)
            self._from = names[-1] if len(names) == LANES else ""
            yield [candidate_of(row) for row in heads]
            if not self._from:
                break
        while start and self._from < start:
            names, heads = self._lanes(connection, self._from, LANES)
            self._from = names[-1] if len(names) == LANES else start
            yield [candidate_of(row) for row in heads]

    def _lanes(self, connection: sa.Connection, start: str, limit: int) -> tuple[list[str], list[Row]]:
        """The lanes of tasks that are ready, after ``start`` by name, and the first task of each that is due."""
        given = {"start": start, "limit": limit}
        names = list(connection.execute(_LANES, given).scalars())
        return names, list(connection.execute(_FIRSTS, {**given, "now": self._db.now(connection)}))

    # What no event told of

    def _expire(self, connection: sa.Connection) -> tuple[str, ...]:
        over = sa.select(tasks).where(QUEUED, tasks.c.expires <= self._db.now(connection)).limit(BATCH)
        found = connection.execute(over.with_for_update()).all()
        for row in found:
            reason = f"nobody claimed it within {row.expires - row.queued:.0f} s"
            moves.move(self._db, connection, row, TaskState.EXPIRED, reason)
        return tuple(row.id for row in found)

    def _recount(self, connection: sa.Connection) -> tuple[str, ...]:
        waiting = sa.select(tasks.c.id).where(QUEUED, tasks.c.waiting > 0, tasks.c.id > self._swept)
        found: Sequence[str] = connection.execute(waiting.order_by(tasks.c.id).limit(BATCH)).scalars().all()
        self._swept = found[-1] if len(found) == BATCH else ""
        ended = [name for name in found if not moves.recount(self._db, connection, name)]
        for name in ended:
            moves.release(self._db, connection, name)
        return tuple(ended)

    def _place_old(self, connection: sa.Connection) -> None:
        """Put those into a lane that an earlier version queued, which knew none."""
        for row in connection.execute(
            sa.select(tasks).where(QUEUED, tasks.c.waiting == 0, tasks.c.lane == "").limit(BATCH)
        ).all():
            connection.execute(tasks.update().where(tasks.c.id == row.id).values(moves.place(connection, row, {})))


def _lanes_after() -> sa.CTE:
    """The names of lanes with tasks that are ready, one step in the index for each (a loose index scan).

    The least one is asked for as the first in order and not by min(): as long as Postgres does not know yet how long
    the queue has become, it would look at every task of it for that.
    """
    start = sa.select(tasks.c.lane).where(*_READY, tasks.c.lane > sa.bindparam("start")).order_by(tasks.c.lane).limit(1)
    lanes = sa.select(start.scalar_subquery().label("lane")).cte("lanes", recursive=True)
    other = tasks.alias("other")
    following = (
        sa.select(other.c.lane)
        .where(other.c.state == TaskState.QUEUED.value, other.c.waiting == 0, other.c.lane > lanes.c.lane)
        .order_by(other.c.lane)
        .limit(1)
        .scalar_subquery()
    )
    return lanes.union_all(sa.select(following).where(lanes.c.lane.is_not(None)))


def _names_of(lanes: sa.CTE) -> sa.Select[str]:
    return sa.select(lanes.c.lane).where(lanes.c.lane.is_not(None)).limit(sa.bindparam("limit"))


def _firsts_of(lanes: sa.CTE) -> sa.Select[Any]:
    first = (
        sa.select(tasks.c.id)
        # The sum keeps SQLite from taking the index by delay, and with it every task of the queue.
        .where(*_READY, tasks.c.lane == lanes.c.lane, tasks.c.not_before + 0.0 <= sa.bindparam("now"))
        .order_by(tasks.c.rank, tasks.c.created)
        .limit(1)
        .correlate(lanes)
        .scalar_subquery()
    )
    chosen = sa.select(first).select_from(lanes).where(lanes.c.lane.is_not(None)).limit(sa.bindparam("limit"))
    head = tasks.alias("head")
    return sa.select(head).where(head.c.id.in_(chosen))


# Built once: each claim asks these, and building them takes longer than their answer.
_LANES, _FIRSTS = _names_of(_lanes_after()), _firsts_of(_lanes_after())
_OF_BUSY = ("id", "repository", "user", "tier", "mutex", "follows", "host", "state")
_BUSY_TASKS = sa.select(*(tasks.c[name] for name in _OF_BUSY)).where(_BUSY)


def candidate_of(row: Row) -> Candidate:
    """A queued task's row as the scheduler sees it."""
    lane = rows.lane_parts(row.lane)
    return Candidate(
        task=row.id,
        repository=lane.repository,
        user=lane.user,
        tier=lane.tier,
        rank=row.rank,
        priority=row.priority,
        mutex=lane.mutex,
        pull=lane.follows or row.id,
        requires=lane.requires,
        needs=row.waiting,
        not_before=row.not_before,
        begun=lane.begun,
    )


def _busy(row: Row) -> Busy:
    return Busy(
        row.id,
        row.repository,
        row.user,
        row.tier,
        row.mutex,
        row.follows or row.id,
        row.host,
        row.state == TaskState.DELIVERING.value,
    )


def _turns(connection: sa.Connection, heads: Sequence[Candidate]) -> Turns:
    wanted = {scope for head in heads for scope in scopes(head)}
    kinds = {kind_of(scope) for scope in wanted}
    wanted |= {f"{FLOOR}{kind}" for kind in kinds}
    found = {row.scope: row.taken for row in connection.execute(sa.select(turns).where(turns.c.scope.in_(wanted)))}
    return Turns(found, {kind: found.pop(f"{FLOOR}{kind}", 0.0) for kind in kinds})


def _write(connection: sa.Connection, count: Turns) -> None:
    rows_ = {**count.taken, **{f"{FLOOR}{kind}": floor for kind, floor in count.floors.items()}}
    for scope, taken in rows_.items():
        values = {"taken": taken}
        if connection.execute(turns.update().where(turns.c.scope == scope).values(values)).rowcount == 0:
            connection.execute(turns.insert().values(scope=scope, **values))
    for kind, floor in count.floors.items():
        # Who is at the floor counts like one who was never seen, so the table holds the busy ones alone.
        beginning = "user:" if kind == "user" else f"{kind}\n"
        over = turns.c.scope.startswith(beginning, autoescape=True), turns.c.taken < floor
        connection.execute(turns.delete().where(*over))
