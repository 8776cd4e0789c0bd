"""Schedules: what is to be done again and again. A run and its task are one transaction, over all hosts."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, replace

import sqlalchemy as sa
from pydantic import ValidationError

from swarm.errors import TaskError, TaskNotFoundError
from swarm.scheduling.cron import due, upcoming
from swarm.scheduling.shown import SAME_RIGHT, ScheduleRequest, ScheduleRight, ScheduleView
from swarm.store import moves, rows, views
from swarm.store.database import Database
from swarm.store.rows import Plan, Row
from swarm.store.schema import schedules, tasks
from swarm.types import TaskRequest, TaskState, TaskView

MOST = 1000  # schedules of a database
AT_ONCE = 100
REASON = 2000  # characters of what became of a run
RENEW = "; give it another: swarm schedule resume "  # in the reason of one whose right is over, before its name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Due:
    """A run whose time has come: of which schedule, planned for when, and the request it makes, with its right."""

    name: str
    planned: float
    request: TaskRequest
    user: str


class Schedules:
    """The schedules of a database. Every method raises StoreError when the database fails, TaskError and
    TaskNotFoundError for a name that is taken or not there."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, wanted: ScheduleRequest, user: str) -> ScheduleView:
        """Keep a new one; the very same again changes nothing."""

        def act(connection: sa.Connection) -> ScheduleView:
            known = _row(connection, wanted.name)
            if known is not None:
                return _same(known, wanted)
            if wanted.request.capability == SAME_RIGHT:
                raise TaskNotFoundError(f'there is no schedule "{wanted.name}" any more', "add it once more")
            if connection.execute(sa.select(sa.func.count()).select_from(schedules)).scalar_one() >= MOST:
                raise TaskError(f"there are {MOST} schedules already", "remove one: swarm schedule remove NAME")
            now = self._db.now(connection)
            values = wanted.model_dump(include={"name", "cron", "timezone", "overlap", "missed", "until", "uses"})
            values |= {
                "request": _kept(wanted.request.model_copy(update={"standing": True})),
                "user": user,
                "enabled": True,
                "created": now,
                "next": upcoming(wanted.cron, wanted.timezone, now),
                "fired": 0,
                "reason": "",
            }
            connection.execute(schedules.insert().values(values))
            return _view(_there(connection, wanted.name))

        return await self._db.do(act)

    async def listed(self) -> tuple[ScheduleView, ...]:
        """All of them, by name."""
        query = sa.select(schedules).order_by(schedules.c.name).limit(MOST)
        return await self._db.do(lambda connection: tuple(_view(row) for row in connection.execute(query)))

    async def show(self, name: str) -> ScheduleView:
        """One."""
        return await self._db.do(lambda connection: _view(_there(connection, name)))

    async def remove(self, name: str) -> None:
        """Forget one; the tasks that it made stay."""

        def act(connection: sa.Connection) -> None:
            _there(connection, name)
            connection.execute(schedules.delete().where(schedules.c.name == name))

        await self._db.do(act)

    async def pause(self, name: str) -> ScheduleView:
        """Make no further runs until it is resumed."""
        return await self._db.do(lambda connection: _stop(connection, name, "paused by a person"))

    async def resume(self, name: str, right: ScheduleRight | None = None) -> ScheduleView:
        """Go on with the next run from now, under a new right where one is given."""

        def act(connection: sa.Connection) -> ScheduleView:
            row = _there(connection, name)
            values = {"enabled": True, "reason": "", "next": self._next(connection, row)}
            if right is not None:
                request = TaskRequest.model_validate_json(row.request)
                request = request.model_copy(update={"capability": right.capability})
                values |= {"request": _kept(request), "until": right.until, "uses": row.fired + right.uses}
            connection.execute(schedules.update().where(schedules.c.name == name).values(values))
            return _view(_there(connection, name))

        return await self._db.do(act)

    # Runs

    async def due(self) -> tuple[tuple[Due, ...], float | None]:
        """Runs whose time has come, and when the next one's comes. A schedule that cannot be read is stopped."""

        def act(connection: sa.Connection) -> tuple[tuple[Due, ...], float | None]:
            now = self._db.now(connection)
            enabled = schedules.c.enabled.is_(sa.true())
            over = sa.select(schedules).where(enabled, schedules.c.next <= now).order_by(schedules.c.next)
            later = sa.select(sa.func.min(schedules.c.next)).where(enabled, schedules.c.next > now)
            runs = [run for row in connection.execute(over.limit(AT_ONCE)).all() if (run := _read(connection, row))]
            return tuple(runs), connection.execute(later).scalar_one()

        return await self._db.do(act)

    async def now(self, name: str) -> Due:
        """A run at this moment, whatever its times are."""
        return await self._db.do(lambda connection: _due(_there(connection, name), self._db.now(connection)))

    async def fire(self, run: Due, plan: Plan, *, asked: bool = False) -> TaskView | None:
        """Make a run's task and plan the next run; None where another host did, or where this one is left out.

        ``asked`` is a run that a person asks for, in between. Raises TaskError where the run's id is taken.
        """

        def act(connection: sa.Connection) -> TaskView | None:
            row = _there(connection, run.name)
            if not asked and (not row.enabled or row.next != run.planned):
                return None
            why = self._left_out(connection, row, run, asked=asked)
            if why:
                self._moved_on(connection, row, why, asked=asked)
                return None
            rows.known(connection, run.request)
            task = moves.enter(self._db, connection, run.request, replace(plan, user=row.user),
                               reason=f"schedule {row.name}")  # fmt: skip
            connection.execute(tasks.update().where(tasks.c.id == task).values(schedule=row.name))
            more = {"last": run.planned, "last_task": task, "fired": row.fired + 1}
            self._moved_on(connection, row, f"made task {task}", asked=asked, **more)
            return views.one(connection, task)

        return await self._db.do(act, ring=lambda view: view.task.id if view else None)

    async def pass_over(self, run: Due, why: str) -> None:
        """Leave a run out that could not be made, and plan the next one; a schedule of which no next run can be
        planned is stopped. One that is gone by now is nobody's concern."""

        def act(connection: sa.Connection) -> None:
            row = _row(connection, run.name)
            if row is None or not row.enabled or row.next != run.planned:
                return
            try:
                self._moved_on(connection, row, why[:REASON], asked=False)
            except TaskError as error:
                _halt(connection, row.name, f"stopped, since its next run cannot be planned: {error}")

        await self._db.do(act)

    def _left_out(self, connection: sa.Connection, row: Row, run: Due, *, asked: bool) -> str:
        now = self._db.now(connection)
        if row.until is not None and now >= row.until:
            return f"the right that was given for it has ended{RENEW}{row.name}"
        if row.uses is not None and row.fired >= row.uses:
            count = "a task" if row.fired == 1 else f"{row.fired} tasks"
            return f"the right that was given for it is used up by {count}{RENEW}{row.name}"
        if not asked and not due(run.planned, now, row.missed):
            return f"the run of {now - run.planned:.0f} s ago was missed and is left out"
        last = sa.select(tasks.c.state).where(tasks.c.id == row.last_task)
        state = connection.execute(last).scalar_one_or_none()
        if row.overlap == "skip" and state is not None and not TaskState(state).final:
            return f"left out: task {row.last_task} of the last run is {state}"
        return ""

    def _moved_on(self, connection: sa.Connection, row: Row, reason: str, *, asked: bool, **more: object) -> None:
        spent = RENEW in reason
        values = {"reason": reason, **more}
        if not asked:
            values |= {"next": self._next(connection, row)}
        if spent:
            values |= {"enabled": False, "next": None}
        connection.execute(schedules.update().where(schedules.c.name == row.name).values(values))

    def _next(self, connection: sa.Connection, row: Row) -> float | None:
        """From now on, not from the run that was due: what was missed meanwhile makes one run, never a storm."""
        return upcoming(row.cron, row.timezone, self._db.now(connection))


def _stop(connection: sa.Connection, name: str, reason: str) -> ScheduleView:
    _there(connection, name)
    _halt(connection, name, reason)
    return _view(_there(connection, name))


def _halt(connection: sa.Connection, name: str, reason: str) -> None:
    stopped = {"enabled": False, "next": None, "reason": reason}
    connection.execute(schedules.update().where(schedules.c.name == name).values(stopped))


def _row(connection: sa.Connection, name: str) -> Row | None:
    return connection.execute(sa.select(schedules).where(schedules.c.name == name).with_for_update()).one_or_none()


def _there(connection: sa.Connection, name: str) -> Row:
    row = _row(connection, name)
    if row is None:
        raise TaskNotFoundError(f'there is no schedule "{name}"', "see all: swarm schedule list")
    return row


def _kept(request: TaskRequest) -> str:
    """A request as it was said: what it leaves open is the operator's to say at each run."""
    return request.model_dump_json(exclude_unset=True)


def _same(row: Row, wanted: ScheduleRequest) -> ScheduleView:
    """The one that is there, where the very same is wanted. Raises TaskError."""
    request = TaskRequest.model_validate_json(row.request)
    same = (row.cron, row.timezone, row.overlap, row.missed)
    if not request.alike(wanted.request) or same != (wanted.cron, wanted.timezone, wanted.overlap, wanted.missed):
        words = f'there is a schedule "{wanted.name}" already, which does something else'
        raise TaskError(words, "give it another name")
    right = (wanted.request.capability, wanted.until, wanted.uses)
    if right not in {(request.capability, row.until, row.uses), (SAME_RIGHT, None, None)}:
        words = f'there is the schedule "{wanted.name}" already, under another right'
        raise TaskError(words, f"give it the new one: swarm schedule resume {wanted.name}")
    return _view(row)


def _read(connection: sa.Connection, row: Row) -> Due | None:
    """A run of a schedule whose time has come; None for one that another version wrote, which is stopped."""
    try:
        return _due(row, row.next)
    except ValidationError:
        log.warning("schedule %s cannot be read and is stopped", row.name)
        _halt(connection, row.name, "stopped, since this version cannot read its request; remove it and add it again")
        return None


def _due(row: Row, planned: float) -> Due:
    """Its id cannot be foretold, so that nobody takes it first; the right is good for all that begin with sNAME-."""
    task = f"s{row.name}-{secrets.token_hex(6)}"
    request = TaskRequest.model_validate_json(row.request).model_copy(update={"task": task, "idempotency_key": None})
    return Due(row.name, planned, request, row.user)


def _view(row: Row) -> ScheduleView:
    request = TaskRequest.model_validate_json(row.request)
    shown = {name: value for name, value in row._mapping.items() if name in ScheduleView.model_fields}  # noqa: SLF001
    return ScheduleView.model_validate(shown | {"request": request.model_copy(update={"capability": ""})})
