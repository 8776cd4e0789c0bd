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
from swarm.store.leases import conclude
from swarm.store.messages import add_message
from swarm.store.rows import Plan, Row
from swarm.store.schema import tasks
from swarm.types import Budget, ForkRequest, TaskRequest, TaskState, TaskView

S = TaskState

_GOES_ON = frozenset({S.LIMIT_HIT, S.GAVE_UP, S.CHECKS_FAILED, S.INFRA_FAILED, S.CANCELLED, S.NEEDS_PERSON})


@dataclass(frozen=True)
class Stand:
    """What a fork goes on from: the work under ``salvage``, or the ``tree`` where one is given."""

    task: str
    request: TaskRequest
    salvage: str
    tree: str | None


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
                    last = rows.last_attempt(connection, row.id)
                    if last is not None and last.ended is None:
                        conclude(connection, last, self._db.clock(), "cancelled by a person")
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
                again = {"fence": row.fence + 1, "not_before": 0.0, "pausing": False}
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

    async def fork(self, task: str, wanted: ForkRequest, base: str, user: str) -> tuple[TaskView, bool]:
        """A new task that goes on from where an attempt of ``task`` stood; the flag tells whether it is new.

        ``base`` is the commit that the attempt's work stands on. Raises TaskError for an attempt without work, for an
        id that is taken, and for a task that works on the pull request of another.
        """

        def act(connection: sa.Connection) -> tuple[TaskView, bool]:
            row = rows.row_of(connection, task)
            request, source = self.forked(connection, row, wanted, base)
            if (known := rows.known(connection, request)) is not None:
                return views.one(connection, known), False
            plan = Plan(
                budget=wanted.budget or Budget.model_validate_json(row.budget),
                tier=wanted.tier or source.tier,
                strategy=source.strategy,
                user=user or row.user,
            )
            moves.enter(self._db, connection, request, plan, root=row.root, reason=f"forked from task {row.id}")
            new = rows.exactly(connection, wanted.task)
            moves.begin(self._db, connection, new, continues=(source.id, wanted.step))
            return views.one(connection, wanted.task), True

        return await self._db.do(act, ring=lambda found: found[0].task.id)

    async def source(self, task: str, wanted: ForkRequest) -> Stand:
        """What a fork that is wanted would go on from. Raises TaskError where there is no work."""

        def act(connection: sa.Connection) -> Stand:
            row = rows.row_of(connection, task)
            found = continuing.source(connection, row.id, wanted.attempt)
            tree = continuing.tree_at(connection, found.id, wanted.step) if wanted.step is not None else None
            return Stand(row.id, views.task_of(row).request, found.salvage, tree)

        return await self._db.do(act)

    def forked(self, connection: sa.Connection, row: Row, wanted: ForkRequest, base: str) -> tuple[TaskRequest, Row]:
        """The new task's request, and the attempt that it goes on from."""
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
        return request.model_copy(update=update), continuing.source(connection, row.id, wanted.attempt)

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
        source = continuing.source(connection, row.id, attempt)
        why = f"a person lets it go on from attempt {source.number}"
        said = f"Your work was ended: {row.reason or row.state}. You are asked to go on with it."
        add_message(self._db, connection, row.id, said, "")
        moves.move(self._db, connection, row, S.QUEUED, why, **self._again(row), carry=None)
        moves.begin(self._db, connection, rows.exactly(connection, row.id), continues=(source.id, None))

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


def _carried(connection: sa.Connection, row: Row) -> str | None:
    """The attempt whose sealed tree the next one only has to check or deliver."""
    last = rows.last_attempt(connection, row.id)
    return last.id if last and lifecycle.carries(S(row.state), views.result_of(last)) else None


def _granted(row: Row, capability: str | None) -> dict[str, Any]:
    """The request's column with another capability in it."""
    if capability is None:
        return {}
    request = TaskRequest.model_validate_json(row.request).model_copy(
        update={"capability": capability, "standing": False}
    )
    return {"request": request.model_dump_json()}
