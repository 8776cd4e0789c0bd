"""Where queued tasks stand in the line, what each waits for, and when it is likely to be done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from swarm.scheduling import breaker as rules
from swarm.scheduling.admission import waits_for
from swarm.scheduling.eta import eta
from swarm.scheduling.facts import HostFacts, Running
from swarm.scheduling.shown import BreakerView, QueuedView, QueueView
from swarm.store.breakers import Breakers
from swarm.store.database import Database
from swarm.store.queue import QUEUED, Queue, candidate_of
from swarm.store.rows import Row
from swarm.store.schema import attempts, hosts, needs, tasks
from swarm.types import Eta, TaskRequest, TaskState, TaskView

MEASURED = 40  # finished attempts of a repository and strategy that an estimate is made from
FARTHEST = 10_000  # beyond which places are not counted


@dataclass(frozen=True)
class Scene:
    """What all estimates of one moment share."""

    running: Running
    hosts: tuple[HostFacts, ...]
    ages: tuple[float, ...]
    slots: int


class Line:
    """Reads the queue for people. Every method raises StoreError when the database fails."""

    def __init__(self, db: Database, queue: Queue, breakers: Breakers) -> None:
        self._db = db
        self._queue = queue
        self._breakers = breakers

    async def shown(self, limit: int) -> QueueView:
        """The first tasks of the queue by age and priority, and what holds it back."""

        def act(connection: sa.Connection) -> QueueView:
            scene = self._scene(connection)
            first = sa.select(tasks).where(QUEUED).order_by(tasks.c.rank, tasks.c.created).limit(limit)
            found = connection.execute(first).all()
            count = connection.execute(sa.select(sa.func.count()).select_from(tasks).where(QUEUED)).scalar_one()
            entries = tuple(self._entry(connection, row, place, scene) for place, row in enumerate(found, 1))
            holds = tuple(hold.reason for hold in self._queue.holds)
            busy = len(scene.running.busy)
            return QueueView(queued=count, running=busy, slots=scene.slots, entries=entries, holds=holds)

        view = await self._db.do(act)
        return view.model_copy(update={"breakers": await self.breakers()})

    async def breakers(self) -> tuple[BreakerView, ...]:
        """Every breaker that has counted a failure."""
        running = await self._db.do(self._queue.running)
        busy = {one.task for one in running.busy}
        return tuple(
            BreakerView(
                name=one.name,
                failures=one.failures,
                until=one.until,
                last=one.reason,
                reason=rules.shut(one, running.now, busy),
            )
            for one in await self._breakers.listed()
        )

    def placed(self, connection: sa.Connection, view: TaskView) -> TaskView:
        """A queued task's view with its place, its estimate and what it waits for; any other's as it is."""
        if view.state is not TaskState.QUEUED:
            return view
        row = connection.execute(sa.select(tasks).where(tasks.c.id == view.task.id)).one()
        found = self._entry(connection, row, _place(connection, row), self._scene(connection))
        return view.model_copy(update={"place": found.place, "eta": found.eta, "waits_for": found.waits_for})

    def _entry(self, connection: sa.Connection, row: Row, place: int, scene: Scene) -> QueuedView:
        request = TaskRequest.model_validate_json(row.request)
        waits = _needed(connection, row) if row.waiting else self._waits(row, scene)
        likely = None if row.waiting else eta(place, scene.ages, scene.slots, _durations(connection, row))
        lines = (request.title or request.instructions).strip().splitlines() or [""]
        return QueuedView(
            task=row.id,
            place=place,
            repository=row.repository,
            user=row.user,
            priority=row.priority,
            title=lines[0][:200],
            queued=row.queued,
            eta=Eta(low=round(likely.low, 1), high=round(likely.high, 1)) if likely else None,
            waits_for=waits,
        )

    def _waits(self, row: Row, scene: Scene) -> str:
        return waits_for(candidate_of(row), scene.running, self._queue.rules.caps, scene.hosts)

    def _scene(self, connection: sa.Connection) -> Scene:
        running = self._queue.running(connection)
        alive = hosts.select().where(hosts.c.beat > running.now - hosts.c.patience, hosts.c.draining.is_(sa.false()))
        found = tuple(
            HostFacts(row.name, frozenset(json.loads(row.labels)), row.slots) for row in connection.execute(alive)
        )
        busy = [one.task for one in running.busy]
        begun = sa.select(attempts.c.started).where(attempts.c.task.in_(busy), attempts.c.ended.is_(None))
        ages = tuple(running.now - started for started in connection.execute(begun).scalars())
        slots = sum(host.slots for host in found)
        fleet = self._queue.rules.caps.fleet
        return Scene(running, found, ages, slots if fleet is None else min(slots, fleet))


def _place(connection: sa.Connection, row: Row) -> int:
    before = sa.select(tasks.c.id).where(QUEUED, tasks.c.rank < row.rank).limit(FARTHEST).subquery()
    return int(connection.execute(sa.select(sa.func.count()).select_from(before)).scalar_one()) + 1


def _durations(connection: sa.Connection, row: Row) -> Sequence[float]:
    done = (
        sa.select(attempts.c.ended - attempts.c.started)
        .join(tasks, tasks.c.id == attempts.c.task)
        .where(tasks.c.repository == row.repository, tasks.c.strategy == row.strategy, attempts.c.ended.is_not(None))
        .order_by(tasks.c.updated.desc())
        .limit(MEASURED)
    )
    return connection.execute(done).scalars().all()


def _needed(connection: sa.Connection, row: Row) -> str:
    asked = sa.select(tasks.c.id, tasks.c.state).join(needs, needs.c.needed == tasks.c.id)
    good = [TaskState.DELIVERED.value, TaskState.NO_CHANGE.value]
    left = asked.where(needs.c.task == row.id, tasks.c.state.not_in(good)).order_by(tasks.c.id).limit(5)
    return f"waits for {', '.join(f'task {one.id}, {one.state}' for one in connection.execute(left))}"
