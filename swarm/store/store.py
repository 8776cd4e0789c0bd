"""What the daemon knows, on disk: tasks, attempts and the journal, every change one transaction.

Facts are stored and everything else is put together when asked for. A claim's fence is checked by every write that it
makes, so a worker that was replaced can no longer change anything, and a final state is written once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from swarm import lifecycle
from swarm.config_database import Address
from swarm.failures import failure_of
from swarm.store import journal, moves, rows, views
from swarm.store.breakers import Breakers
from swarm.store.budgets import Budgets
from swarm.store.database import Database
from swarm.store.feed import Feed
from swarm.store.hosts import Hosts
from swarm.store.leases import Leases
from swarm.store.line import Line
from swarm.store.listing import Listing
from swarm.store.messages import Messages
from swarm.store.needed import Needs
from swarm.store.outcomes import Outcomes
from swarm.store.queue import Queue
from swarm.store.rows import Claim, Held, Kept, Plan, Row, Settlement
from swarm.store.schedules import Schedules
from swarm.store.schema import attempts, tasks
from swarm.store.snapshots import Snapshots
from swarm.store.times import Times
from swarm.store.tries import Tries
from swarm.store.verbs import Verbs
from swarm.types import Step, Task, TaskRequest, TaskState, TaskView


class Store:
    """The database. Its methods are safe to call at once; they run one after the other on a thread of their own.

    Every method raises StoreError when the database fails.
    """

    def __init__(self, where: Path | Address, *, clock: Callable[[], float] = time.time, reading: bool = False) -> None:
        self._db = Database(where, clock=clock, reading=reading)
        self.shared = self._db.shared
        self.clock = self._db.clock  # in seconds since 1970, as all hosts of the database agree on
        self._do, self._note = self._db.do, self._db.note
        self.bell, self.listeners = self._db.bell, self._db.listeners
        self.listing = Listing(self._db)
        self.feed = Feed(self._db)
        self.budgets = Budgets(self._db)
        self.times = Times(self._db)
        self.queue = Queue(self._db, self.budgets)
        self.leases = Leases(self._db)
        self.hosts = Hosts(self._db, self.leases)
        self.messages = Messages(self._db)
        self.snapshots = Snapshots(self._db)
        self.verbs = Verbs(self._db)
        self.breakers = Breakers(self._db)
        self.needs = Needs(self._db)
        self.tries = Tries(self._db)
        self.outcomes = Outcomes(self._db)
        self.schedules = Schedules(self._db)
        self.line = Line(self._db, self.queue, self.breakers)

    async def __aenter__(self) -> Self:
        self._db.follow()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._db.close()

    # Tasks in

    async def add(self, request: TaskRequest, plan: Plan) -> tuple[TaskView, bool]:
        """Accept a task, or find the one that the same idempotency key made; the flag tells whether it is new.

        Raises TaskError when the id that the request asks for is taken by another request.
        """

        def act(connection: sa.Connection) -> tuple[TaskView, bool]:
            known = rows.known(connection, request)
            if known is not None:
                return views.one(connection, known), False
            task = moves.enter(self._db, connection, request, plan)
            return views.one(connection, task), True

        return await self._do(act, ring=lambda found: found[0].task.id)

    # A worker's life

    async def deliver(self, claim: Claim, reason: str) -> bool:
        """Move a running task to delivering, unless someone asked to cancel it; whether it is delivering now.

        From here on it cannot be cancelled. Raises StaleClaimError.
        """

        def act(connection: sa.Connection) -> bool:
            row = rows.held(connection, claim)
            if TaskState(row.state) is TaskState.DELIVERING:
                return True
            if row.cancelling:
                return False
            self._move(connection, row, TaskState.DELIVERING, reason, attempt=claim.attempt.id)
            return True

        return await self._do(act, ring=lambda _: claim.task.id)

    async def settle(self, claim: Claim, end: Settlement) -> bool:
        """End an attempt and move its task on, in one. False, and nothing written, when the task was final before.

        Raises StaleClaimError when another worker has the task.
        """

        def act(connection: sa.Connection) -> bool:
            if TaskState(rows.locked(connection, claim.task.id).state).final:
                return False
            row = rows.held(connection, claim)
            now = self._db.now(connection)
            failure = end.failure or failure_of(end.to, end.result, end.verdict)
            connection.execute(
                attempts.update()
                .where(attempts.c.id == claim.attempt.id)
                .values(
                    ended=now,
                    ending=end.result.conclusion.ending,
                    detail=end.reason,
                    result=end.result.model_dump_json(),
                    verdict=journal.encode(end.verdict) if end.verdict else None,
                    failure=failure,
                )
            )
            carry = claim.attempt.id if lifecycle.carries(end.to, end.result) and end.result.fault else None
            queue = {"tier": end.tier or row.tier, "not_before": now + end.wait, "queued": now, "carry": carry}
            extra = queue if end.to is TaskState.QUEUED else {"failure": failure}
            self._move(connection, row, end.to, end.reason, attempt=claim.attempt.id, fence=row.fence + 1, **extra)
            self.queue.ended(connection, row, replace(end, failure=failure))
            return True

        return await self._do(act, ring=lambda _: claim.task.id)

    async def held(self, since: float, limit: int) -> tuple[Held, ...]:
        """What the broker may yet deliver of tasks that ended after ``since``, the newest first."""
        ended = tasks.c.state.in_([state.value for state in lifecycle.HELD])
        # As `journal.encode` writes it; what that lets through too much is left out below.
        waits, fatal = (attempts.c.verdict.contains(word) for word in ('"kind": "waiting"', '"severity": "fatal"'))
        may = sa.exists().where(attempts.c.task == tasks.c.id, attempts.c.verdict.is_not(None), sa.or_(waits, ~fatal))
        query = sa.select(tasks.c.id, tasks.c.updated).where(ended, tasks.c.updated > since, may)
        newest: sa.Select[Any] = query.order_by(tasks.c.updated.desc())

        def act(connection: sa.Connection) -> tuple[Held, ...]:
            found: list[Held] = []
            for row in connection.execute(newest).all():
                last = rows.last_judged(connection, row.id)
                if last is not None and (one := rows.held_of(row, last)) is not None:
                    found.append(one)
                if len(found) == limit:
                    break
            return tuple(found)

        return await self._do(act)

    async def redeem(self, held: Held, verdict: dict[str, Any], to: TaskState, reason: str) -> TaskView | None:
        """Write the broker's later word over its earlier one and move the task; None when the task has moved on.

        The word is then in the journal as well. Raises TaskNotFoundError.
        """

        def act(connection: sa.Connection) -> TaskView | None:
            row = rows.locked(connection, held.task)
            last = rows.last_judged(connection, row.id)
            state = TaskState(row.state)
            if (
                state not in lifecycle.HELD
                or last is None
                or rows.held_of(row, last) is None
                or last.id != held.attempt
            ):
                return None
            word = attempts.update().where(attempts.c.id == held.attempt)
            connection.execute(word.values(verdict=journal.encode(verdict)))
            data = {key: value for key, value in verdict.items() if key != "kind"}
            self._note(connection, row.id, verdict["kind"], data, attempt=held.attempt)
            if state is to:
                connection.execute(tasks.update().where(tasks.c.id == row.id).values(reason=reason))
            else:
                self._move(connection, row, to, reason, attempt=held.attempt, fence=row.fence + 1)
            return views.one(connection, row.id)

        return await self._do(act, ring=lambda view: view.task.id if view else None)

    async def record(self, claim: Claim, kind: str, data: dict[str, Any]) -> Step:
        """Write a line of the journal; it is on disk when this returns. Raises StaleClaimError."""

        def act(connection: sa.Connection) -> Step:
            rows.held(connection, claim)
            return self._note(connection, claim.task.id, kind, data, attempt=claim.attempt.id)

        return await self._do(act, ring=lambda step: step.task)

    async def record_once(self, claim: Claim, kind: str, data: dict[str, Any]) -> Step:
        """`record`, unless the attempt's last line of that kind says just this: a phase was made once more, after a
        crash between its last line and its end. Raises StaleClaimError."""

        def act(connection: sa.Connection) -> Step:
            rows.held(connection, claim)
            last = journal.last(connection, claim.task.id, claim.attempt.id, kind)
            if last is not None and journal.encode(last.data) == journal.encode(data):
                return last
            return self._note(connection, claim.task.id, kind, data, attempt=claim.attempt.id)

        return await self._do(act, ring=lambda step: step.task)

    async def salvaged(self, claim: Claim, kept: Kept) -> None:
        """Remember where the attempt's work is kept."""

        def act(connection: sa.Connection) -> None:
            rows.held(connection, claim)
            self._keep(connection, claim.task.id, claim.attempt.id, kept)

        await self._do(act, ring=lambda _: claim.task.id)

    async def rescued(self, task: str, attempt: str, kept: Kept, *, newest: bool) -> None:
        """Remember work that was found in a sandbox which outlived its daemon, before anything is claimed.

        Only the ``newest`` becomes what the attempt goes on from. Raises TaskNotFoundError.
        """

        def act(connection: sa.Connection) -> None:
            row = rows.row_of(connection, task)
            reason = f"the sandbox {kept.sandbox} outlived the daemon; its workspace is kept under {kept.ref}"
            self._note(connection, row.id, "note", {"text": "work was saved", "reason": reason}, attempt=attempt)
            if newest:
                self._keep(connection, row.id, attempt, kept)

        await self._do(act, ring=lambda _: task)

    # Questions

    async def view(self, task: str) -> TaskView:
        """A task by its id or a unique beginning of it. Raises TaskNotFoundError."""

        def act(connection: sa.Connection) -> TaskView:
            return self.line.placed(connection, views.assemble(connection, [rows.row_of(connection, task)])[0])

        return await self._do(act)

    async def task(self, task: str) -> Task:
        """A task by its whole id, with its capability: for whoever delivers. Raises TaskNotFoundError."""
        return await self._do(lambda connection: views.task_of(rows.exactly(connection, task)))

    async def lineage(self, task: str) -> tuple[TaskView, ...]:
        """A task, and every one that works further on its pull request, oldest first."""
        query = sa.select(tasks).where(sa.or_(tasks.c.id == task, tasks.c.follows == task)).order_by(tasks.c.created)
        return await self._do(lambda connection: views.assemble(connection, connection.execute(query).all()))

    async def remark(self, task: str, text: str, reason: str) -> None:
        """Write a line into a task's journal that no attempt of it made. Raises TaskNotFoundError."""

        def act(connection: sa.Connection) -> None:
            rows.exactly(connection, task)
            self._note(connection, task, "note", {"text": text, "reason": reason})

        await self._do(act, ring=lambda _: task)

    async def state(self, task: str) -> TaskState:
        """Where a task stands."""
        return await self._do(lambda connection: TaskState(rows.row_of(connection, task).state))

    async def views(self, state: TaskState | None, limit: int) -> tuple[TaskView, ...]:
        """The newest tasks first."""
        query = sa.select(tasks).order_by(tasks.c.created.desc(), tasks.c.id).limit(limit)
        if state is not None:
            query = query.where(tasks.c.state == state.value)
        return await self._do(lambda connection: views.assemble(connection, connection.execute(query).all()))

    async def steps(
        self, task: str, *, after: int = 0, attempt: str | None = None, limit: int = 10_000
    ) -> tuple[Step, ...]:
        """Lines of a task's journal, oldest first."""
        return await self._do(
            lambda connection: journal.read(connection, task, after=after, attempt=attempt, limit=limit)
        )

    async def counts(self) -> dict[TaskState, int]:
        """How many tasks are in each state; states without any are left out."""
        query = sa.select(tasks.c.state, sa.func.count()).group_by(tasks.c.state)
        return await self._do(
            lambda connection: {TaskState(state): count for state, count in connection.execute(query)}
        )

    # Machinery

    def _move(
        self,
        connection: sa.Connection,
        row: Row,
        to: TaskState,
        reason: str,
        *,
        attempt: str | None = None,
        **extra: Any,
    ) -> None:
        moves.move(self._db, connection, row, to, reason, attempt=attempt, **extra)

    def _keep(self, connection: sa.Connection, task: str, attempt: str, kept: Kept) -> None:
        connection.execute(attempts.update().where(attempts.c.id == attempt).values(salvage=kept.ref))
        data = {"ref": kept.ref, "tree": kept.tree, "sandbox": kept.sandbox}
        self._note(connection, task, "salvage", data, attempt=attempt)
