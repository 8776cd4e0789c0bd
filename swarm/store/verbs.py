"""What people ask of tasks: another try, a pause, an end. Each is safe at any moment; twice is as good as once.

A running task is only marked; its worker sees the mark at once where it runs, elsewhere with its host's next heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from swarm import lifecycle
from swarm.errors import IllegalMoveError, TaskError
from swarm.store import continuing, moves, rows, views
from swarm.store.database import Database
from swarm.store.messages import add_message
from swarm.store.rows import Plan, Row
from swarm.store.schema import attempts, tasks
from swarm.store.snapshots import Beginning, put
from swarm.types import Budget, ForkRequest, TaskRequest, TaskState, TaskView

S = TaskState

_GOES_ON = frozenset({S.LIMIT_HIT, S.GAVE_UP, S.CHECKS_FAILED, S.INFRA_FAILED, S.CANCELLED, S.NEEDS_PERSON})


@dataclass(frozen=True)
class Stand:
    """What a fork goes on from: an attempt as it stood at line ``point`` of its journal.

    Its work is under ``salvage``; ``tree`` is what was saved of it up to that line, None where nothing was. ``named``
    tells that a person chose the line.
    """

    task: str
    attempt: str
    point: int
    request: TaskRequest
    salvage: str
    tree: str | None
    named: bool = False


class Verbs:
    """What can be asked of the tasks of a database. Every method raises StoreError when the database fails.

    A task is named by its id or a unique beginning of it. Raises TaskNotFoundError for any other.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    async def retry(self, task: str, capability: str | None = None) -> TaskView:
        """Queue a task again that ended badly, its budget granted once more. Raises IllegalMoveError.

        ``capability`` takes the place of the task's own, where a person has granted another.
        """

        def act(connection: sa.Connection) -> TaskView:
            row = rows.locked(connection, task)
            why = lifecycle.why_legal(S(row.state), S.QUEUED)
            if not S(row.state).final:
                mend = f"let it go on: swarm resume {row.id}" if row.state == S.PAUSED else f"swarm follow {row.id}"
                raise IllegalMoveError(f"task {row.id} is {row.state} and needs no retry", mend)
            extra = self._again(row) | {"carry": _carried(connection, row)} | _granted(row, capability)
            moves.move(self._db, connection, row, S.QUEUED, why, **extra)
            self._begin_again(connection, row.id)
            return views.one(connection, row.id)

        return await self._db.do(act, ring=lambda view: view.task.id)

    async def cancel(self, task: str) -> TaskView:
        """Cancel a waiting task at once; mark a running one, for its worker to stop. A final one stays as it is.

        Raises IllegalMoveError for a task that is being delivered: the pull request may be there already.
        """

        def act(connection: sa.Connection) -> TaskView:
            row = rows.locked(connection, task)
            match S(row.state):
                case S.QUEUED | S.PAUSED:
                    when = "while it was paused" if row.state == S.PAUSED else "before it was claimed"
                    moves.move(self._db, connection, row, S.CANCELLED, f"cancelled {when}", fence=row.fence + 1)
                case S.RUNNING if not row.cancelling:
                    self._mark(connection, row, cancelling=True)
                    self._db.note(connection, row.id, "cancel", {})
                case S.DELIVERING:
                    raise IllegalMoveError(
                        f"task {row.id} is being delivered, which is too late to cancel", f"wait: swarm follow {row.id}"
                    )
                case _:
                    pass
            return views.one(connection, row.id)

        return await self._db.do(act, ring=lambda view: view.task.id)

    async def pause(self, task: str) -> TaskView:
        """Pause a waiting task at once; mark a running one, for its worker to save its work and stop.

        Raises IllegalMoveError for one that is over, and for one that is being delivered.
        """

        def act(connection: sa.Connection) -> TaskView:
            row = rows.locked(connection, task)
            match S(row.state):
                case S.QUEUED:
                    moves.move(self._db, connection, row, S.PAUSED, "a person paused it before it was claimed")
                case S.RUNNING if not row.pausing:
                    self._mark(connection, row, pausing=True)
                    self._db.note(connection, row.id, "note", {"text": "asked to pause"})
                case S.PAUSED | S.RUNNING:
                    pass
                case state:
                    what = "is being delivered" if state is S.DELIVERING else f"is over ({state.value})"
                    raise IllegalMoveError(f"task {row.id} {what}; there is nothing to pause", f"swarm show {row.id}")
            return views.one(connection, row.id)

        return await self._db.do(act, ring=lambda view: view.task.id)

    async def prioritise(self, task: str, priority: int, author: str = "") -> TaskView:
        """Give a queued task another priority, and with it another place. Raises IllegalMoveError for any other."""

        def act(connection: sa.Connection) -> TaskView:
            row = rows.locked(connection, task)
            if S(row.state) is not S.QUEUED:
                why = f"task {row.id} is {row.state}; only one that waits in the queue takes another priority"
                raise IllegalMoveError(why, f"see it: swarm show {row.id}")
            if row.priority != priority:
                # Moved and not computed anew: what was stopped in the middle stays before all that has not begun.
                moved = rows.rank(0.0, priority) - rows.rank(0.0, row.priority)
                values = {"priority": priority, "rank": row.rank + moved}
                connection.execute(tasks.update().where(tasks.c.id == row.id).values(values))
                said = {"text": f"priority {row.priority} became {priority}"} | ({"author": author} if author else {})
                self._db.note(connection, row.id, "note", said)
            return views.one(connection, row.id)

        return await self._db.do(act, ring=lambda view: view.task.id)

    async def resume(self, task: str, attempt: str | None = None) -> TaskView:
        """Let a paused task go on where it stood, or one that ended badly, its budget then granted once more.

        ``attempt`` names the one whose work an ended task goes on from; else that is the last with any. Raises
        IllegalMoveError where there is nothing to go on with, and TaskError where no work was left.
        """

        def act(connection: sa.Connection) -> TaskView:
            row = rows.locked(connection, task)
            state = S(row.state)
            if attempt is not None:
                self._go_on_from(connection, row, attempt)
            elif state is S.RUNNING and row.pausing:
                self._mark(connection, row, pausing=False)
            elif state is S.PAUSED:
                why = lifecycle.why_legal(state, S.QUEUED)
                expires = self._db.clock() + row.expires - row.queued if row.expires else None  # counted anew
                again = {"fence": row.fence + 1, "not_before": 0.0, "pausing": False, "expires": expires}
                moves.move(self._db, connection, row, S.QUEUED, why, **again)
            elif state in _GOES_ON and not _carried(connection, row):
                self._go_on(connection, row)
            elif state in _GOES_ON:
                carry = {"carry": _carried(connection, row)}
                moves.move(self._db, connection, row, S.QUEUED, "a person lets it go on", **self._again(row), **carry)
            elif state.final:
                mend = f"for another try: swarm retry {row.id}"
                raise IllegalMoveError(f"task {row.id} is {state.value}; there is nothing to go on with", mend)
            return views.one(connection, row.id)

        return await self._db.do(act, ring=lambda view: view.task.id)

    async def fork(self, stand: Stand, wanted: ForkRequest, work: Beginning, user: str) -> tuple[TaskView, bool]:
        """A new task that goes on from where an attempt stood; the flag tells whether it is new.

        ``work`` is what was kept for it. Raises TaskError for an id that is taken.
        """

        def act(connection: sa.Connection) -> tuple[TaskView, bool]:
            row = rows.row_of(connection, stand.task)
            if (known := _made(connection, row, wanted)) is not None:
                return views.one(connection, known), False
            source = connection.execute(sa.select(attempts).where(attempts.c.id == stand.attempt)).one()
            plan = Plan(
                budget=wanted.budget or Budget.model_validate_json(row.budget),
                tier=wanted.tier or source.tier,
                strategy=source.strategy,
                user=user or row.user,
            )
            request = _forked(row, wanted, work.base)
            moves.enter(self._db, connection, request, plan, root=row.root, reason=f"forked from task {row.id}")
            first = moves.begin_at(self._db, connection, wanted.task, (stand.attempt, stand.point))
            put(self._db, connection, (row.repository, wanted.task, first.id), work)
            return views.one(connection, wanted.task), True

        return await self._db.do(act, ring=lambda found: found[0].task.id)

    async def source(self, task: str, wanted: ForkRequest) -> Stand | TaskView:
        """What a fork that is wanted would go on from, or the task that the very same one made before.

        Raises TaskError for an attempt without work, for an id that is taken, and for a task that works on the pull
        request of another.
        """

        def act(connection: sa.Connection) -> Stand | TaskView:
            row = rows.row_of(connection, task)
            _forked(row, wanted, "")
            if (known := _made(connection, row, wanted)) is not None:
                return views.one(connection, known)
            found = continuing.source(connection, row.id, wanted.attempt)
            # What is written after this line is not in the tree either: the fork must not believe that it is.
            last = continuing.last_line(connection, found)
            point = last if wanted.step is None else wanted.step
            if point > last:
                why = f"the journal of attempt {found.id} ends with line {last}; there is no line {point}"
                raise TaskError(why, f"see its lines: swarm follow {row.id}")
            tree = continuing.tree_at(connection, found.id, point)
            request = views.task_of(row).request
            return Stand(row.id, found.id, point, request, found.salvage, tree, named=wanted.step is not None)

        return await self._db.do(act)

    def _go_on_from(self, connection: sa.Connection, row: Row, attempt: str) -> None:
        """Queue a task that ended badly, from exactly what one of its attempts left."""
        last = rows.last_attempt(connection, row.id)
        if last is not None and last.ended is None and last.continues == attempt:
            return  # it does already
        if S(row.state) not in _GOES_ON | {S.REFUSED}:
            why = f"task {row.id} is {row.state}: only one that ended badly goes on from an attempt that is named"
            raise IllegalMoveError(why, f"a new task can go on from there: swarm fork {row.id}")
        self._go_on(connection, row, attempt)

    def _go_on(self, connection: sa.Connection, row: Row, attempt: str | None = None) -> None:
        """Queue a task that ended, with a new attempt that knows all that the last one did, and why that ended."""
        start = continuing.start(connection, row.id, attempt)
        why = f"a person lets it go on from attempt {start[0]}"
        said = _said(connection, row, start[0])
        if not moves.move(self._db, connection, row, S.QUEUED, why, **self._again(row), carry=None):
            return  # what it needs can never be met
        add_message(self._db, connection, row.id, said, "")
        moves.begin_at(self._db, connection, row.id, start)

    def _begin_again(self, connection: sa.Connection, task: str) -> None:
        """Have a task that was resumed or forked begin once more where it first began."""
        row, last = rows.exactly(connection, task), rows.last_attempt(connection, task)
        if S(row.state) is S.QUEUED and not row.carry and last and last.ended is not None and last.continues:
            moves.begin_at(self._db, connection, task, continuing.beginning(connection, task))

    def _again(self, row: Row) -> dict[str, Any]:
        return {
            "grants": row.grants + 1,
            "cancelling": False,
            "pausing": False,
            "fence": row.fence + 1,
            "queued": self._db.clock(),
            "not_before": 0.0,
            "expires": None,
        }

    def _mark(self, connection: sa.Connection, row: Row, **marks: bool) -> None:
        connection.execute(tasks.update().where(tasks.c.id == row.id).values(**marks))


def _said(connection: sa.Connection, row: Row, attempt: str) -> str:
    """What an agent is told first that goes on from an attempt which ended."""
    last = connection.execute(sa.select(attempts.c.ending).where(attempts.c.id == attempt)).scalar_one()
    if last == "asked":
        return (
            "You asked a person, and your work was ended until now. What was said since stands before this; where that "
            "is no answer, decide for yourself. Go on with the work."
        )
    return f"Your work was ended: {row.reason or row.state}. You are asked to go on with it."


def _carried(connection: sa.Connection, row: Row) -> str | None:
    """The attempt whose sealed tree the next one only has to check or deliver."""
    last = rows.last_attempt(connection, row.id)
    return last.id if last and lifecycle.carries(S(row.state), views.result_of(last)) else None


def _forked(row: Row, wanted: ForkRequest, base: str) -> TaskRequest:
    """The new task's request. Raises TaskError for a task that works on the pull request of another."""
    request = views.task_of(row).request
    if request.follows is not None:
        why = f"task {row.id} works on the pull request of task {request.follows}, and a fork needs one of its own"
        raise TaskError(why, f"fork that one: swarm fork {request.follows}")
    update: dict[str, Any] = {
        "task": wanted.task,
        "capability": wanted.capability,
        "base_commit": base,
        "idempotency_key": None,
        "needs": (),
        "expires": None,
    }
    given = {"tier": wanted.tier, "title": wanted.title, "budget": wanted.budget}
    update |= {name: value for name, value in given.items() if value is not None}
    return request.model_copy(update=update)


def _made(connection: sa.Connection, row: Row, wanted: ForkRequest) -> str | None:
    """The task that this very fork made before; None where its id is free. Raises TaskError where that is taken."""
    there = connection.execute(sa.select(tasks.c.request).where(tasks.c.id == wanted.task)).scalar_one_or_none()
    if there is None:
        return None
    base = TaskRequest.model_validate_json(there).base_commit
    known = rows.known(connection, _forked(row, wanted, base))
    attempt, point = continuing.beginning(connection, wanted.task) or ("", None)
    whose = connection.execute(sa.select(attempts.c.task).where(attempts.c.id == attempt)).scalar_one_or_none()
    if whose != row.id or wanted.attempt not in {None, attempt} or wanted.step not in {None, point}:
        raise TaskError(f"a task {wanted.task} is there already, and goes on from elsewhere", "give it another id")
    return known


def _granted(row: Row, capability: str | None) -> dict[str, Any]:
    """The request's column with another capability in it."""
    if capability is None:
        return {}
    request = TaskRequest.model_validate_json(row.request).model_copy(
        update={"capability": capability, "standing": False}
    )
    return {"request": request.model_dump_json()}
